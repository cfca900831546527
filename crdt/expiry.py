"""Expiry: the absolute time of each sibling, and what follows for the entry (DESIGN section 4).

The entry's expiry is the join over its value siblings: the later wins, and durable is the bottom. One
refinement, a function of the siblings alone: an ephemeral sibling that had already expired when another value
was written contributes neither value nor expiry. Its writer, had it seen the sibling, would have found the
entry absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crdt.dot import Millis
from crdt.register import Register, Sibling

__all__ = ["Life", "contributing", "expiry_in_force", "life", "remaining_seconds", "with_ttl"]


def contributing(register: Register) -> Register:
    """The value siblings that give the entry its value and its expiry."""
    values = tuple(sibling for sibling in register if not sibling.tombstone)
    if len(values) < 2:
        return values
    return tuple(
        sibling
        for sibling in values
        if sibling.expires_at is None
        or not any(sibling.expires_at <= other.written_at for other in values if other is not sibling)
    )


def expiry_in_force(values: Iterable[Sibling]) -> Millis | None:
    """The join of the expiries: the latest, or none when every value is durable."""
    return max((sibling.expires_at for sibling in values if sibling.expires_at is not None), default=None)


@dataclass(frozen=True, slots=True)
class Life:
    """The contributing values of an entry that is live, and its expiry."""

    values: Register
    expires_at: Millis | None


def life(register: Register, now: Millis) -> Life | None:
    """What of the register lives at ``now``; none when the entry is absent. An entry is absent *at* its
    expiry.
    """
    values = contributing(register)
    if not values:
        return None
    expires_at = expiry_in_force(values)
    if expires_at is not None and expires_at <= now:
        return None
    return Life(values, expires_at)


def with_ttl(in_force: Millis | None, now: Millis, ttl: Millis) -> Millis:
    """The expiry after a write with a TTL over a live entry: it gives a durable entry one, and never shortens
    one.
    """
    return Millis(max(in_force or 0, now + ttl))


def remaining_seconds(expires_at: Millis, now: Millis) -> int:
    """The seconds left, rounded up, so never 0 while live."""
    return max(0, -((now - expires_at) // 1000))
