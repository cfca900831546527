"""What may befall a data directory: it is full, it is an old copy, a bit of it has flipped."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replica.core.doubt import doubt_of_place
from replica.storage.lmdb_store import LmdbStorage

__all__ = [
    "Filler",
    "NoMount",
    "clone",
    "copy",
    "damage_row",
    "leave_no_room",
    "make_room",
    "roll_back",
    "small_disk",
]

_DATA = "data.mdb"
_NEAR = 400
"""Bytes after its key within which a row's text begins; more hold its frame, its dots and its times."""


class NoMount(Exception):
    """This process may not mount a file system; the text is what the system says."""


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """A file system of so many bytes, in memory, while the block lasts. Raises NoMount."""
    place.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size},mode=0700", "ricordo-test", str(place)]
    done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoMount(done.stderr.strip() or f"mount ended with {done.returncode}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


class Filler:
    """A file that takes all the room of a file system, until it is taken away."""

    def __init__(self, disk: Path) -> None:
        self._file = disk / "filler"

    def fill(self) -> None:
        """Leave not a page free."""
        free = os.statvfs(self._file.parent)
        with self._file.open("wb") as file:
            file.write(bytes(free.f_bavail * free.f_frsize))

    def clear(self) -> None:
        """Give the room back."""
        self._file.unlink(missing_ok=True)


def leave_no_room(pid: int, data: Path) -> None:
    """From now on the process can make no file longer than its store is, as under a quota."""
    size = (data / _DATA).stat().st_size
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def make_room(pid: int) -> None:
    """Take that back."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def copy(data: Path, to: Path) -> None:
    """Copy a directory that no process has open."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(data, to)


def clone(data: Path, to: Path) -> None:
    """Copy a directory that no process has open so that nothing tells the copy apart, as a copy of a whole
    volume does.
    """
    copy(data, to)
    store = LmdbStorage.open(to, create=False)
    store.run(lambda transaction: doubt_of_place(transaction, store.place))
    store.close()


def roll_back(data: Path, earlier: Path) -> None:
    """Put an earlier copy in the place of a directory that no process has open."""
    shutil.rmtree(data)
    shutil.copytree(earlier, data)


def damage_row(data: Path, key: str, text: str) -> int:
    """Flip a bit of ``text``, which no key contains, wherever the row at ``key`` says it, in a store that no
    process has open.

    Returns in how many places: pages that are not used any more may hold the row as it was.
    """
    repo, topic, id = key.removeprefix("repo/").replace("/mem/", "/").split("/")
    row, body = "\0".join((repo, topic, id)).encode(), text.encode()
    file = data / _DATA
    content = bytearray(file.read_bytes())
    flipped, at = 0, content.find(row)
    while at >= 0:
        found = content.find(body, at + len(row), at + _NEAR + len(body))
        if found >= 0:
            content[found] ^= 1
            flipped += 1
        at = content.find(row, at + 1)
    file.write_bytes(content)
    return flipped
