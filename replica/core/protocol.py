"""What no honest replica says (DESIGN sections 5 and 8): checked before anything is made of a message.

It ends the session that it came on. The bounds keep memory and rows bounded whatever a peer does; they are
far beyond any fleet.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from crdt.clock import Clock
from crdt.key import EntryKey, InvalidKey, check_component
from replica.core.messages import (
    OUTLINE_PARTS,
    Ack,
    Answer,
    Batch,
    ConsumerMessage,
    Fetched,
    Heartbeat,
    Hello,
    Knowledge,
    Listed,
    Outline,
    ProtocolError,
    Question,
    Range,
    RangeAck,
    SupplierMessage,
    Welcome,
)

__all__ = ["MEMBERS_MAX", "check", "check_size", "check_store_key"]

MEMBERS_MAX = 10_000
"""The most members of a fleet."""

_BOUNDS_MAX = 1_000_000
"""The most bounds of runs in one clock."""

_ID_BYTES = 16


def check_size(clock: Clock) -> None:
    """Raise ProtocolError for a clock that no fleet comes to have."""
    if sum(map(len, clock.runs.values())) > _BOUNDS_MAX:
        raise ProtocolError("a clock is larger than any fleet can make it")


def check_store_key(key: bytes) -> None:
    """Raise ProtocolError for what is the store form of no key."""
    try:
        EntryKey.from_store(key)
    except InvalidKey as error:
        raise ProtocolError(f"a key is none: {error}") from None


def check(message: ConsumerMessage | SupplierMessage | Question | Answer | Fetched) -> None:
    """Raise ProtocolError if no honest replica says this. Registers are checked where they are decoded."""
    match message:
        case Hello() | Welcome():
            _check_cluster(message.cluster)
            _check_ids(message.incarnation, message.store_id)
            _check_clock(message.clock)
            if isinstance(message, Hello):
                if message.cursor is not None:
                    _check_ids(message.cursor.store_id)
                if message.resume is not None:
                    _check_ids(message.resume.store_id)
            else:
                _check_listed(message.must_reconcile)
        case Ack() | RangeAck():
            _check_ids(message.store_id)
        case Batch() | Range() | Outline():
            _check_ids(message.store_id, message.for_incarnation, message.for_store_id)
        case Question():
            _check_cluster(message.cluster)
            _check_ids(message.incarnation, message.store_id)
        case Answer():
            _check_cluster(message.cluster)
            _check_ids(message.store_id)
            if message.incarnation is not None:
                _check_ids(message.incarnation)
            _check_clock(message.clock)
        case Fetched():
            check_store_key(message.key)
            _check_clock(message.clock)
        case Heartbeat():
            pass
    match message:
        case Batch():
            _check_clock(message.clock)
            _check_listed(message.must_reconcile)
            _check_members(message.members)
            if message.upto < message.after:
                raise ProtocolError("a batch ends before the cursor that it continues")
            keys = {change.key for change in message.changes}
            if len(keys) != len(message.changes):
                raise ProtocolError("a batch names a key twice")
        case Range():
            _check_clock(message.clock)
            _check_listed(message.must_reconcile)
            _check_members(message.members)
            _check_ascending([message.start, *(change.key + b"\0" for change in message.changes)])
            if message.stop and message.stop <= message.start:
                raise ProtocolError("a range ends before it starts")
            if message.stop and message.changes and message.changes[-1].key >= message.stop:
                raise ProtocolError("a range holds a key beyond its end")
        case Outline():
            if not 0 < len(message.parts) <= OUTLINE_PARTS or message.level < 1:
                raise ProtocolError("an outline has too many parts, none, or no level")
            if any(not part.stop for part in message.parts[:-1]):
                raise ProtocolError("a part of an outline that is not the last has no end")
            stops = [part.stop for part in message.parts if part.stop]
            _check_ascending([message.start, *stops])
        case _:
            pass
    if isinstance(message, Hello | Ack | Welcome | Heartbeat):
        _check_knowledge(message.knowledge)


def _check_cluster(cluster: str) -> None:
    try:
        check_component("cluster", cluster)
    except InvalidKey as error:
        raise ProtocolError(f"a cluster id {error.reason}") from None
    if any(character.isspace() for character in cluster):
        raise ProtocolError("a cluster id holds whitespace")


def _check_ids(*ids: bytes) -> None:
    if any(len(one) != _ID_BYTES for one in ids):
        raise ProtocolError(f"an incarnation or store id is not {_ID_BYTES} bytes long")


def _check_clock(clock: Clock) -> None:
    check_size(clock)
    for actor in clock.runs:
        _check_cluster(actor.cluster)
        _check_ids(actor.incarnation)


def _check_members(members: Iterable[str]) -> None:
    for count, member in enumerate(members):
        _check_cluster(member)
        if count >= MEMBERS_MAX:
            raise ProtocolError(f"more than {MEMBERS_MAX} members are named")


def _check_listed(listed: tuple[Listed, ...]) -> None:
    _check_members(entry.cluster for entry in listed)
    if any(entry.number < 1 for entry in listed):
        raise ProtocolError("an entry of the list of members that must reconcile has no number")


def _check_knowledge(knowledge: Knowledge) -> None:
    _check_members(statement.cluster for statement in knowledge)
    for statement in knowledge:
        if statement.incarnation is None:
            if statement.clock or statement.knows:
                raise ProtocolError("a statement about a member that was never heard says what it has seen")
        else:
            _check_ids(statement.incarnation)
        _check_clock(statement.clock)
        _check_members(statement.knows)
        _check_ids(*statement.knows.values())
        if statement.age is not None and statement.age < 0:
            raise ProtocolError("a statement comes from the future")


def _check_ascending(keys: list[bytes]) -> None:
    if any(not low < high for low, high in pairwise(keys)):
        raise ProtocolError("keys are not in ascending order")
