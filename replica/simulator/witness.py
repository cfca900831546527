"""What the oracle is told of the messages that a replica applies, and what it is asked at once.

A supplier's message is noted when it is read, together with what the supplier had seen; when the consumer has
applied it, the oracle hears of it. Whether it was applied is the consumer's word, and what follows from it is
judged: a batch that was applied and must not have been makes a read that no oracle expects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from crdt.codec import decode_register, open_frame
from crdt.dot import Actor, Millis
from crdt.key import EntryKey
from crdt.register import Register, covers
from replica.core.messages import Batch, Change, Kind, Range, SupplierMessage, Welcome
from replica.core.rows import read_register
from replica.core.storage import DamagedRow, Snapshot
from replica.simulator.oracle import Contradiction, Dot, Oracle, Seen
from replica.simulator.view import shown, to_oracle

__all__ = ["Flight", "Witness"]


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


def registers_at(snapshot: Snapshot, keys: Iterable[bytes]) -> dict[bytes, Register]:
    """The registers at keys in store form; what is damaged or absent is empty."""
    found = {}
    for key in keys:
        try:
            found[key] = read_register(snapshot, key)
        except DamagedRow:
            found[key] = ()
    return found


class Witness:
    """Tells the oracle."""

    def __init__(self, oracle: Oracle, keys: Collection[EntryKey], *, forgiving: bool) -> None:
        self._oracle = oracle
        self._names = {key.to_store(): str(key) for key in keys}
        self._keys = {key.to_store(): key for key in keys}
        self._forgiving = forgiving

    def note(self, supplier: str, message: SupplierMessage) -> Flight:
        """A message that a supplier has just read from its store."""
        taken = (isinstance(message, Batch) and message.complete) or (
            isinstance(message, Welcome) and message.verdict.kind is Kind.RECONCILE
        )
        return Flight(message, self._oracle.seen(supplier) if taken else None)

    def applied(
        self,
        consumer: str,
        flight: Flight,
        start_seen: Seen | None,
        before: Mapping[bytes, Register],
        after: Mapping[bytes, Register],
        actor: Actor,
        now: Millis,
        latest: Millis,
        *,
        done: bool,
        damaged: Iterable[bytes],
    ) -> None:
        """A batch or a range was applied.

        ``before`` and ``after``: the registers that the message may have changed. ``start_seen``: what the
        supplier had seen when the reconcile began that is now ``done``. Raises Contradiction.
        """
        message = flight.message
        assert isinstance(message, Batch | Range)
        left_out = {*damaged}
        for change in message.changes:
            if change.key not in left_out:
                self._oracle.delivered(consumer, self._names[change.key], _dots(change))
        for key, register in after.items():
            self._removals(consumer, key, before[key], register, actor, now, latest)
        if isinstance(message, Batch):
            if flight.seen is not None:
                self._oracle.caught_up(consumer, flight.seen)
        elif done:
            if start_seen is None:
                raise Contradiction(f"{consumer} finished a reconcile that it never began")
            self._oracle.caught_up(consumer, start_seen)

    def repaired(self, replica: str, key: bytes, register: Register) -> None:
        """A damaged row was fetched again from peers."""
        dots = [to_oracle(sibling.dot) for sibling in register]
        self._oracle.delivered(replica, self._names[key], dots)

    def _removals(
        self,
        replica: str,
        key: bytes,
        before: Register,
        after: Register,
        actor: Actor,
        now: Millis,
        latest: Millis,
    ) -> None:
        """What a replica removed by a tombstone of its own making."""
        own = [sibling for sibling in after if sibling.dot.actor == actor and sibling not in before]
        for sibling in own:
            covered = [one.dot for one in before if covers(sibling.context, one.dot)]
            if sibling.tombstone and covered:
                self._oracle.removed_on_behalf(
                    replica,
                    self._names[key],
                    [to_oracle(sibling.dot)],
                    [to_oracle(dot) for dot in covered],
                    now,
                    latest=latest,
                )

    def judge(self, replica: str, snapshot: Snapshot, keys: Iterable[bytes], now: Millis) -> None:
        """Compare what a replica shows with what it has to, by what it has seen. Raises Contradiction."""
        if self._forgiving:
            return
        for key in keys:
            try:
                register = read_register(snapshot, key)
            except DamagedRow:
                continue
            due = self._oracle.expected_at(replica, self._names[key], now)
            given = shown(self._keys[key], register, now)
            if given != due:
                raise Contradiction(f"{replica} shows {given} at {self._names[key]}, where {due} is due")
