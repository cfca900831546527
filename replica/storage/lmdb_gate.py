"""The gate between those who look into the memory map and the one who moves it.

Growing the map invalidates every open transaction of the process, and a look into the old one afterwards
kills it. So whoever has a snapshot or a transaction open is *inside*, and the map is moved only when nobody
is.
"""

from __future__ import annotations

import threading

from replica.core.storage import StorageError

__all__ = ["MapGate"]


class MapGate:
    """Any number of threads are inside, or one is alone.

    A thread that waits to be alone goes before those that want in, but not before one that is inside
    already and wants in again: that one would never get out.
    """

    __slots__ = ("_alone", "_changed", "_inside")

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside: dict[int, int] = {}
        """Thread → how many times it is inside."""
        self._alone = False
        """Whether a thread is alone, or waits to be."""

    @property
    def wanted(self) -> bool:
        """Whether a thread is alone, or waits to be: whoever can wait should leave."""
        return self._alone

    def enter(self) -> int:
        """Go inside, waiting for whoever is or will be alone. Returns what :meth:`leave` wants."""
        thread = threading.get_ident()
        with self._changed:
            while self._alone and thread not in self._inside:
                self._changed.wait()
            self._inside[thread] = self._inside.get(thread, 0) + 1
        return thread

    def leave(self, thread: int) -> None:
        """Go outside again."""
        with self._changed:
            times = self._inside[thread] - 1
            if times:
                self._inside[thread] = times
            else:
                del self._inside[thread]
                if self._alone and not self._inside:
                    self._changed.notify_all()

    def seize(self, patience: float | None) -> bool:
        """Wait at most `patience` seconds (None: for ever) to be alone; True if this thread is.

        Raises StorageError at once if this thread is inside: it would wait for itself.
        """
        thread = threading.get_ident()
        with self._changed:
            if thread in self._inside:
                raise StorageError("this thread has a snapshot or a transaction open: end it first")
            if not self._changed.wait_for(lambda: not self._alone, patience):
                return False
            self._alone = True
            if self._changed.wait_for(lambda: not self._inside, patience):
                return True
            self._alone = False
            self._changed.notify_all()
            return False

    def release(self) -> None:
        """Let everybody in again."""
        with self._changed:
            self._alone = False
            self._changed.notify_all()
