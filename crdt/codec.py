"""The encodings of records, registers and clocks: MessagePack with a format version (DESIGN sections 3, 4 and
8).

Every encoding is canonical: equal values give equal bytes. Actors are written once, in a table, and referred
to by index.

A *frame* is what a stored row holds: CRC-32 of key and body, then the body. A frame does not open under
another key.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import TypeAlias, TypeVar

import msgpack

from crdt.clock import Clock
from crdt.dot import Actor, Dot, Incarnation, Millis
from crdt.record import DotStore, Link, Record, RevisionKey, Value
from crdt.register import Register, Sibling, make_register

__all__ = [
    "RECORD_FORMAT",
    "REGISTER_FORMAT",
    "Damaged",
    "Undecodable",
    "decode_clock",
    "decode_record",
    "decode_register",
    "decode_runs",
    "encode_clock",
    "encode_record",
    "encode_register",
    "encode_runs",
    "open_frame",
    "seal_frame",
]

RECORD_FORMAT = 1
REGISTER_FORMAT = 1

_Plain: TypeAlias = "str | int | bytes | bool | float | list[_Plain] | dict[_Plain, _Plain] | None"
_T = TypeVar("_T")


class Undecodable(ValueError):
    """The bytes are no encoding that this version knows: damaged, or made by a newer one. The message says
    which.
    """


class Damaged(ValueError):
    """A frame whose checksum does not fit: the row was damaged in storage, or stands under another key."""


def seal_frame(key: bytes, body: bytes) -> bytes:
    """The frame of a row's body."""
    return zlib.crc32(body, zlib.crc32(key)).to_bytes(4, "big") + body


def open_frame(key: bytes, frame: bytes) -> bytes:
    """The body of a row's frame; raises :class:`Damaged`."""
    body = frame[4:]
    if len(frame) < 4 or zlib.crc32(body, zlib.crc32(key)) != int.from_bytes(frame[:4], "big"):
        raise Damaged("the checksum of the row does not fit its contents")
    return body


# --- reading plain values, checked


def _pack(plain: object) -> bytes:
    packed = msgpack.packb(plain, use_bin_type=True)
    assert packed is not None
    return packed


def _unpack(data: bytes) -> _Plain:
    try:
        plain: _Plain = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise Undecodable(f"not MessagePack: {type(error).__name__}") from None
    return plain


def _list(plain: _Plain) -> list[_Plain]:
    if type(plain) is not list:
        raise Undecodable("a list was expected")
    return plain


def _int(plain: _Plain, least: int = 0) -> int:
    if type(plain) is not int or plain < least:
        raise Undecodable(f"an integer of at least {least} was expected")
    return plain


def _str(plain: _Plain) -> str:
    if type(plain) is not str:
        raise Undecodable("text was expected")
    return plain


def _bytes(plain: _Plain) -> bytes:
    if type(plain) is not bytes:
        raise Undecodable("bytes were expected")
    return plain


def _fields(plain: _Plain, count: int) -> list[_Plain]:
    fields = _list(plain)
    if len(fields) != count:
        raise Undecodable(f"{count} fields were expected, {len(fields)} are there")
    return fields


def _versioned(data: bytes, newest: int, count: int, what: str) -> list[_Plain]:
    """The fields behind the format version."""
    plain = _unpack(data)
    if type(plain) is not list or not plain or type(plain[0]) is not int:
        raise Undecodable(f"not a {what}")
    if plain[0] != newest:
        raise Undecodable(f"{what} format {plain[0]} is not known here, only {newest}")
    return _fields(plain, count)[1:]


def _ascending(values: Iterable[_T], key: str) -> None:
    """Refuse an encoding that is not the canonical one: two encodings of one value would hash differently."""
    previous: list[_T] = []
    for value in values:
        if previous and not previous[0] < value:  # type: ignore[operator]  # callers pass one ordered type
            raise Undecodable(f"{key} are not in ascending order")
        previous = [value]


