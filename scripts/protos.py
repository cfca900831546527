"""Generate the message classes and service stubs of `replica.wire` from `proto/ricordo/v1`, or check them.

The output depends only on the `.proto` files and the pinned generators, so "current" means: generated anew
into a temporary folder, every file is byte for byte the committed one, and there is no other.
"""

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["Stubs", "differences", "generate", "install", "installed", "main"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("ricordo/v1")
"""Where the sources lie below the proto folder: the proto package `ricordo.v1`."""
IMPORT_PACKAGE = "replica.wire"
"""Where the generated modules are imported from. The generators know only the proto package's own name."""
PATTERN = "*_pb2*.py*"

Stubs = dict[str, bytes]
"""Generated files by name."""


def generate(proto: Path) -> Stubs:
    """Generate every module for the sources below `proto`.

    Raises FileNotFoundError when there is nothing to generate from or a generator is missing, and
    subprocess.CalledProcessError when a source does not compile; the compiler has then said why itself.
    """
    sources = sorted(path.relative_to(proto).as_posix() for path in (proto / PACKAGE).glob("*.proto"))
    if not sources:
        raise FileNotFoundError(f"no .proto file in {proto / PACKAGE}")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{proto}", f"-I{google_sources()}"]
        command += [f"--plugin={name}={plugin(name)}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
        command += [f"--python_out={folder}", f"--grpc_python_out={folder}"]
        command += [f"--mypy_out=quiet:{folder}", f"--mypy_grpc_out=quiet:{folder}"]
        subprocess.run([*command, *sources], check=True)
        return {path.name: rehomed(path.read_bytes()) for path in (Path(folder) / PACKAGE).glob(PATTERN)}


def google_sources() -> Path:
    """Find the folder of `google/rpc/status.proto`: its distribution installs it beside the module."""
    found = importlib.util.find_spec("google.rpc.status_pb2")
    if found is None or found.origin is None:
        raise FileNotFoundError("googleapis-common-protos is not installed: run `make setup`")
    return Path(found.origin).parents[2]


def plugin(name: str) -> Path:
    """Find a protoc plugin beside the running interpreter, so that no activated environment is needed."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed beside {sys.executable}: run `make setup`")
    return Path(found)


def rehomed(text: bytes) -> bytes:
    """Let a generated module import its siblings from `IMPORT_PACKAGE`."""
    proto_package = PACKAGE.as_posix().replace("/", ".")
    return text.replace(f"from {proto_package} import".encode(), f"from {IMPORT_PACKAGE} import".encode())


def installed(wire: Path) -> Stubs:
    """Read the generated files that lie in `wire`."""
    return {path.name: path.read_bytes() for path in wire.glob(PATTERN)}


def differences(expected: Stubs, actual: Stubs) -> list[str]:
    """Say in one sentence each what makes `actual` other than `expected`: nothing when it is current."""
    found = []
    for name in sorted(expected.keys() | actual.keys()):
        if name not in actual:
            found.append(f"{name} is missing")
        elif name not in expected:
            found.append(f"{name} has no source any more")
        elif expected[name] != actual[name]:
            found.append(f"{name} is not what its source generates")
    return found


def install(stubs: Stubs, wire: Path) -> None:
    """Make the generated files in `wire` exactly `stubs`; a file that is already right is not touched."""
    before = installed(wire)
    for name in before.keys() - stubs.keys():
        (wire / name).unlink()
    for name, content in stubs.items():
        if before.get(name) != content:
            (wire / name).write_bytes(content)


def main() -> int:
    """Generate, or with `--check` compare; the result is the exit code: 0 when the stubs are now current."""
    parser = argparse.ArgumentParser(description="Generate replica/wire from proto/.")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail when the stubs are not current"
    )
    parser.add_argument("--proto", type=Path, default=ROOT / "proto", help="the folder of the sources")
    parser.add_argument(
        "--wire", type=Path, default=ROOT / "replica" / "wire", help="the folder of the stubs"
    )
    arguments = parser.parse_args()
    try:
        stubs = generate(arguments.proto)
    except FileNotFoundError as error:
        print(f"protos: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        return error.returncode
    if not arguments.check:
        install(stubs, arguments.wire)
        return 0
    found = differences(stubs, installed(arguments.wire))
    for difference in found:
        print(f"protos: {difference}: run `make protos`", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
