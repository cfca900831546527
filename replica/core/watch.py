"""Watching: what changes, as a stream that can be taken up where it broke off (DESIGN section 10).

Sans-I/O, and without state between calls: a watch is a :class:`Position`, and :func:`advance` reads on from
it. Nothing is queued for a watcher. It reads the change log at its own pace, and as the log has at most one
row for each key, a watcher that is slow or was away is shown what stands at a key now, not what stood there
in between.

What holds at every position, by whatever steps it was reached and whatever was written, expired, or was
purged meanwhile: what the events up to there tell is, for each key before ``walked``, the state of its
register as of ``sequence``, judged at the moment of ``lapses``; unless the key has changed since, and then
that change is still ahead. So events may be folded into a copy: put replaces, forgotten and lapsed remove.

The clock of a replica may be set back. What had lapsed and lives again by it is then put again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgpack

from crdt.dot import Millis
from crdt.expiry import contributing, expiry_in_force
from crdt.key import EntryKey
from crdt.register import Register
from replica.core.entry import Entry, read_entry, size_bound
from replica.core.errors import Code, Refused
from replica.core.identity import read_identity
from replica.core.limits import DEFAULT_LIMITS, Limits
from replica.core.paging import make_token, read_token
from replica.core.rows import (
    Due,
    StoreId,
    changes_after,
    expiries_between,
    get_sequence,
    read_register,
    read_sequence,
    registers,
)
from replica.core.scope import scope_bounds
from replica.core.storage import MAX_KEY_BYTES, DamagedRow, Snapshot
from replica.core.vanishing import NEVER, get_vanished
from replica.core.walk import STEP_ROWS

__all__ = [
    "Advance",
    "Event",
    "Forgotten",
    "Happened",
    "Lapsed",
    "Position",
    "Put",
    "advance",
    "begin",
    "position_token",
    "read_position",
]

_FIELD = "resume_token"
_GONE_BYTES = 1024
"""More than an event without an entry takes on the wire."""
_TOKEN_BYTES = 2 * MAX_KEY_BYTES
"""More than the token of an event takes on the wire."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a watch has come in one store."""

    store_id: StoreId
    sequence: int
    """The changes up to here have been told."""
    lapses: Due
    """The lapses before this place of the expiry index have been told."""
    vanished: int
    """How many registers with a value had vanished when it was here."""
    walked: bytes | None
    """Of the state at the beginning, the keys before this one have been told; none: all that is wanted."""


@dataclass(frozen=True, slots=True)
class Put:
    """An entry is there, new or changed."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Forgotten:
    """An entry was removed by a forget."""

    key: EntryKey


@dataclass(frozen=True, slots=True)
class Lapsed:
    """An entry has reached its expiry."""

    key: EntryKey
    expires_at: Millis


Happened = Put | Forgotten | Lapsed


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, and where a watch stands that has told it."""

    happened: Happened
    position: Position


@dataclass(frozen=True, slots=True)
class Advance:
    """One step of a watch."""

    events: tuple[Event, ...]
    position: Position
    """After the step: beyond the last event, if what followed did not matter."""
    caught_up: bool
    """Everything up to ``now`` has been told; if not, another step is due at once."""
    deadline: Millis | None
    """When the next lapse is due, of whatever scope; none: none, or not caught up."""
    damaged: tuple[EntryKey, ...]
    """Keys whose row is damaged and was left out: to be reported. What comes in its place is a change."""


def begin(snapshot: Snapshot, scope: bytes, now: Millis, *, initial_state: bool) -> Position:
    """Where a new watch stands: it is told what happens from now on; with the initial state, first what is
    live.
    """
    return Position(
        store_id=_store_id(snapshot),
        sequence=get_sequence(snapshot),
        lapses=_after(now),
        vanished=get_vanished(snapshot).count,
        walked=scope if initial_state else None,
    )


def advance(
    snapshot: Snapshot,
    scope: bytes,
    position: Position,
    now: Millis,
    limits: Limits = DEFAULT_LIMITS,
    rows: int = STEP_ROWS,
) -> Advance:
    """Read on from a position: so many rows at most, and no more events than an answer may hold.

    Raises Refused (OUT_OF_RANGE) where what happened since is not known any more.
    """
    step = _Step(snapshot, scope, _checked(snapshot, position), now, limits, rows)
    caught_up = step.lapse() and step.change() and step.walk()
    due = next(expiries_between(snapshot, step.position.lapses, None), None) if caught_up else None
    return Advance(
        tuple(step.events),
        step.position,
        caught_up,
        None if due is None else due.at,
        tuple(step.damaged),
    )


def position_token(scope: bytes, position: Position) -> str:
    """The token that takes up a watch of this scope at a position."""
    body = msgpack.packb(
        (
            position.store_id,
            position.sequence,
            position.lapses.at,
            position.lapses.key,
            position.vanished,
            position.walked,
        )
    )
    assert body is not None
    return make_token("watch", scope, body)


def read_position(scope: bytes, token: str) -> Position:
    """The position that a token names. Raises Refused for what is no token of a watch of this scope."""
    body = read_token("watch", scope, token, _FIELD)
    try:
        plain = msgpack.unpackb(body)
    except ValueError:
        plain = None
    match plain:
        case [
            bytes() as store_id,
            int() as sequence,
            int() as at,
            bytes() as key,
            int() as vanished,
            bytes() | None as walked,
        ] if 0 <= at <= NEVER:
            return Position(store_id, sequence, Due(Millis(at), key), vanished, walked)
    raise Refused(Code.INVALID_ARGUMENT, "is of another version; watch anew without one", field=_FIELD)