# --- actors


class _ActorTable:
    """The actors of one encoding, by index."""

    def __init__(self, actors: Iterable[Actor]) -> None:
        self.actors = sorted(set(actors))
        self.index = {actor: at for at, actor in enumerate(self.actors)}

    def plain(self) -> list[tuple[str, bytes]]:
        return [(actor.cluster, actor.incarnation) for actor in self.actors]


def _read_actors(plain: _Plain) -> list[Actor]:
    actors = []
    for row in _list(plain):
        cluster, incarnation = _fields(row, 2)
        actors.append(Actor(_str(cluster), Incarnation(_bytes(incarnation))))
    _ascending(actors, "actors")
    return actors


def _actor(actors: list[Actor], plain: _Plain) -> Actor:
    at = _int(plain)
    if at >= len(actors):
        raise Undecodable("an actor is named that is not in the table")
    return actors[at]


# --- clocks


def encode_runs(runs: tuple[int, ...]) -> bytes:
    """The runs of one actor, as a clock row holds them."""
    return _pack(runs)


def decode_runs(data: bytes) -> tuple[int, ...]:
    """Inverse of :func:`encode_runs`; raises :class:`Undecodable`."""
    return _read_runs(_list(_unpack(data)))


def _read_runs(plain: list[_Plain]) -> tuple[int, ...]:
    runs = tuple(_int(bound, 1) for bound in plain)
    if not runs or len(runs) % 2:
        raise Undecodable("runs come in pairs")
    previous = -1
    for lo, hi in zip(runs[::2], runs[1::2], strict=True):
        if lo <= previous + 1 or hi < lo:
            raise Undecodable("runs are not in ascending order")
        previous = hi
    return runs


def _plain_clock(clock: Clock, table: _ActorTable) -> list[list[int]]:
    return [[table.index[actor], *clock.runs[actor]] for actor in sorted(clock.runs)]


def _read_clock(plain: _Plain, actors: list[Actor]) -> Clock:
    runs: dict[Actor, tuple[int, ...]] = {}
    for row in _list(plain):
        index, *bounds = _list(row) or [None]
        runs[_actor(actors, index)] = _read_runs(bounds)
    _ascending(runs, "actors of a clock")
    return Clock(runs)


def encode_clock(clock: Clock) -> bytes:
    """A whole clock."""
    table = _ActorTable(clock.runs)
    return _pack((table.plain(), _plain_clock(clock, table)))


def decode_clock(data: bytes) -> Clock:
    """Inverse of :func:`encode_clock`; raises :class:`Undecodable`."""
    actors, clock = _fields(_unpack(data), 2)
    return _read_clock(clock, _read_actors(actors))


# --- records


def _plain_store(store: DotStore, table: _ActorTable) -> list[tuple[int, int, object, int]]:
    return [
        (table.index[dot.actor], dot.counter, value.value, value.written_at)
        for dot, value in sorted(store.items())
    ]


def _read_store(plain: _Plain, actors: list[Actor]) -> DotStore:
    store: dict[Dot, Value] = {}
    for row in _list(plain):
        actor, counter, value, written_at = _fields(row, 4)
        if value is not None and type(value) not in (str, int, bytes):
            raise Undecodable("a field holds what is neither text, integer, bytes nor nothing")
        assert value is None or isinstance(value, str | int | bytes)
        store[Dot(_actor(actors, actor), _int(counter, 1))] = Value(value, Millis(_int(written_at, -(2**63))))
    if not store:
        raise Undecodable("an element is put by no write")
    _ascending(store, "dots")
    return store


def _stores(record: Record) -> Iterable[DotStore]:
    for stores in (record.fields, record.tags, record.links, record.revisions):
        yield from stores.values()


