"""Ids that sort by the time they were made: UUID version 7 (RFC 9562, section 5.7).

Python 3.11 has none. The time and the chance are arguments, so an id is a function of them.
"""

from __future__ import annotations

from uuid import UUID

from crdt.dot import Millis

__all__ = ["RANDOM_BYTES", "uuid7"]

RANDOM_BYTES = 10
"""How much chance an id takes: 80 bits, of which it holds 74."""

_TIME_BITS = 48
_VERSION = 7
_VARIANT = 0b10


def uuid7(now: Millis, random: bytes) -> UUID:
    """The id of this millisecond and these random bytes.

    Ids of different milliseconds sort by them, as UUIDs, as bytes and as text; ids of one sort by chance.

    Raises ValueError when ``now`` lies before 1970 or after 10889, or when ``random`` is not
    :data:`RANDOM_BYTES` long.
    """
    if not 0 <= now < 1 << _TIME_BITS:
        raise ValueError("now must be milliseconds since the Unix epoch that fit into 48 bits")
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"random must be {RANDOM_BYTES} bytes")
    chance = int.from_bytes(random)
    high, low = chance >> 62 & 0xFFF, chance & (1 << 62) - 1
    return UUID(int=now << 80 | _VERSION << 76 | high << 64 | _VARIANT << 62 | low)
