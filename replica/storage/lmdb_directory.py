"""The directory of a store: telling whether it may be opened, and making a new one.

Beside LMDB's two files lies our identity file, which says that the store is ours and in which format its
rows are. It gets its name last, when the store behind it is complete: a directory with an identity file and
without proper data was damaged, one with an unfinished identity file never held anything.

Looking changes nothing, so a store that is refused is left exactly as it was.
"""

from __future__ import annotations

import enum
import json
import os
from datetime import UTC, datetime
from pathlib import Path

from replica.core.storage import StoreRefused
from replica.storage.lmdb_file import DATA_FILE, LOCK_FILE, REPLACE_STORE, find_defect
from replica.storage.lmdb_lock import PROCESS_LOCK_FILE

__all__ = [
    "IDENTITY_FILE",
    "STORAGE_FORMAT",
    "DirectoryState",
    "begin_store",
    "examine",
    "finish_store",
    "make_directory",
    "place_of",
    "sync_directory",
    "unusable",
]

IDENTITY_FILE = "ricordo-store.json"
"""Says that the data beside it is a store of ours."""
STORAGE_FORMAT = 1
"""The format of tables and rows that this version writes, and the only one it reads."""

_UNFINISHED_FILE = "ricordo-store.new"
_MAGIC = "ricordo store"
# A file system of its own has this folder from the start.
_HARMLESS = {PROCESS_LOCK_FILE, "lost+found"}


class DirectoryState(enum.Enum):
    """What a directory that may be opened holds."""

    NEW = enum.auto()
    """Nothing, or it is not there."""
    UNFINISHED = enum.auto()
    """The beginnings of a store that was never finished, and never used."""
    STORE = enum.auto()
    """A store that may be mapped."""


def examine(directory: Path, *, create: bool) -> DirectoryState:
    """What `directory` holds, found out without changing anything.

    Raises StoreRefused if it must not be opened, or holds no store and `create` is False.
    """
    try:
        state = _examine(directory)
    except OSError as error:
        raise unusable(directory, error) from error
    if state is not DirectoryState.STORE and not create:
        raise StoreRefused(str(directory), "there is no store here", "name the data directory of a replica")
    return state


def make_directory(directory: Path) -> None:
    """Make `directory` and what lies above it, durably. Raises StoreRefused."""
    try:
        missing = []
        place = directory
        while not place.exists():
            missing.append(place)
            place = place.parent
        for place in reversed(missing):
            place.mkdir(mode=0o700, exist_ok=True)
            sync_directory(place.parent)
    except OSError as error:
        raise unusable(directory, error) from error


def begin_store(directory: Path) -> None:
    """Clear away an unfinished store, and mark `directory` as one in the making. Raises OSError."""
    identity = {
        "magic": _MAGIC,
        "format": STORAGE_FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    for name in (DATA_FILE, LOCK_FILE):
        (directory / name).unlink(missing_ok=True)
    with (directory / _UNFINISHED_FILE).open("w", encoding="utf-8") as file:
        file.write(json.dumps(identity, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    sync_directory(directory)


def finish_store(directory: Path) -> None:
    """Declare the store in `directory`, whose data is on disk, complete. Raises OSError."""
    sync_directory(directory)
    (directory / _UNFINISHED_FILE).rename(directory / IDENTITY_FILE)
    sync_directory(directory)


def place_of(directory: Path) -> bytes:
    """What tells the store in `directory` from every copy of it. Raises OSError.

    It is the number of the identity file and the time of its last change as the file system keeps it, which
    no program can set: the file is never touched again, and a copy of it is another file, made at another
    time. A directory that is renamed keeps its place.
    """
    found = (directory / IDENTITY_FILE).stat()
    return f"{found.st_ino} {found.st_ctime_ns}".encode()


def _examine(directory: Path) -> DirectoryState:
    place = str(directory)
    try:
        names = {path.name for path in directory.iterdir()}
    except FileNotFoundError:
        return DirectoryState.NEW
    except NotADirectoryError:
        raise StoreRefused(place, "it is not a directory", "choose another data directory") from None
    if IDENTITY_FILE in names:
        _check_identity(directory)
        if DATA_FILE not in names:
            raise StoreRefused(place, f"{DATA_FILE} is missing beside {IDENTITY_FILE}", REPLACE_STORE)
        defect = find_defect(directory / DATA_FILE)
        if defect is not None:
            raise StoreRefused(place, defect.reason, defect.remedy)
        return DirectoryState.STORE
    if _UNFINISHED_FILE in names and (DATA_FILE not in names or _is_ours(directory / _UNFINISHED_FILE)):
        return DirectoryState.UNFINISHED
    if DATA_FILE in names:
        raise StoreRefused(
            place,
            f"{DATA_FILE} has no {IDENTITY_FILE} beside it, so it is not a store of Ricordo",
            "choose an empty directory",
        )
    if names - _HARMLESS:
        raise StoreRefused(place, "it is not empty and holds no store", "choose an empty directory")
    return DirectoryState.NEW


def _check_identity(directory: Path) -> None:
    identity = _read_identity(directory / IDENTITY_FILE)
    found = identity.get("format")
    if identity.get("magic") != _MAGIC or not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise StoreRefused(
            str(directory),
            f"{IDENTITY_FILE} is damaged",
            REPLACE_STORE,
        )
    if found > STORAGE_FORMAT:
        raise StoreRefused(
            str(directory),
            f"the store has format {found}, and this version reads {STORAGE_FORMAT}",
            "open it with a newer version of Ricordo",
        )


def _is_ours(path: Path) -> bool:
    return _read_identity(path).get("magic") == _MAGIC


def _read_identity(path: Path) -> dict[str, object]:
    try:
        content: object = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def unusable(directory: Path, error: OSError) -> StoreRefused:
    """The refusal that says what the system said about `directory`."""
    where = f" ({error.filename})" if error.filename else ""
    return StoreRefused(
        str(directory),
        f"it cannot be used: {error.strerror}{where}",
        "mend that, or choose another data directory",
    )


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` durable."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
