"""Joining a supplier's registers into the store (DESIGN sections 4 and 7).

The one place where what came from elsewhere changes registers. Everything is checked and decoded before; from
the first call on there are only changes, within one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crdt.clock import Clock
from crdt.codec import Damaged, Undecodable, decode_register, open_frame
from crdt.dot import Actor, Dot, Millis
from crdt.expiry import life
from crdt.key import EntryKey, InvalidKey
from crdt.register import Register, join
from crdt.write import bury
from replica.core.damage import note_damage
from replica.core.messages import Change, ProtocolError
from replica.core.rows import StoreId, put_clock, put_register, read_register
from replica.core.storage import DamagedRow, Transaction
from replica.core.vanishing import drop_register

__all__ = ["Decoded", "Fault", "Joining", "decode_changes"]

_INCARNATION_BYTES = 16


@dataclass(frozen=True, slots=True)
class Fault:
    """The same dot with different contents: some replica is broken, or two are one. Report it as an error."""

    key: bytes
    dot: Dot


@dataclass(frozen=True, slots=True)
class Decoded:
    """A change that passed every check."""

    key: bytes
    register: Register


def decode_changes(changes: Iterable[Change], clock: Clock) -> tuple[Decoded, ...]:
    """The registers of a message, checked; ``clock`` is its supplier's. Raises ProtocolError."""
    return tuple(_decode(change, clock) for change in changes)


def _decode(change: Change, clock: Clock) -> Decoded:
    try:
        key = EntryKey.from_store(change.key)
        register = decode_register(open_frame(change.key, change.register))
    except InvalidKey as error:
        raise ProtocolError(f"a change has a key that is none: {error}") from None
    except (Damaged, Undecodable) as error:
        raise ProtocolError(f"the register of a change does not open: {error}") from None
    if not register:
        raise ProtocolError(f"the register at {key} is sent without siblings")
    for sibling in register:
        for dot in (sibling.dot, *(Dot(*replaced) for replaced in sibling.context.items())):
            if len(dot.actor.incarnation) != _INCARNATION_BYTES or not clock.has(dot):
                raise ProtocolError(f"the register at {key} holds a write that its supplier has not seen")
    return Decoded(change.key, register)


class Joining:
    """Joins under way in one transaction, under one clock of the supplier."""

    def __init__(
        self,
        transaction: Transaction,
        own: Clock,
        theirs: Clock,
        store_id: StoreId,
        actor: Actor,
        now: Millis,
    ) -> None:
        self._transaction = transaction
        self._before = own
        self._theirs = theirs
        self._store_id = store_id
        self._actor = actor
        self._now = now
        self.clock = own
        """The own clock, as it grows."""
        self.changed: list[bytes] = []
        """The keys whose registers changed."""
        self.faults: list[Fault] = []
        self.damaged: list[bytes] = []
        """Keys whose own row is damaged: nothing was joined there. They are noted."""
        self.purged_there = False
        """Something was removed on the word of the supplier's clock alone (section 4, step 6)."""

    def _local(self, key: bytes) -> Register | None:
        try:
            return read_register(self._transaction, key)
        except DamagedRow:
            self.damaged.append(key)
            note_damage(self._transaction, (key,))
            return None

    def take(self, key: bytes, remote: Register) -> None:
        """Join a register that the supplier has."""
        local = self._local(key)
        if local is None:
            return
        joined = join(local, remote, self.clock, self._theirs)
        self.faults += (Fault(key, dot) for dot in joined.faults)
        self.purged_there = self.purged_there or joined.purged_there
        self.clock = self.clock.with_dots(joined.seen)
        if joined.register != local:
            self._put(key, joined.register, came=joined.register == remote)

    def miss(self, key: bytes) -> None:
        """Settle a key that the supplier does not have, although it looked (section 7).

        What its clock has not seen is news and stays. What it has seen was purged there: if any of that is
        live here, a tombstone with a dot of our own covers exactly that, so that the removal travels on; else
        it is dropped.
        """
        local = self._local(key)
        if local is None:
            return
        gone = tuple(sibling for sibling in local if self._theirs.has(sibling.dot))
        if not gone:
            return
        alive = life(local, self._now)
        if alive is not None and any(sibling in alive.values for sibling in gone):
            dot = Dot(self._actor, self.clock.top(self._actor) + 1)
            self.clock = self.clock.with_dots((dot,))
            self._put(key, bury(local, dot, self._now, covering=gone), came=False)
        else:
            self._put(key, tuple(sibling for sibling in local if sibling not in gone), came=False)

    def _put(self, key: bytes, register: Register, *, came: bool) -> None:
        self.changed.append(key)
        if register:
            put_register(self._transaction, key, register, origin=self._store_id if came else None)
        else:
            drop_register(self._transaction, key)

    def store_clock(self, *, seen: Clock | None = None) -> None:
        """Store the own clock, joined with what has now been seen entirely."""
        if seen is not None:
            self.clock = self.clock.join(seen)
        put_clock(self._transaction, self._before, self.clock)
