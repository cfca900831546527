"""Purging by causal stability, and why nothing rises from the dead (DESIGN section 6).

A register of nothing but tombstones, or past its expiry, is dropped once every active member is known to have
seen every dot in it and this replica's own clock covers it without a gap. Whoever was not waited for must
reconcile. While somebody is not waited for, an expired entry is not dropped but superseded by a tombstone: an
absence without a dot could not be told from news.

The walk goes over the indexes of what can go, a few registers in each transaction, and says what had to stay
and for whom.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.dot import Actor, Dot, Millis
from crdt.register import Register
from crdt.write import bury
from replica.core.identity import Identity, read_identity
from replica.core.member_rows import Member, members, next_mark
from replica.core.membership import is_lapsed, keep_alive, knows, promote
from replica.core.must_reconcile import put_on_list
from replica.core.rows import (
    Due,
    expiries,
    get_clock,
    put_clock,
    put_register,
    read_register,
    tombstones,
)
from replica.core.storage import DamagedRow, Snapshot, Table, Transaction
from replica.core.underway import PATIENCE, busy_with, give_up_stalled
from replica.core.vanishing import drop_register

__all__ = ["Hold", "Place", "Purged", "oldest_expired", "oldest_tombstone", "purge", "waiting"]


class Hold(enum.Enum):
    """Why a register that is dead had to stay, for some member or for this replica itself."""

    NEVER_HEARD = "it was never heard"
    UNSEEN = "it is not known to have seen this yet"
    UNREPORTED = "it has not told its clock since this replica started"
    SLOW_CLOCK = "by its clock the entry is not long enough past its expiry"
    DURABLE = "it is silent or retired, and a durable write concurrent with the expired one is kept for it"
    GAP = "writes are missing here that may still arrive"
    BUSY = "a reconcile or a first filling is under way here"
    DAMAGED = "the row is damaged"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a walk stands."""

    expired: bool
    """It is done with the tombstones."""
    after: Due | None


@dataclass(frozen=True, slots=True)
class Purged:
    """What a step, or several, did."""

    tombstones: int = 0
    """Registers of nothing but tombstones that were dropped."""
    expired: int = 0
    """Expired registers that were dropped."""
    superseded: int = 0
    """Expired registers that a tombstone of our own has replaced."""
    closed: tuple[Actor, ...] = ()
    """Lost incarnations whose gaps were closed."""
    listed: tuple[str, ...] = ()
    """Members that were not waited for, and must reconcile now."""
    waiting: int = 0
    """Registers that had to stay."""
    held: Mapping[tuple[str, Hold], int] = field(default_factory=dict)
    """Why, by member (or this replica's own cluster) and reason: how many of them wait for it, maybe among
    others.
    """
    position: Place | None = None
    """Where the next step goes on; none: the walk is done."""

    def plus(self, other: Purged) -> Purged:
        """Both together; the walk stands where the other left it."""
        held = dict(self.held)
        for reason, count in other.held.items():
            held[reason] = held.get(reason, 0) + count
        return Purged(
            self.tombstones + other.tombstones,
            self.expired + other.expired,
            self.superseded + other.superseded,
            tuple(dict.fromkeys((*self.closed, *other.closed))),
            tuple(dict.fromkeys((*self.listed, *other.listed))),
            self.waiting + other.waiting,
            held,
            other.position,
        )


def oldest_tombstone(snapshot: Snapshot) -> Millis | None:
    """When the oldest removal was made whose tombstone is still here; none: there is no tombstone."""
    return next((due.at for due in tombstones(snapshot)), None)


def oldest_expired(snapshot: Snapshot, now: Millis) -> Millis | None:
    """The oldest expiry of the entries that are past theirs and still here; none: there is no such entry."""
    return next((due.at for due in expiries(snapshot, until=now)), None)


