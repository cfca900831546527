"""What replicas say to each other (DESIGN sections 5 to 8), mirroring ``proto/ricordo/v1/replication.proto``.

Plain values: a shell encodes and decodes them, a simulator hands them over as they are. What no honest
replica says is refused by :mod:`replica.core.protocol`, before anything is made of it.

A consumer sends :class:`Hello`, then :class:`Ack`, :class:`RangeAck` and :class:`Heartbeat`; a supplier sends
:class:`Welcome`, then :class:`Batch`, :class:`Outline`, :class:`Range` and :class:`Heartbeat`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.dot import Incarnation, Millis
from replica.core.rows import Cursor, StoreId

__all__ = [
    "OUTLINE_PARTS",
    "PROTOCOL_VERSION",
    "Ack",
    "Answer",
    "Batch",
    "Cause",
    "Change",
    "ConsumerMessage",
    "Fetched",
    "Heartbeat",
    "Hello",
    "Kind",
    "Knowledge",
    "Listed",
    "Outline",
    "Part",
    "ProtocolError",
    "Question",
    "Range",
    "RangeAck",
    "Resume",
    "Statement",
    "SupplierMessage",
    "Verdict",
    "Welcome",
]

PROTOCOL_VERSION = 1

OUTLINE_PARTS = 64
"""The most parts of one outline."""


class ProtocolError(Exception):
    """The peer said what no honest replica says. It ends the session that it came on, and nothing else."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# --- parts of messages


class Kind(enum.Enum):
    """What a supplier decides over a consumer; closed."""

    TAIL = "TAIL"
    """Batches of changes after the cursor."""
    EMPTY = "EMPTY"
    """The change log from the start."""
    RECONCILE = "RECONCILE"
    """Every key, range by range."""
    REFUSED = "REFUSED"
    """Nothing, this time."""


class Cause(enum.Enum):
    """Why a verdict was reached, by name."""

    CURSOR = "CURSOR"
    NOTHING_SEEN = "NOTHING_SEEN"
    NO_CURSOR = "NO_CURSOR"
    OTHER_STORE = "OTHER_STORE"
    """The cursor names a store that is not this one."""
    PASSED_BY = "PASSED_BY"
    """Something was purged, or taken over, without waiting for the consumer."""
    PROTOCOL_VERSION = "PROTOCOL_VERSION"
    UNTRUSTED = "UNTRUSTED"
    OWN_CLUSTER = "OWN_CLUSTER"
    SECOND_STORE = "SECOND_STORE"
    OLD_INCARNATION = "OLD_INCARNATION"
    CONSUMER_ROLLED_BACK = "CONSUMER_ROLLED_BACK"
    SUPPLIER_ROLLED_BACK = "SUPPLIER_ROLLED_BACK"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A supplier's decision over a consumer."""

    kind: Kind
    cause: Cause
    reason: str
    """In words for an operator."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What a member is known to have seen, and when it was last heard (section 6)."""

    cluster: str
    incarnation: Incarnation | None
    """None: nobody has heard of any; it is a member by configuration alone."""
    clock: Clock = EMPTY_CLOCK
    """The rows that moved since the last statement about this incarnation on the stream; at first all."""
    knows: Mapping[str, Incarnation] = field(default_factory=dict)
    """The newest incarnations that the member had heard of by then: those that moved, at first all."""
    said_at: Millis | None = None
    """The member's own clock when it said the newest of this."""
    age: Millis | None = None
    """How long ago that was, by the speaker's clock."""
    retired: bool = False
    """An operator retired it: it never comes back as a member."""


Knowledge: TypeAlias = tuple[Statement, ...]
"""Statements about members, the speaker among them if something of it moved. On a new stream: about all."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry of the list of members that must reconcile."""

    cluster: str
    number: int
    """Names the entry within the store: a later purge past the member gives it a greater one."""


@dataclass(frozen=True, slots=True)
class Change:
    """A register, whole."""

    key: bytes
    """In store form."""
    register: bytes
    """Its encoding in a frame (``crdt.codec``), checked end to end."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Where an interrupted reconcile stands."""

    store_id: StoreId
    """The supplier's store."""
    mark: int
    """The number of the consumer's entry on the supplier's list when it began; 0: it was not listed."""
    position: bytes
    """Everything below this key is done."""


# --- from the consumer


@dataclass(frozen=True, slots=True)
class Hello:
    """Who asks, and what it has."""

    cluster: str
    incarnation: Incarnation
    store_id: StoreId
    clock: Clock
    cursor: Cursor | None
    """How far it has applied this supplier's log."""
    resume: Resume | None
    """The reconcile with this supplier that it has not finished."""
    filling: bool
    """It began, empty, to read this supplier's log, and has not reached its end."""
    knowledge: Knowledge
    now: Millis
    version: int = PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class Ack:
    """A batch is applied and on disk."""

    store_id: StoreId
    """The supplier's, as in the batch."""
    sequence: int
    """Everything up to it is durable at the consumer."""
    knowledge: Knowledge
    """Of the consumer's own clock."""
    now: Millis


