"""The encodings of records, registers and clocks: MessagePack with a format version (DESIGN sections 3, 4 and
8).

Every encoding is canonical: equal values give equal bytes. Actors are written once, in a table, and referred
to by index.

A *frame* is what a stored row holds: CRC-32 of key and body, then the body. A frame does not open under
another key.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias, TypeVar

import msgpack

from crdt.clock import Clock, Runs
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
_Key = TypeVar("_Key", Actor, Dot, Link, RevisionKey, str)
_Element = TypeVar("_Element")


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
        # Skipping builds nothing, and fails where a declared length exceeds what follows. Without it, nested
        # lists that each declare a great length would all be given their memory first.
        skipper = msgpack.Unpacker(max_buffer_size=max(len(data), 1))
        skipper.feed(data)
        skipper.skip()
        plain: _Plain = msgpack.unpackb(data, raw=False)
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


def _ascending(keys: Sequence[_Key], what: str) -> None:
    """Refuse keys that are not each greater than the one before: none stands twice, and equal values have one
    encoding.
    """
    if len(keys) > 1 and not all(before < after for before, after in pairwise(keys)):
        raise Undecodable(f"{what} are not in ascending order")


def _ascending_map(rows: Sequence[tuple[_Key, _Element]], what: str) -> dict[_Key, _Element]:
    if len(rows) > 1:
        _ascending([key for key, _ in rows], what)
    return dict(rows)


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


def encode_runs(runs: Runs) -> bytes:
    """The runs of one actor, as a clock row holds them."""
    return _pack(runs)


def decode_runs(data: bytes) -> Runs:
    """Inverse of :func:`encode_runs`; raises :class:`Undecodable`."""
    return _read_runs(_list(_unpack(data)))


def _read_runs(plain: list[_Plain]) -> Runs:
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
    rows: list[tuple[Actor, Runs]] = []
    for row in _list(plain):
        index, *bounds = _list(row) or [None]
        rows.append((_actor(actors, index), _read_runs(bounds)))
    return Clock(_ascending_map(rows, "actors of a clock"))


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
    rows: list[tuple[Dot, Value]] = []
    for row in _list(plain):
        actor, counter, value, written_at = _fields(row, 4)
        if isinstance(value, bool) or not (value is None or isinstance(value, str | int | bytes)):
            raise Undecodable("a field holds what is neither text, integer, bytes nor nothing")
        dot = Dot(_actor(actors, actor), _int(counter, 1))
        rows.append((dot, Value(value, Millis(_int(written_at, -(2**63))))))
    if not rows:
        raise Undecodable("an element is put by no write")
    return _ascending_map(rows, "dots")


def _stores(record: Record) -> Iterable[DotStore]:
    for stores in (record.fields, record.tags, record.links, record.revisions):
        yield from stores.values()


def encode_record(record: Record) -> bytes:
    """The payload of a record: version, actors, context, fields, tags, links, revisions, each in order.

    Numbers of more than 64 bits (``OverflowError``) and lone surrogates (``UnicodeEncodeError``) have no
    encoding: whoever lets values in refuses them.
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
    rows: list[tuple[str, DotStore]] = []
    for row in _list(plain):
        name, store = _fields(row, 2)
        rows.append((_str(name), _read_store(store, actors)))
    return _ascending_map(rows, what)


def decode_record(payload: bytes) -> Record:
    """Inverse of :func:`encode_record`; raises :class:`Undecodable`."""
    table, context, fields, tags, links, revisions = _versioned(payload, RECORD_FORMAT, 7, "record")
    actors = _read_actors(table)
    link_rows: list[tuple[Link, DotStore]] = []
    for row in _list(links):
        relation, target, store = _fields(row, 3)
        link_rows.append((Link(_str(relation), _str(target)), _read_store(store, actors)))
    revision_rows: list[tuple[RevisionKey, DotStore]] = []
    for row in _list(revisions):
        name, actor, counter, store = _fields(row, 4)
        key = RevisionKey(_str(name), Dot(_actor(actors, actor), _int(counter, 1)))
        revision_rows.append((key, _read_store(store, actors)))
    return Record(
        context=_read_clock(context, actors),
        fields=_read_named(fields, actors, "fields"),
        tags=_read_named(tags, actors, "tags"),
        links=_ascending_map(link_rows, "links"),
        revisions=_ascending_map(revision_rows, "revisions"),
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
        tops = _list(context)
        if len(tops) % 2 or type(tombstone) is not bool or (tombstone and expires_at is not None):
            raise Undecodable("a sibling is malformed")
        siblings.append(
            Sibling(
                dot=Dot(_actor(actors, actor), _int(counter, 1)),
                context=_ascending_map(
                    [
                        (_actor(actors, at), _int(top, 1))
                        for at, top in zip(tops[::2], tops[1::2], strict=True)
                    ],
                    "actors of a context",
                ),
                payload=_bytes(payload),
                tombstone=tombstone,
                expires_at=None if expires_at is None else Millis(_int(expires_at)),
                written_at=Millis(_int(written_at, -(2**63))),
            )
        )
    _ascending([sibling.dot for sibling in siblings], "siblings")
    return make_register(siblings)
