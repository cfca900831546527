"""The lock that keeps a second process out of a data directory.

LMDB itself lets several processes share a store; a replica must be alone with its counter (design, section
8). The lock is held by the system and ends with the process, however that ends; the number in the file is
there for the message only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from replica.core.storage import StoreLocked

__all__ = ["PROCESS_LOCK_FILE", "ProcessLock"]

PROCESS_LOCK_FILE = "ricordo.lock"
"""The file that is locked; it holds the process id of who locked it last."""


class ProcessLock:
    """The lock on one data directory, held from when it is made until :meth:`release`."""

    __slots__ = ("_file",)

    def __init__(self, file: int) -> None:
        self._file = file

    @classmethod
    def find(cls, directory: Path) -> ProcessLock | None:
        """Lock `directory` if it has a lock file, changing nothing. Raises like :meth:`take`."""
        try:
            return cls._lock(directory, os.O_RDWR)
        except (FileNotFoundError, NotADirectoryError):
            return None

    @classmethod
    def take(cls, directory: Path) -> ProcessLock:
        """Lock `directory`.

        Raises StoreLocked if a process has it locked (this one included), OSError if that cannot be tried.
        """
        return cls._lock(directory, os.O_RDWR | os.O_CREAT)

    @classmethod
    def _lock(cls, directory: Path, flags: int) -> ProcessLock:
        file = os.open(directory / PROCESS_LOCK_FILE, flags | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _signed_by(file)
            os.close(file)
            raise StoreLocked(str(directory), pid) from None
        except OSError:
            os.close(file)
            raise
        return cls(file)

    def sign(self) -> None:
        """Write the number of this process into the file, for whoever finds it locked."""
        name = f"{os.getpid()}\n".encode()
        # On a full disk the message may lack the number; that must not keep the store from opening.
        with contextlib.suppress(OSError):
            os.pwrite(self._file, name, 0)
            os.ftruncate(self._file, len(name))

    def release(self) -> None:
        """Let others in. The file stays: to remove it would let two processes lock two files of one name."""
        os.close(self._file)


def _signed_by(file: int) -> int | None:
    text = os.pread(file, 32, 0).strip()
    return int(text) if text.isdigit() else None
