"""Walks over the registers, in steps that a busy loop can take one at a time (DESIGN section 10).

A walk visits keys in order and remembers only where it stands, so each step may have a snapshot of its own:
a key that is there throughout is visited exactly once, whatever is written meanwhile. Taken in one snapshot,
a walk sees one state of the store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from crdt.register import Register
from replica.core.rows import registers
from replica.core.storage import DamagedRow, Snapshot

__all__ = ["STEP_ROWS", "Walk"]

STEP_ROWS = 500
"""How many rows a step visits, unless it is told otherwise: some milliseconds' worth."""


class Walk(ABC):
    """A walk over the registers with ``start <= key < stop`` (in store form)."""

    def __init__(self, start: bytes = b"", stop: bytes | None = None) -> None:
        self._position = start
        self._stop = stop

    @abstractmethod
    def visit(self, key: bytes, found: Register | DamagedRow) -> bool:
        """Take in a register; false: it is one too many, and the walk ends before it."""

    def step(self, snapshot: Snapshot, rows: int = STEP_ROWS) -> bool:
        """Visit up to so many rows. True when there are more, and another step is due."""
        left = rows
        for key, found in registers(snapshot, self._position, self._stop):
            if left == 0:
                return True
            if not self.visit(key, found):
                return False
            self._position = key + b"\0"
            left -= 1
        return False

    def run(self, snapshot: Snapshot) -> None:
        """Walk to the end in one snapshot."""
        while self.step(snapshot):
            pass