@dataclass(frozen=True, slots=True)
class RangeAck:
    """What was compared or joined is on disk, and the consumer is ready for more of the reconcile."""

    store_id: StoreId
    mark: int
    position: bytes
    """Everything below this key is done."""
    descend: int
    """At ``position`` the stores differ by an outline of this level; 0: no outline was compared."""
    done: bool
    """The reconcile is finished, and the cursor set to the sequence at its start."""
    sequence: int
    """When ``done``: that sequence."""
    now: Millis


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Sent when there is nothing else to say, by either side."""

    knowledge: Knowledge
    now: Millis
    sequence: int = 0
    """From a supplier: the end of its log."""


# --- from the supplier


@dataclass(frozen=True, slots=True)
class Welcome:
    """Who answers, and how it will go on."""

    verdict: Verdict
    cluster: str
    incarnation: Incarnation
    store_id: StoreId
    sequence: int
    """The end of the supplier's log; ``clock`` and the rest are of the same snapshot."""
    clock: Clock
    acknowledged: int | None
    """The greatest sequence of this store that this incarnation of the consumer has acknowledged."""
    resume: bool
    """The reconcile that the Hello named goes on from its position; else it starts from the first key."""
    mark: int
    """The number of the consumer's entry on the list; 0: it is not listed."""
    must_reconcile: tuple[Listed, ...]
    knowledge: Knowledge
    now: Millis
    version: int = PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes of the log, read in one snapshot. It is applied whole, in one transaction, or not at all."""

    store_id: StoreId
    """The supplier's."""
    for_incarnation: Incarnation
    for_store_id: StoreId
    after: int
    """The cursor that it continues."""
    upto: int
    """The cursor once it is applied."""
    changes: tuple[Change, ...]
    """In the order of the log. Left out: what came from this consumer and has not changed since."""
    clock: Clock
    """The supplier's: what the joins are made under."""
    complete: bool
    """The batch reaches the end of the log. Only then has the consumer seen what ``clock`` has."""
    must_reconcile: tuple[Listed, ...]
    members: tuple[str, ...]
    """The members that the supplier has heard of, while the consumer fills itself; else empty."""
    now: Millis


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an outline."""

    stop: bytes
    """It ends before this key, which is where the next part starts; empty: it has no end."""
    fingerprint: bytes
    """Of its registers."""


@dataclass(frozen=True, slots=True)
class Outline:
    """Fingerprints of consecutive parts of the store, to find what need not be sent."""

    store_id: StoreId
    for_incarnation: Incarnation
    for_store_id: StoreId
    mark: int
    level: int
    """Of the parts: 1 is the finest."""
    start: bytes
    parts: tuple[Part, ...]
    now: Millis


@dataclass(frozen=True, slots=True)
class Range:
    """Every register with ``start <= key < stop``, read in one snapshot: a key without one is not there."""

    store_id: StoreId
    for_incarnation: Incarnation
    for_store_id: StoreId
    mark: int
    start: bytes
    stop: bytes
    """Empty: to the end."""
    changes: tuple[Change, ...]
    """By key, ascending."""
    clock: Clock
    """The supplier's: what the joins are made under."""
    must_reconcile: tuple[Listed, ...]
    members: tuple[str, ...]
    """The members that the supplier has heard of."""
    now: Millis


ConsumerMessage: TypeAlias = Hello | Ack | RangeAck | Heartbeat
SupplierMessage: TypeAlias = Welcome | Batch | Outline | Range | Heartbeat


# --- beside the streams


@dataclass(frozen=True, slots=True)
class Question:
    """A replica asks, at start, what a peer has seen of it (section 8)."""

    cluster: str
    incarnation: Incarnation
    store_id: StoreId


@dataclass(frozen=True, slots=True)
class Answer:
    """What a peer has seen of the replica that asks."""

    cluster: str
    """The peer's own."""
    store_id: StoreId
    """The peer's own, which ``acknowledged`` is about."""
    incarnation: Incarnation | None
    """The newest of the asker's that it has heard of; none: it knows nothing of the asker."""
    clock: Clock
    """What it knows that incarnation to have seen."""
    acknowledged: int | None
    """The greatest sequence of its store that the asker, in this very incarnation, has acknowledged."""
    filling: bool
    """It is new, or filling itself or reconciling, and cannot be relied on."""
    connected: bool = False
    """A stream with the very store that asks is open: another replica has it, or the last connection of the
    one that asks has not ended yet."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A peer's register at a key that is damaged here, and the peer's clock of the same snapshot."""

    key: bytes
    register: bytes | None
    """In a frame, as in :class:`Change`; none: the peer has no register there."""
    clock: Clock