def _store_id(snapshot: Snapshot) -> StoreId:
    identity = read_identity(snapshot)
    assert identity is not None, "a store that is watched has an identity"
    return identity.store_id


def _after(now: Millis) -> Due:
    """The place in the expiry index before which everything has expired at ``now``."""
    return Due(Millis(max(0, now + 1)), b"")


def _checked(snapshot: Snapshot, position: Position) -> Position:
    """The position, if nothing has vanished that it is still to tell."""
    if position.store_id != _store_id(snapshot) or position.sequence > get_sequence(snapshot):
        raise _too_old("is of another store, or of a past that this one has lost")
    vanished = get_vanished(snapshot)
    latest = vanished.latest_since(position.vanished)
    if position.sequence < vanished.sequence or (latest is not None and position.lapses.at <= latest):
        raise _too_old("is too old: a purge has removed what happened since")
    return replace(position, vanished=vanished.count)


def _too_old(reason: str) -> Refused:
    return Refused(Code.OUT_OF_RANGE, f"{reason}; watch anew with initial_state", field=_FIELD)


class _Step:
    """A step under way. Each method does its part as far as there is room, and says whether it is done."""

    def __init__(
        self, snapshot: Snapshot, scope: bytes, position: Position, now: Millis, limits: Limits, rows: int
    ) -> None:
        self._snapshot = snapshot
        self._scope = scope
        self._now = now
        self._rows = rows
        self._most = limits.page_entries
        self._room = limits.page_bytes
        self.position = position
        self.events: list[Event] = []
        self.damaged: list[EntryKey] = []

    def lapse(self) -> bool:
        """Move the lapses to now, forward or (the clock was set back) backward."""
        place, goal = self.position.lapses, _after(self._now)
        if (place.at, place.key) <= (goal.at, goal.key):
            for due in expiries_between(self._snapshot, place, goal):
                if self._full():
                    return False
                self.position = replace(self.position, lapses=Due(due.at, due.key + b"\0"))
                if self._is_told(due.key):
                    self._tell(Lapsed(EntryKey.from_store(due.key), due.at))
        else:
            for due in expiries_between(self._snapshot, goal, place, reverse=True):
                if self._full():
                    return False
                self.position = replace(self.position, lapses=due)
                if self._is_told(due.key):
                    self._tell_state(due.key)
        self.position = replace(self.position, lapses=goal)
        return True

    def change(self) -> bool:
        """Move to the end of the change log."""
        for change in changes_after(self._snapshot, self.position.sequence):
            if self._full():
                return False
            self.position = replace(self.position, sequence=change.sequence)
            if self._covers(change.key):
                self._tell_state(change.key)
        return True

    def walk(self) -> bool:
        """Tell more of the state at the beginning. Changes and lapses come first: of the keys before this
        place they are told, and beyond it the walk finds them.
        """
        if self.position.walked is None:
            return True
        _, stop = scope_bounds(self._scope)
        for key, found in registers(self._snapshot, self.position.walked, stop):
            if self._full():
                return False
            self.position = replace(self.position, walked=key + b"\0")
            if isinstance(found, DamagedRow):
                self.damaged.append(EntryKey.from_store(key))
                continue
            entry = read_entry(EntryKey.from_store(key), found, self._now)
            if entry.exists:
                self._tell(Put(entry))
        self.position = replace(self.position, walked=None)
        return True

    def _full(self) -> bool:
        """Whether a row more is one too many; if not, it is counted."""
        if self._rows <= 0 or self._room <= 0 or len(self.events) >= self._most:
            return True
        self._rows -= 1
        return False

    def _covers(self, key: bytes) -> bool:
        walked = self.position.walked
        return key.startswith(self._scope) and (walked is None or key < walked)

    def _is_told(self, key: bytes) -> bool:
        """Whether the state of a key is one that was told. A change that is still ahead tells itself."""
        if not self._covers(key):
            return False
        try:
            sequence = read_sequence(self._snapshot, key)
        except DamagedRow:
            self.damaged.append(EntryKey.from_store(key))
            return False
        return sequence is not None and sequence <= self.position.sequence

    def _tell_state(self, key: bytes) -> None:
        try:
            register = read_register(self._snapshot, key)
        except DamagedRow:
            self.damaged.append(EntryKey.from_store(key))
            return
        self._tell(_state(EntryKey.from_store(key), register, self._now))

    def _tell(self, happened: Happened) -> None:
        self.events.append(Event(happened, self.position))
        self._room -= _TOKEN_BYTES
        self._room -= size_bound(happened.entry) if isinstance(happened, Put) else _GONE_BYTES


def _state(key: EntryKey, register: Register, now: Millis) -> Happened:
    """What stands at a key."""
    entry = read_entry(key, register, now)
    if entry.exists:
        return Put(entry)
    values = [sibling for sibling in register if not sibling.tombstone]
    if not values:
        return Forgotten(key)
    # Where no value contributes, each expired before another was written.
    expires_at = expiry_in_force(contributing(register) or values)
    assert expires_at is not None, "what is absent and has a value has an expiry"
    return Lapsed(key, expires_at)
