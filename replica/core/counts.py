"""Counts of what is stored, for an operator (DESIGN section 10, ``GetStatus``).

Two ways to the same numbers. The indexes give them in a time that grows only with what is past its expiry and
with what has concurrent siblings. A walk reads every row: it takes about half a minute for a million of
them, and finds the damaged ones that nobody has come upon yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from crdt.dot import Millis
from crdt.expiry import life
from crdt.fold import read_record
from crdt.register import Register
from replica.core.damage import damaged_keys
from replica.core.rows import concurrent_siblings, expiries
from replica.core.storage import DamagedRow, Snapshot, Table
from replica.core.walk import Walk

__all__ = ["Counting", "Counts", "get_counts"]


@dataclass(slots=True)
class Counts:
    """Every register is counted once: as live, as expired, as tombstones or, by a walk, as damaged."""

    registers: int = 0
    """Keys in the store, whatever is there."""
    live: int = 0
    """Entries that a scan of everything would return."""
    expired: int = 0
    """Entries past their expiry and not yet purged."""
    tombstones: int = 0
    """Keys of which only tombstones are left."""
    damaged: int = 0
    """Rows whose checksum does not fit; without a walk those that were come upon, which also count as what
    they were.
    """
    siblings: int | None = 0
    """Writes, of all registers, that no other supersedes; none when the index of them is damaged."""
    concurrent: int = 0
    """Keys with more than one sibling."""
    undecodable: int | None = None
    """Siblings whose payload does not decode here; none when they were not counted."""


def get_counts(snapshot: Snapshot, now: Millis) -> Counts:
    """The counts by the indexes."""
    registers, tombstones = snapshot.count(Table.REGISTERS), snapshot.count(Table.TOMBSTONES)
    expired = sum(1 for _ in expiries(snapshot, until=now))
    concurrent = snapshot.count(Table.CONCURRENT)
    siblings: int | None
    try:
        siblings = registers - concurrent + concurrent_siblings(snapshot)
    except DamagedRow:
        siblings = None
    return Counts(
        registers=registers,
        live=registers - tombstones - expired,
        expired=expired,
        tombstones=tombstones,
        damaged=len(damaged_keys(snapshot)),
        siblings=siblings,
        concurrent=concurrent,
    )


class Counting(Walk):
    """A count under way that reads every row."""

    def __init__(self, now: Millis) -> None:
        super().__init__()
        self._now = now
        self.counts = Counts(undecodable=0)
        """What was counted so far."""
        self.damaged: list[bytes] = []
        """Keys of the damaged rows that were found so far."""
        self._siblings = 0
        self._undecodable = 0

    def visit(self, key: bytes, found: Register | DamagedRow) -> bool:
        counts = self.counts
        counts.registers += 1
        if isinstance(found, DamagedRow):
            counts.damaged += 1
            self.damaged.append(key)
            return True
        self._siblings += len(found)
        counts.siblings = self._siblings
        counts.concurrent += len(found) > 1
        if life(found, self._now) is not None:
            counts.live += 1
        elif all(sibling.tombstone for sibling in found):
            counts.tombstones += 1
        else:
            counts.expired += 1
        self._undecodable += sum(read_record(sibling) is None for sibling in found)
        counts.undecodable = self._undecodable
        return True