def encode_record(record: Record) -> bytes:
    """The payload of a record: version, actors, context, fields, tags, links, revisions, everything in order.
    """
    actors = set(record.context.runs)
    actors.update(dot.actor for store in _stores(record) for dot in store)
    actors.update(key.dot.actor for key in record.revisions)
    table = _ActorTable(actors)
    return _pack(
        (
            RECORD_FORMAT,
            table.plain(),
            _plain_clock(record.context, table),
            [(name, _plain_store(store, table)) for name, store in sorted(record.fields.items())],
            [(tag, _plain_store(store, table)) for tag, store in sorted(record.tags.items())],
            [(*link, _plain_store(store, table)) for link, store in sorted(record.links.items())],
            [
                (key.field, table.index[key.dot.actor], key.dot.counter, _plain_store(store, table))
                for key, store in sorted(record.revisions.items())
            ],
        )
    )


def _read_named(plain: _Plain, actors: list[Actor], what: str) -> Mapping[str, DotStore]:
    stores: dict[str, DotStore] = {}
    for row in _list(plain):
        name, store = _fields(row, 2)
        stores[_str(name)] = _read_store(store, actors)
    _ascending(stores, what)
    return stores


def decode_record(payload: bytes) -> Record:
    """Inverse of :func:`encode_record`; raises :class:`Undecodable`."""
    table, context, fields, tags, links, revisions = _versioned(payload, RECORD_FORMAT, 7, "record")
    actors = _read_actors(table)
    link_stores: dict[Link, DotStore] = {}
    for row in _list(links):
        relation, target, store = _fields(row, 3)
        link_stores[Link(_str(relation), _str(target))] = _read_store(store, actors)
    _ascending(link_stores, "links")
    revision_stores: dict[RevisionKey, DotStore] = {}
    for row in _list(revisions):
        name, actor, counter, store = _fields(row, 4)
        key = RevisionKey(_str(name), Dot(_actor(actors, actor), _int(counter, 1)))
        revision_stores[key] = _read_store(store, actors)
    _ascending(revision_stores, "revisions")
    return Record(
        context=_read_clock(context, actors),
        fields=_read_named(fields, actors, "fields"),
        tags=_read_named(tags, actors, "tags"),
        links=link_stores,
        revisions=revision_stores,
    )


# --- registers


def encode_register(register: Register) -> bytes:
    """The body of a register row: version, actors, siblings. Payloads are carried as opaque bytes."""
    actors = {sibling.dot.actor for sibling in register}
    actors.update(actor for sibling in register for actor in sibling.context)
    table = _ActorTable(actors)
    return _pack(
        (
            REGISTER_FORMAT,
            table.plain(),
            [
                (
                    table.index[sibling.dot.actor],
                    sibling.dot.counter,
                    [
                        bound
                        for actor, top in sorted(sibling.context.items())
                        for bound in (table.index[actor], top)
                    ],
                    sibling.tombstone,
                    sibling.expires_at,
                    sibling.written_at,
                    sibling.payload,
                )
                for sibling in register
            ],
        )
    )


def decode_register(body: bytes) -> Register:
    """Inverse of :func:`encode_register`; raises :class:`Undecodable`."""
    table, rows = _versioned(body, REGISTER_FORMAT, 3, "register")
    actors = _read_actors(table)
    siblings = []
    for row in _list(rows):
        actor, counter, context, tombstone, expires_at, written_at, payload = _fields(row, 7)
        bounds = _list(context)
        if len(bounds) % 2 or type(tombstone) is not bool or (tombstone and expires_at is not None):
            raise Undecodable("a sibling is malformed")
        siblings.append(
            Sibling(
                dot=Dot(_actor(actors, actor), _int(counter, 1)),
                context={
                    _actor(actors, at): _int(top, 1)
                    for at, top in zip(bounds[::2], bounds[1::2], strict=True)
                },
                payload=_bytes(payload),
                tombstone=tombstone,
                expires_at=None if expires_at is None else Millis(_int(expires_at)),
                written_at=Millis(_int(written_at, -(2**63))),
            )
        )
    register = make_register(siblings)
    _ascending((sibling.dot for sibling in siblings), "siblings")
    return register
