"""What is built and generated is whole, current and installable with the versions it says."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
WIRE = ROOT / "replica" / "wire"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements() -> dict[str, Requirement]:
    """Every requirement of the project, for running and developing, by name."""
    project = PROJECT["project"]
    lines = project["dependencies"] + project["optional-dependencies"]["dev"]
    return {canonicalize_name(found.name): found for found in map(Requirement, lines)}


def constraints() -> dict[str, str]:
    """The exact version of each package, by name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines]
    return {canonicalize_name(name): version for name, version in pairs}


def protos(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "protos.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_wheel_holds_every_file_of_the_packages_and_no_other(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=True)
    [wheel] = tmp_path.glob("ricordo-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files = [path for package in packages for path in (ROOT / package).rglob("*") if path.is_file()]
    assert packed == {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
    assert {f"{package}/py.typed" for package in packages} <= packed
    assert {f"replica/wire/{name}_pb2.py" for name in ("admin", "memory", "replication")} <= packed


def test_the_stubs_are_what_the_sources_generate() -> None:
    result = protos("--check")
    assert (result.returncode, result.stderr) == (0, "")


def test_a_changed_a_new_and_a_removed_source_are_noticed_until_the_stubs_are_generated(
    tmp_path: Path,
) -> None:
    proto, wire = tmp_path / "proto", tmp_path / "wire"
    shutil.copytree(ROOT / "proto", proto)
    shutil.copytree(WIRE, wire)
    folder = proto / "ricordo" / "v1"
    with (folder / "memory.proto").open("a") as source:
        source.write("\nmessage Unheard { string of = 1; }\n")
    (folder / "added.proto").write_text('syntax = "proto3";\npackage ricordo.v1;\nmessage Added {}\n')
    (wire / "orphan_pb2.py").touch()
    before = {path.name: path.read_bytes() for path in wire.iterdir() if path.is_file()}

    result = protos("--check", "--proto", proto, "--wire", wire)

    assert result.returncode == 1
    assert "memory_pb2.pyi is not what its source generates" in result.stderr
    assert "added_pb2.py is missing" in result.stderr
    assert "orphan_pb2.py has no source any more" in result.stderr
    assert before == {path.name: path.read_bytes() for path in wire.iterdir() if path.is_file()}
    assert protos("--proto", proto, "--wire", wire).returncode == 0
    assert protos("--check", "--proto", proto, "--wire", wire).returncode == 0


def test_lower_bounds_are_the_versions_the_stubs_demand() -> None:
    stubs = "\n".join(path.read_text() for path in WIRE.glob("*_pb2*.py"))
    demanded = {
        "grpcio": set(re.findall(r"^GRPC_GENERATED_VERSION = '(.+)'$", stubs, re.MULTILINE)),
        "protobuf": set(re.findall(r"^# Protobuf Python Version: (.+)$", stubs, re.MULTILINE)),
    }
    for name, versions in demanded.items():
        lower = {bound.version for bound in requirements()[name].specifier if bound.operator == ">="}
        assert lower == versions, name


def test_constraints_name_packages_and_exact_versions_only() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), line


@pytest.mark.parametrize("name", sorted(requirements()))
def test_every_requirement_is_constrained_to_a_version_it_allows(name: str) -> None:
    assert requirements()[name].specifier.contains(constraints()[name])
