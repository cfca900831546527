"""What the oracle is told of the messages that a replica applies, and what it is asked at once.

A supplier's message is noted when it is read, together with what the supplier had seen; when the consumer has
applied it, the oracle hears of it. Whether it was applied is the consumer's word, and what follows from it is
judged: a batch that was applied and must not have been makes a read that no oracle expects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

from crdt.codec import decode_register, open_frame
from crdt.dot import Actor, Millis
from crdt.expiry import life
from crdt.key import EntryKey
from crdt.register import Register, covers
from replica.core.messages import Batch, Change, Kind, Range, SupplierMessage, Welcome
from replica.core.rows import read_register, registers
from replica.core.storage import DamagedRow, Snapshot
from replica.simulator.oracle import Contradiction, Dot, Oracle, Seen
from replica.simulator.view import shown, to_oracle

__all__ = ["Flight", "Witness", "readable", "readable_range"]


@dataclass(frozen=True, slots=True)
class Flight:
    """A supplier's message on its way."""

    message: SupplierMessage
    seen: Seen | None
    """What the supplier had seen when it read the message, where that may be taken over."""


@lru_cache(maxsize=1 << 14)
def _dots(change: Change) -> tuple[Dot, ...]:
    register = decode_register(open_frame(change.key, change.register))
    return tuple(to_oracle(sibling.dot) for sibling in register)


def readable(snapshot: Snapshot, key: bytes) -> Register | None:
    """The register at a key, empty where there is none; None where the row is damaged."""
    try:
        return read_register(snapshot, key)
    except DamagedRow:
        return None


def readable_range(
    snapshot: Snapshot, start: bytes = b"", stop: bytes | None = None
) -> dict[bytes, Register]:
    """The registers of a range of keys, but for damaged ones."""
    found = registers(snapshot, start, stop)
    return {key: register for key, register in found if not isinstance(register, DamagedRow)}


class Witness:
    """Tells the oracle."""

    def __init__(self, oracle: Oracle, keys: Collection[EntryKey]) -> None:
        self._oracle = oracle
        self._names = {key.to_store(): str(key) for key in keys}
        self._keys = {key.to_store(): key for key in keys}
        self._judged = 0

    def note(self, supplier: str, message: SupplierMessage) -> Flight:
        """A message that a supplier has just read from its store."""
        taken = (isinstance(message, Batch) and message.complete) or (
            isinstance(message, Welcome) and message.verdict.kind is Kind.RECONCILE
        )
        return Flight(message, self._oracle.seen(supplier) if taken else None)

    def applied(self, consumer: str, flight: Flight, damaged: Collection[bytes]) -> None:
        """A batch or a range was applied, except where the own row is damaged. Raises Contradiction."""
        message = flight.message
        assert isinstance(message, Batch | Range)
        for change in message.changes:
            if change.key not in damaged:
                self._oracle.delivered(consumer, self._names[change.key], _dots(change))
        if flight.seen is not None:
            self._oracle.caught_up(consumer, flight.seen)

    def reconciled(self, consumer: str, start_seen: Seen | None) -> None:
        """A reconcile is over; ``start_seen``: what the supplier had seen when it began."""
        if start_seen is None:
            raise Contradiction(f"{consumer} finished a reconcile that it never began")
        self._oracle.caught_up(consumer, start_seen)

    def removed(
        self,
        replica: str,
        before: Mapping[bytes, Register],
        after: Mapping[bytes, Register],
        actor: Actor,
        now: Millis,
        latest: Millis,
    ) -> None:
        """A replica may have put tombstones of its own making over what it held. Raises Contradiction."""
        for key, register in after.items():
            held = before.get(key, ())
            for sibling in register:
                if sibling.dot.actor == actor and sibling.tombstone and sibling not in held:
                    covered = [one.dot for one in held if covers(sibling.context, one.dot)]
                    self._oracle.removed_on_behalf(
                        replica,
                        self._names[key],
                        [to_oracle(sibling.dot)],
                        [to_oracle(dot) for dot in covered],
                        now,
                        latest=latest,
                    )

    def repaired(self, replica: str, key: bytes, register: Register) -> None:
        """A damaged row was fetched again from peers."""
        dots = [to_oracle(sibling.dot) for sibling in register]
        self._oracle.delivered(replica, self._names[key], dots)

    def judge(self, replica: str, held: Mapping[bytes, Register], now: Millis) -> None:
        """Compare what a replica shows of registers with what it has to, by what it has seen.

        Siblings and expiry each time, all that a read shows every fourth time. Raises Contradiction.
        """
        for key, register in held.items():
            self._judged += 1
            due = self._oracle.expected_at(replica, self._names[key], now)
            if self._judged % 4:
                agree = _outline(register, now) == (due and (due.siblings, due.expires_at))
            else:
                agree = shown(self._keys[key], register, now) == due
            if not agree:
                given = shown(self._keys[key], register, now)
                raise Contradiction(f"{replica} shows {given} at {self._names[key]}, where {due} is due")


def _outline(register: Register, now: Millis) -> tuple[frozenset[Dot], Millis | None] | None:
    alive = life(register, now)
    if alive is None:
        return None
    values = frozenset(to_oracle(sibling.dot) for sibling in register if not sibling.tombstone)
    return values, alive.expires_at