def waiting(snapshot: Snapshot, now: Millis, grace: Millis) -> int:
    """How many registers are dead: tombstones, and entries past their expiry by the grace."""
    expired = sum(1 for _ in expiries(snapshot, until=Millis(now - grace)))
    return snapshot.count(Table.TOMBSTONES) + expired


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The members as this step sees them."""

    active: tuple[Member, ...]
    lapsed: tuple[str, ...]
    slowest: Millis
    slow: tuple[tuple[str, Millis | None], ...]
    """Active members with their plausible clocks; none: not told since the start."""


def _fleet(snapshot: Snapshot, now: Millis, max_silence: Millis) -> _Fleet:
    rows = list(members(snapshot))
    active = tuple(row for row in rows if not is_lapsed(row, now, max_silence))
    slow = tuple(
        (row.cluster, Millis(now + row.skew) if row.reported and row.skew is not None else None)
        for row in active
    )
    told = [at for _, at in slow if at is not None]
    return _Fleet(
        active,
        tuple(row.cluster for row in rows if is_lapsed(row, now, max_silence)),
        min([now, *told]) if len(told) == len(slow) else Millis(-(2**62)),
        slow,
    )


def purge(
    transaction: Transaction,
    now: Millis,
    max_silence: Millis,
    grace: Millis,
    position: Place | None,
    budget: int,
    patience: Millis = PATIENCE,
) -> Purged:
    """One step: look at up to so many registers from a place on (none: from the start).

    Call it, each time in a transaction of its own, until the position that comes back is none. A reconcile
    that has made no progress for ``patience`` is given up first: nobody else may be waiting for it. A filling
    is not: until this replica has read a log to its end, it does not know whom to wait for.
    """
    identity = read_identity(transaction)
    assert identity is not None
    closed: tuple[Actor, ...] = ()
    if position is None:
        keep_alive(transaction, now, max_silence)
        give_up_stalled(transaction, now, patience, fillings=False)
        promote(transaction, get_clock(transaction))
        if busy_with(transaction) is None:
            closed = _close_gaps(transaction, identity, now, max_silence)
        position = Place(False, None)
    if busy_with(transaction) is not None:
        waiting = transaction.count(Table.TOMBSTONES)
        return Purged(closed=closed, waiting=waiting, held={(identity.cluster, Hold.BUSY): waiting})
    step = _Step(transaction, identity, _fleet(transaction, now, max_silence), now, grace)
    index = (
        expiries(transaction, position.after, Millis(now - grace))
        if position.expired
        else tombstones(transaction, position.after)
    )
    found = list(islice(index, budget))
    for due in found:
        step.look(due, expired=position.expired)
    if len(found) == budget:
        place: Place | None = Place(position.expired, found[-1])
    else:
        place = None if position.expired else Place(True, None)
    return step.finish(closed, place)


class _Step:
    """The registers of one transaction."""

    def __init__(
        self, transaction: Transaction, identity: Identity, fleet: _Fleet, now: Millis, grace: Millis
    ) -> None:
        self._transaction = transaction
        self._identity = identity
        self._fleet = fleet
        self._now = now
        self._grace = grace
        self._before = self._clock = get_clock(transaction)
        self._tombstones = self._expired = self._superseded = self._waiting = 0
        self._held: dict[tuple[str, Hold], int] = {}

    def look(self, due: Due, *, expired: bool) -> None:
        """Drop a register, supersede it, or note why it stays."""
        try:
            register = read_register(self._transaction, due.key)
        except DamagedRow:
            self._stays({(self._identity.cluster, Hold.DAMAGED)})
            return
        if expired:
            late = self._early(Millis(due.at + self._grace))
            if late:
                self._stays(late)
                return
            if self._fleet.lapsed:
                self._supersede(due.key, register)
                return
        holds = self._unstable(register)
        if holds:
            self._stays(holds)
            return
        drop_register(self._transaction, due.key)
        self._expired += expired
        self._tombstones += not expired

    def _stays(self, holds: Iterable[tuple[str, Hold]]) -> None:
        self._waiting += 1
        for hold in holds:
            self._held[hold] = self._held.get(hold, 0) + 1

    def _early(self, at: Millis) -> set[tuple[str, Hold]]:
        """The members by whose clocks it is not yet so late."""
        if self._fleet.slowest >= at:
            return set()
        return {
            (cluster, Hold.UNREPORTED if clock is None else Hold.SLOW_CLOCK)
            for cluster, clock in self._fleet.slow
            if clock is None or clock < at
        }

    def _supersede(self, key: bytes, register: Register) -> None:
        """Put a tombstone with a dot over an expired register, if each of its values is past its expiry."""
        by = Millis(self._fleet.slowest - self._grace)
        values = [sibling for sibling in register if not sibling.tombstone]
        if any(sibling.expires_at is None or sibling.expires_at > by for sibling in values):
            self._stays((cluster, Hold.DURABLE) for cluster in self._fleet.lapsed)
            return
        actor = self._identity.actor
        dot = Dot(actor, self._clock.top(actor) + 1)
        self._clock = self._clock.with_dots((dot,))
        put_register(self._transaction, key, bury(register, dot, self._now), origin=None)
        self._superseded += 1

    def _unstable(self, register: Register) -> set[tuple[str, Hold]]:
        """Who may not have seen all of a register."""
        holds: set[tuple[str, Hold]] = set()
        for sibling in register:
            contexts = {**sibling.context}
            contexts[sibling.dot.actor] = max(contexts.get(sibling.dot.actor, 0), sibling.dot.counter)
            if not self._clock.covers_without_gap(contexts):
                holds.add((self._identity.cluster, Hold.GAP))
        for member in self._fleet.active:
            if member.known is None:
                holds.add((member.cluster, Hold.NEVER_HEARD))
                continue
            seen = EMPTY_CLOCK if member.stable is None else member.stable.clock
            if not all(seen.has(sibling.dot) for sibling in register):
                holds.add((member.cluster, Hold.UNSEEN))
        return holds

    def finish(self, closed: tuple[Actor, ...], place: Place | None) -> Purged:
        """What was done; whoever was not waited for goes on the list."""
        put_clock(self._transaction, self._before, self._clock)
        listed: tuple[str, ...] = ()
        if self._tombstones or self._expired:
            listed = self._fleet.lapsed
            if listed:
                put_on_list(self._transaction, listed)
            else:
                next_mark(self._transaction)
        return Purged(
            self._tombstones,
            self._expired,
            self._superseded,
            closed,
            listed,
            self._waiting,
            self._held,
            place,
        )


def _close_gaps(
    transaction: Transaction, identity: Identity, now: Millis, max_silence: Millis
) -> tuple[Actor, ...]:
    """Close the gaps that writes lost with a wiped replica have left in the own clock.

    Only when everybody is active and has stated its clock knowing that the incarnation is over, all those
    clocks are dominated here, and nobody has what is missing. A retired member counts as lapsed, so it keeps
    gaps open: it might come back with the missing write.
    """
    own = get_clock(transaction)
    gapped = [actor for actor in own.actors() if own.gaps(actor)]
    if not gapped:
        return ()
    fleet = _fleet(transaction, now, max_silence)
    if fleet.lapsed or any(member.stable is None for member in fleet.active):
        return ()
    newest = knows(transaction, identity)
    closed: list[Actor] = []
    after = own
    for actor in gapped:
        if newest.get(actor.cluster, actor.incarnation) <= actor.incarnation:
            continue
        missing = Clock({actor: own.gaps(actor)})
        if all(_lost(member, actor, missing) for member in fleet.active):
            after = after.join(missing)
            closed.append(actor)
    put_clock(transaction, own, after)
    return tuple(closed)


def _lost(member: Member, actor: Actor, missing: Clock) -> bool:
    """Whether a member has stated, knowing that the incarnation is over, that it has nothing of it."""
    stable, known = member.stable, member.known
    if stable is None or known is None:
        return False
    if stable.knows.get(actor.cluster, actor.incarnation) <= actor.incarnation:
        return False
    return not any(_overlap(one.clock, missing, actor) for one in (stable, known))


def _overlap(clock: Clock, missing: Clock, actor: Actor) -> bool:
    theirs, runs = clock.runs.get(actor, ()), missing.runs[actor]
    return any(
        low <= hi and lo <= high
        for low, high in zip(theirs[::2], theirs[1::2], strict=True)
        for lo, hi in zip(runs[::2], runs[1::2], strict=True)
    )
