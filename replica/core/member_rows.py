"""What stands in the store about the members of the fleet, typed (DESIGN section 6).

One row for each member, and two numbers: how often this store has purged or taken over a clock, and when
the replica was last known to run. Rows are frames with a checksum, as everywhere; damage raises
:class:`replica.core.storage.DamagedRow`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

import msgpack

from crdt.clock import Clock
from crdt.codec import Damaged, decode_clock, encode_clock, open_frame, seal_frame
from crdt.dot import Incarnation, Millis
from replica.core.rows import StoreId, get_meta, put_meta
from replica.core.storage import DamagedRow, Snapshot, Table, Transaction

__all__ = [
    "Acknowledged",
    "Member",
    "Stated",
    "Taken",
    "get_alive_at",
    "get_marks",
    "get_member",
    "members",
    "next_mark",
    "put_alive_at",
    "put_member",
]

_MARKS = "marks"
_ALIVE_AT = "alive_at"


@dataclass(frozen=True, slots=True)
class Stated:
    """What a member had seen at some moment of one of its incarnations, all of it together."""

    incarnation: Incarnation
    clock: Clock
    knows: Mapping[str, Incarnation]
    """The newest incarnation of each member that it had heard of by then."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The newest entries about a member that were taken over from one supplier's list, by number; 0: none."""

    store_id: StoreId
    begun: int
    """At the start of a reconcile."""
    settled: int
    """For good."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """How far a member, as a consumer, has acknowledged this store's log."""

    incarnation: Incarnation
    """The consumer's."""
    store_id: StoreId
    """This store's."""
    sequence: int


@dataclass(frozen=True, slots=True)
class Member:
    """A member, as this replica knows it."""

    cluster: str
    heard: Millis
    """When it was last heard, by this replica's clock; time in which this replica itself was down does not
    count.
    """
    said_at: Millis | None = None
    """Its own clock when it said the newest thing known of it; none: it was never heard."""
    skew: Millis | None = None
    """Its clock minus this replica's."""
    reported: bool = False
    """It told its clock, directly or through others, since this replica started."""
    known: Stated | None = None
    """The newest incarnation heard of, and all that it is known to have seen."""
    candidate: Stated | None = None
    """What was known at some moment, held until this replica's own clock dominates it."""
    stable: Stated | None = None
    """The newest candidate that was dominated: what it had written or seen by then has all arrived here."""
    listed: int = 0
    """The number of its entry on the list of members that must reconcile; 0: it is not on it."""
    taken: Mapping[str, Taken] = field(default_factory=lambda: MappingProxyType({}))
    """By supplier: what was taken over from its list about this member."""
    acknowledged: Acknowledged | None = None
    retired: bool = False


def _plain_stated(stated: Stated | None) -> object:
    if stated is None:
        return None
    return (stated.incarnation, encode_clock(stated.clock), sorted(stated.knows.items()))


def _encode(member: Member) -> bytes:
    acknowledged = member.acknowledged
    body = msgpack.packb(
        (
            member.heard,
            member.said_at,
            member.skew,
            member.reported,
            _plain_stated(member.known),
            _plain_stated(member.candidate),
            _plain_stated(member.stable),
            member.listed,
            [
                (cluster, taken.store_id, taken.begun, taken.settled)
                for cluster, taken in sorted(member.taken.items())
            ],
            None
            if acknowledged is None
            else (acknowledged.incarnation, acknowledged.store_id, acknowledged.sequence),
            member.retired,
        )
    )
    assert body is not None
    return body


@lru_cache(maxsize=4096)
def _read_stated(incarnation: bytes, clock: bytes, knows: tuple[tuple[str, bytes], ...]) -> Stated:
    """Cached: most rows are read again unchanged, and equal clocks are then one object."""
    return Stated(
        Incarnation(incarnation),
        decode_clock(clock),
        MappingProxyType({cluster: Incarnation(newest) for cluster, newest in knows}),
    )


@lru_cache(maxsize=1024)
def _decode(key: bytes, frame: bytes) -> Member:
    """Cached: every message reads members, and few of their rows have moved."""
    try:
        body = open_frame(key, frame)
    except Damaged:
        raise DamagedRow(Table.MEMBERS, key) from None
    heard, said_at, skew, reported, known, candidate, stable, listed, taken, acknowledged, retired = (
        msgpack.unpackb(body, use_list=False)
    )
    return Member(
        cluster=key.decode(),
        heard=heard,
        said_at=said_at,
        skew=skew,
        reported=reported,
        known=None if known is None else _read_stated(*known),
        candidate=None if candidate is None else _read_stated(*candidate),
        stable=None if stable is None else _read_stated(*stable),
        listed=listed,
        taken=MappingProxyType({cluster: Taken(*numbers) for cluster, *numbers in taken}),
        acknowledged=None if acknowledged is None else Acknowledged(*acknowledged),
        retired=retired,
    )


def get_member(snapshot: Snapshot, cluster: str) -> Member | None:
    """The row of a member; none when nobody ever named it here."""
    key = cluster.encode()
    frame = snapshot.get(Table.MEMBERS, key)
    return None if frame is None else _decode(key, frame)


def members(snapshot: Snapshot) -> Iterator[Member]:
    """Every row, retired members included, by cluster."""
    for key, frame in snapshot.items(Table.MEMBERS):
        yield _decode(key, frame)


def put_member(transaction: Transaction, member: Member) -> None:
    """Store the row of a member."""
    key = member.cluster.encode()
    transaction.put(Table.MEMBERS, key, seal_frame(key, _encode(member)))


def get_marks(snapshot: Snapshot) -> int:
    """How often this store has purged or taken over a clock: 0 means that it misleads nobody."""
    value = get_meta(snapshot, _MARKS)
    return 0 if value is None else int.from_bytes(value, "big")


def next_mark(transaction: Transaction) -> int:
    """Count one more such event; the number names the entries that it puts on the list."""
    mark = get_marks(transaction) + 1
    put_meta(transaction, _MARKS, mark.to_bytes(8, "big"))
    return mark


def get_alive_at(snapshot: Snapshot) -> Millis | None:
    """When this replica was last known to run; none before it first said so."""
    value = get_meta(snapshot, _ALIVE_AT)
    return None if value is None else Millis(int.from_bytes(value, "big", signed=True))


def put_alive_at(transaction: Transaction, now: Millis) -> None:
    """Say that this replica runs."""
    put_meta(transaction, _ALIVE_AT, now.to_bytes(8, "big", signed=True))
