"""The layers import only downwards, and what decides meaning imports no clock, chance, network or disk."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

MAY_IMPORT: dict[str, frozenset[str]] = {
    "crdt": frozenset(),
    "replica": frozenset(),
    "replica.core": frozenset({"crdt"}),
    "replica.durations": frozenset({"crdt"}),
    "replica.config": frozenset({"crdt", "replica.core", "replica.durations"}),
    "replica.logs": frozenset(),
    "replica.storage": frozenset({"crdt", "replica.core"}),
    "replica.wire": frozenset({"crdt", "replica.core"}),
    "replica.simulator": frozenset({"crdt", "replica.core", "replica.storage"}),
    "replica.simulator.oracle": frozenset(),
    "replica.client": frozenset({"crdt", "replica.core", "replica.wire"}),
    "replica.server": frozenset(
        {
            "crdt",
            "replica.config",
            "replica.core",
            "replica.durations",
            "replica.logs",
            "replica.storage",
            "replica.wire",
        }
    ),
    "replica.cli": frozenset(
        {
            "crdt",
            "replica.client",
            "replica.config",
            "replica.core",
            "replica.durations",
            "replica.server",
            "replica.simulator",
            "replica.storage",
            "replica.wire",
        }
    ),
    "replica.demo": frozenset(
        {"replica.cli", "replica.client", "replica.core", "replica.server", "replica.wire"}
    ),
    "mcp_tools": frozenset({"crdt", "replica.client", "replica.core", "replica.wire"}),
}
"""What each layer rests on, besides itself and the version in `replica`."""

PURE = {"crdt", "replica.core"}
IMPURE = {
    "asyncio",
    "grpc",
    "lmdb",
    "multiprocessing",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "threading",
    "time",
}


def layer_of(module: str) -> str:
    """The longest name in the table that `module` is or lies in; unknown modules are a layer of their own."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 1, -1))
    if parts[0] == "replica":
        return next((name for name in names if name in MAY_IMPORT), ".".join(parts[:2]))
    return parts[0]


def imports(path: Path, module: str) -> Iterator[tuple[int, str]]:
    """Every import in `path`, wherever it stands, as a line number and a full module name."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join(base + ([node.module] if node.module else []))
            # `from replica import core` names a layer in its second half.
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def violations(root: Path) -> list[str]:
    """One sentence for each import below `root` that the table does not allow."""
    found = []
    for top in ("crdt", "replica", "mcp_tools"):
        for path in sorted((root / top).rglob("*.py")):
            relative = path.relative_to(root)
            module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
            layer = layer_of(module)
            if layer not in MAY_IMPORT:
                found.append(f"{relative}:1: {layer} is in no layer: name it in MAY_IMPORT")
                continue
            for line, name in imports(path, module):
                target = layer_of(name)
                if layer in PURE and name.split(".")[0] in IMPURE:
                    found.append(f"{relative}:{line}: {layer} is pure and imports {name}")
                elif name.split(".")[0] in ("crdt", "replica", "mcp_tools"):
                    if name == "replica.__version__" or target == layer or target in MAY_IMPORT[layer]:
                        continue
                    if (layer, target) == ("replica.simulator", "replica.simulator.oracle"):
                        continue
                    found.append(f"{relative}:{line}: {layer} may not import {name}")
    return found


def test_layers_import_only_downwards() -> None:
    assert (ROOT / "crdt").is_dir()
    found = violations(ROOT)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("crdt/clock.py", "import time", "crdt is pure and imports time"),
        ("crdt/clock.py", "from asyncio import sleep", "crdt is pure and imports asyncio.sleep"),
        ("crdt/clock.py", "from replica.core import node", "crdt may not import replica.core.node"),
        ("replica/core/node.py", "import grpc.aio", "replica.core is pure and imports grpc.aio"),
        (
            "replica/core/node.py",
            "from replica import storage",
            "replica.core may not import replica.storage",
        ),
        (
            "replica/core/node.py",
            "from ..storage import lmdb",
            "replica.core may not import replica.storage.lmdb",
        ),
        ("replica/core/__init__.py", "from ..wire import x", "replica.core may not import replica.wire.x"),
        ("replica/server/app.py", "import replica.cli.app", "replica.server may not import replica.cli.app"),
        ("replica/simulator/oracle.py", "import crdt", "replica.simulator.oracle may not import crdt"),
        ("replica/misplaced/x.py", "import os", "replica.misplaced is in no layer: name it in MAY_IMPORT"),
    ],
)
def test_an_upward_import_is_named_with_its_place(
    tmp_path: Path, file: str, line: str, complaint: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{line}\n")
    assert violations(tmp_path) == [f"{file}:1: {complaint}"]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("crdt/clock.py", "from .dot import Dot"),
        ("replica/core/node.py", "from crdt import record"),
        ("replica/cli/app.py", "from replica import __version__"),
        ("replica/cli/app.py", "import replica.server.app, asyncio, time"),
        ("replica/simulator/run.py", "from replica.simulator.oracle import Oracle"),
        ("replica/wire/memory_pb2_grpc.py", "from replica.wire import memory_pb2"),
    ],
)
def test_a_downward_import_is_allowed(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{line}\n")
    assert violations(tmp_path) == []
