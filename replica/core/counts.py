"""Counts of what is stored, for an operator (DESIGN section 10, ``GetStatus``)."""

from __future__ import annotations

from dataclasses import dataclass

from crdt.dot import Millis
from crdt.expiry import life
from crdt.fold import read_record
from crdt.register import Register
from replica.core.storage import DamagedRow, Snapshot
from replica.core.walk import Walk

__all__ = ["Counting", "Counts", "get_counts"]


@dataclass(slots=True)
class Counts:
    """Every register is counted once, as live, expired, tombstones or damaged."""

    registers: int = 0
    """Keys in the store, whatever is there."""
    live: int = 0
    """Entries that a scan of everything would return."""
    expired: int = 0
    """Entries past their expiry and not yet purged."""
    tombstones: int = 0
    """Keys of which only tombstones are left."""
    damaged: int = 0
    """Rows whose checksum does not fit."""
    siblings: int = 0
    """Writes, of all registers, that no other supersedes."""
    concurrent: int = 0
    """Live entries with more than one sibling."""
    undecodable: int | None = None
    """Siblings whose payload does not decode here; none when they were not counted."""


class Counting(Walk):
    """A count under way. Payloads are decoded only to count those that do not decode, if asked."""

    def __init__(self, now: Millis, *, undecodable: bool = False) -> None:
        super().__init__()
        self._now = now
        self.counts = Counts(undecodable=0 if undecodable else None)
        """What was counted so far."""

    def visit(self, key: bytes, found: Register | DamagedRow) -> bool:
        counts = self.counts
        counts.registers += 1
        if isinstance(found, DamagedRow):
            counts.damaged += 1
            return True
        counts.siblings += len(found)
        if life(found, self._now) is not None:
            counts.live += 1
            counts.concurrent += len(found) > 1
        elif all(sibling.tombstone for sibling in found):
            counts.tombstones += 1
        else:
            counts.expired += 1
        if counts.undecodable is not None:
            counts.undecodable += sum(read_record(sibling) is None for sibling in found)
        return True


def get_counts(snapshot: Snapshot, now: Millis, *, undecodable: bool = False) -> Counts:
    """The counts of one snapshot."""
    counting = Counting(now, undecodable=undecodable)
    counting.run(snapshot)
    return counting.counts
