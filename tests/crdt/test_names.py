"""The public face of the package: what it names, it lists and explains."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import crdt

ROOMS = sorted(path.stem for path in Path(crdt.__file__).parent.glob("*.py") if path.stem != "__init__")


def test_the_package_says_what_each_room_is() -> None:
    for room in ROOMS:
        assert f":mod:`crdt.{room}`" in (crdt.__doc__ or "")


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_of_a_room_is_listed(room: str) -> None:
    module = importlib.import_module(f"crdt.{room}")
    tree = ast.parse(inspect.getsource(module))
    defined = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined.add(node.target.id)
    public = {name for name in defined if not name.startswith("_")}
    assert set(module.__all__) == public
    assert len(module.__all__) == len(public)


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_and_everything_public_in_it_is_explained(room: str) -> None:
    module = importlib.import_module(f"crdt.{room}")
    assert module.__doc__
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isfunction(thing) or (inspect.isclass(thing) and thing.__module__ == module.__name__):
            assert thing.__doc__, name
        if inspect.isclass(thing) and thing.__module__ == module.__name__:
            for member, value in vars(thing).items():
                function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
                if inspect.isfunction(function) and not member.startswith("_"):
                    assert function.__doc__, f"{name}.{member}"
