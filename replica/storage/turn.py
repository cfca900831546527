"""The turn to write, which one thread has at a time."""

from __future__ import annotations

import threading

from replica.core.storage import StorageError

__all__ = ["WriterTurn"]


class WriterTurn:
    """A lock for the one open transaction that tells a thread that it would wait for itself."""

    __slots__ = ("_lock", "_owner")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    def take(self) -> None:
        """Wait for the turn. Raises StorageError if this thread has it already."""
        self.forbid_own()
        self._lock.acquire()
        self._owner = threading.get_ident()

    def give_back(self) -> None:
        """Let the next thread have its turn."""
        self._owner = None
        self._lock.release()

    def forbid_own(self) -> None:
        """Raise StorageError if this thread has the turn."""
        if self._owner == threading.get_ident():
            raise StorageError("this thread has a transaction open already: end it first")
