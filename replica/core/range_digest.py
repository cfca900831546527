"""Digests of ranges of keys, so that two stores can find where they differ (DESIGN section 10).

What a digest of an entry covers, :mod:`replica.core.digest` says. The digest of a range is the sum of those,
so neighbours can be put together: a walk over a range of unknown length cuts it into few parts of about as
many entries each, with room for no more. Cuts lie at live keys of the store that made them; another store is
asked for the digests between the same cuts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from crdt.dot import Millis
from crdt.register import Register
from replica.core.digest import DIGEST_BYTES, read_frame
from replica.core.errors import Code, Refused
from replica.core.storage import DamagedRow, Snapshot
from replica.core.walk import Walk

__all__ = [
    "MOST_NAMES",
    "MOST_PARTS",
    "MOST_RANGES",
    "EntryDigest",
    "KeyRange",
    "PartDigest",
    "Partition",
    "digest_ranges",
]

MOST_RANGES = 1000
"""Ranges in one call."""
MOST_PARTS = 4096
"""Parts in the answer to one call."""
MOST_NAMES = 32768
"""Entries that the answer to one call may name."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys with ``start <= key < stop``, in store form."""

    start: bytes
    stop: bytes | None
    """None: to the end."""


@dataclass(frozen=True, slots=True)
class EntryDigest:
    """The digest of one entry."""

    key: bytes
    digest: bytes
    damaged: bool
    """The row cannot be read: the digest agrees with that of no healthy one."""


@dataclass(frozen=True, slots=True)
class PartDigest:
    """The digest of a part of a range, or of a whole one."""

    range: KeyRange
    digest: bytes
    """:data:`replica.core.digest.DIGEST_BYTES` bytes."""
    live: int
    damaged: int
    """Rows that cannot be read. They are covered as such."""
    entries: tuple[EntryDigest, ...] | None
    """Every live entry and damaged row; none: they are more than were to be named."""


@dataclass(slots=True)
class _Part:
    """Some consecutive entries."""

    start: bytes
    total: int = 0
    live: int = 0
    damaged: int = 0
    entries: list[EntryDigest] | None = None

    @property
    def size(self) -> int:
        return self.live + self.damaged

    def absorb(self, other: _Part, most_names: int) -> None:
        """Take in the part that follows."""
        self.total += other.total
        self.live += other.live
        self.damaged += other.damaged
        if self.entries is not None and other.entries is not None and self.size <= most_names:
            self.entries += other.entries
        else:
            self.entries = None


class Partition(Walk):
    """A walk over one range that digests it in parts."""

    def __init__(self, at: Millis, range: KeyRange, parts: int, most_names: int) -> None:
        """At most ``parts`` parts (at least 1); entries of a part are named if they are no more than
        ``most_names``.
        """
        super().__init__(range.start, range.stop)
        self._at = at
        self._range = range
        self._most_parts = parts
        self._most_names = most_names
        self._capacity = 1
        self._parts = [_Part(range.start, entries=[])]

    def visit(self, key: bytes, found: Register | DamagedRow) -> bool:
        frame = read_frame(key, found, self._at)
        if frame is None:
            return True
        digest = hashlib.blake2b(frame, digest_size=DIGEST_BYTES).digest()
        damaged = isinstance(found, DamagedRow)
        if self._parts[-1].size == self._capacity:
            self._make_room()
        if self._parts[-1].size == self._capacity:
            self._parts.append(_Part(key, entries=[]))
        named = [EntryDigest(key, digest, damaged)] if self._most_names else None
        entry = _Part(key, int.from_bytes(digest, "big"), not damaged, damaged, named)
        self._parts[-1].absorb(entry, self._most_names)
        return True

    def _make_room(self) -> None:
        """Put parts together by twos while there are as many as may be."""
        while len(self._parts) == self._most_parts and self._parts[-1].size == self._capacity:
            self._capacity *= 2
            merged = self._parts[::2]
            for part, following in zip(merged, self._parts[1::2], strict=False):
                part.absorb(following, self._most_names)
            self._parts = merged

    def digests(self) -> tuple[PartDigest, ...]:
        """The parts, which together are the range, when the walk has ended."""
        stops = [*(part.start for part in self._parts[1:]), self._range.stop]
        return tuple(
            PartDigest(
                KeyRange(part.start, stop),
                (part.total % (1 << 8 * DIGEST_BYTES)).to_bytes(DIGEST_BYTES, "big"),
                part.live,
                part.damaged,
                tuple(part.entries) if part.entries is not None and self._most_names else None,
            )
            for part, stop in zip(self._parts, stops, strict=True)
        )


def digest_ranges(
    snapshot: Snapshot, at: Millis, ranges: Sequence[KeyRange], parts: int = 1, most_names: int = 0
) -> tuple[PartDigest, ...]:
    """The digests of ranges, each in up to so many parts, all of one snapshot.

    Raises Refused for ranges that overlap or are out of order, and for more than an answer may hold.
    """
    if len(ranges) > MOST_RANGES:
        raise _invalid("ranges", f"are {len(ranges)}; at most {MOST_RANGES} are allowed in one call")
    if not 0 < parts * max(1, len(ranges)) <= MOST_PARTS:
        raise _invalid("parts", f"must make at most {MOST_PARTS} parts of all ranges together")
    if not 0 <= most_names * parts * len(ranges) <= MOST_NAMES:
        raise _invalid("name_up_to", f"must name at most {MOST_NAMES} entries in all parts together")
    beyond: bytes | None = b""
    for at_range, each in enumerate(ranges):
        if beyond is None or each.start < beyond or (each.stop is not None and each.stop < each.start):
            raise _invalid(f"ranges[{at_range}]", "must begin where the one before it ends, or later")
        beyond = each.stop
    found: list[PartDigest] = []
    for each in ranges:
        partition = Partition(at, each, parts, most_names)
        partition.run(snapshot)
        found += partition.digests()
    return tuple(found)


def _invalid(field: str, reason: str) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, reason, field=field)
