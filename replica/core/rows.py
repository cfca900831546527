"""What stands in the tables of a store, typed (DESIGN sections 1, 4, 5 and 8).

The one place that knows how rows look. Every row is a frame with a checksum over its key and body; one that
does not open raises :class:`replica.core.storage.DamagedRow`. Functions take a snapshot or a transaction and
keep no state, so an aborted transaction leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import msgpack

from crdt.clock import Clock, Runs
from crdt.codec import (
    Damaged,
    Undecodable,
    decode_register,
    decode_runs,
    encode_register,
    encode_runs,
    open_frame,
    seal_frame,
)
from crdt.dot import Actor, Incarnation, Millis
from crdt.expiry import contributing, expiry_in_force
from crdt.key import EntryKey
from crdt.register import Register
from replica.core.fingerprint import recount, register_moved
from replica.core.storage import DamagedRow, Snapshot, Table, Transaction

__all__ = [
    "Change",
    "Cursor",
    "Due",
    "StoreId",
    "changes_after",
    "clear_cursors",
    "concurrent_siblings",
    "delete_register",
    "encodings",
    "expiries",
    "expiries_between",
    "get_clock",
    "get_cursor",
    "get_meta",
    "get_register",
    "get_runs",
    "get_sequence",
    "in_log",
    "last_change",
    "lost_registers",
    "put_clock",
    "put_cursor",
    "put_meta",
    "put_register",
    "put_runs",
    "put_unreadable",
    "read_encoding",
    "read_register",
    "read_sequence",
    "registers",
    "tombstones",
]

StoreId = bytes
"""16 random bytes: one unbroken life of a change log. Sequences mean nothing in another store."""

_SEQUENCE = b"sequence"

_SMALL = 4096
"""Bytes up to which a register row, once decoded, is kept for whoever reads it next."""


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _open(table: Table, key: bytes, frame: bytes) -> bytes:
    try:
        return open_frame(key, frame)
    except Damaged:
        raise DamagedRow(table, key) from None


def _get(snapshot: Snapshot, table: Table, key: bytes) -> bytes | None:
    frame = snapshot.get(table, key)
    return None if frame is None else _open(table, key, frame)


# --- small named values


def get_meta(snapshot: Snapshot, name: str) -> bytes | None:
    """The value stored under a name."""
    return _get(snapshot, Table.META, name.encode())


def put_meta(transaction: Transaction, name: str, value: bytes) -> None:
    """Store a value under a name."""
    transaction.put(Table.META, name.encode(), seal_frame(name.encode(), value))


def get_sequence(snapshot: Snapshot) -> int:
    """The sequence of the last change to this store; 0 before the first."""
    value = _get(snapshot, Table.META, _SEQUENCE)
    return 0 if value is None else int.from_bytes(value, "big")


# --- registers, and with them the change log and the expiry index


@dataclass(frozen=True, slots=True)
class _RegisterRow:
    """A register, and where its key stands in the change log."""

    sequence: int
    register: Register


def _decode_register_row(key: bytes, frame: bytes) -> _RegisterRow:
    return (_read_small_row if len(frame) <= _SMALL else _read_row)(key, frame)


def _read_row(key: bytes, frame: bytes) -> _RegisterRow:
    body = _open(Table.REGISTERS, key, frame)
    try:
        return _RegisterRow(int.from_bytes(body[:8], "big"), decode_register(body[8:]))
    except Undecodable:
        raise DamagedRow(Table.REGISTERS, key) from None


_read_small_row = lru_cache(maxsize=1024)(_read_row)


def get_register(snapshot: Snapshot, key: EntryKey) -> Register:
    """The register at a key: empty when there is none. Raises DamagedRow."""
    return read_register(snapshot, key.to_store())


def read_register(snapshot: Snapshot, key: bytes) -> Register:
    """The register at a key in store form."""
    frame = snapshot.get(Table.REGISTERS, key)
    return () if frame is None else _decode_register_row(key, frame).register


def registers(
    snapshot: Snapshot, start: bytes = b"", stop: bytes | None = None
) -> Iterator[tuple[bytes, Register | DamagedRow]]:
    """Every register with ``start <= key < stop``, by key. A damaged row does not end the walk: its error
    stands in its place.
    """
    for key, frame in snapshot.items(Table.REGISTERS, start, stop):
        try:
            yield key, _decode_register_row(key, frame).register
        except DamagedRow as damaged:
            yield key, damaged


def _expiry(register: Register) -> Millis | None:
    return expiry_in_force(contributing(register))


def _removal(register: Register) -> Millis | None:
    """When the last of nothing but tombstones was written; none where there is a value."""
    if any(not sibling.tombstone for sibling in register):
        return None
    return Millis(max(0, *(sibling.written_at for sibling in register)))


def _expiry_key(expires_at: Millis, key: bytes) -> bytes:
    return _u64(expires_at) + key


def put_register(transaction: Transaction, key: bytes, register: Register, *, origin: StoreId | None) -> int:
    """Store a register (not an empty one), move its key to the end of the change log, and return the new
    sequence.

    ``origin`` is the store the register came from, if it is now exactly what that store sent: such a change
    need not go back there (section 5). A damaged row is replaced.
    """
    before = _forget_place(transaction, key)
    sequence = get_sequence(transaction) + 1
    encoding = encode_register(register)
    transaction.put(Table.META, _SEQUENCE, seal_frame(_SEQUENCE, _u64(sequence)))
    transaction.put(Table.REGISTERS, key, seal_frame(key, _u64(sequence) + encoding))
    place = _u64(sequence)
    transaction.put(Table.CHANGES, place, seal_frame(place, (origin or b"").ljust(16, b"\0") + key))
    expires_at = _expiry(register)
    if expires_at is not None:
        transaction.put(Table.EXPIRIES, _expiry_key(expires_at, key), b"")
    removed_at = _removal(register)
    if removed_at is not None:
        transaction.put(Table.TOMBSTONES, _expiry_key(removed_at, key), b"")
    if len(register) > 1:
        transaction.put(Table.CONCURRENT, key, seal_frame(key, _u64(len(register))))
    if isinstance(before, DamagedRow):
        recount(transaction, key)
    else:
        register_moved(transaction, key, before, encoding)
    return sequence


def delete_register(transaction: Transaction, key: bytes) -> None:
    """Drop a register and its change-log row (a purge). Its dots stay in the clock."""
    before = _forget_place(transaction, key)
    transaction.delete(Table.REGISTERS, key)
    if isinstance(before, DamagedRow):
        recount(transaction, key)
    else:
        register_moved(transaction, key, before, None)


def _forget_place(transaction: Transaction, key: bytes) -> bytes | DamagedRow | None:
    """Drop what the indexes say of the register that is stored now, and return its encoding or its damage."""
    frame = transaction.get(Table.REGISTERS, key)
    if frame is None:
        return None
    try:
        row = _decode_register_row(key, frame)
    except DamagedRow as damaged:
        _search_place(transaction, key)
        return damaged
    transaction.delete(Table.CHANGES, _u64(row.sequence))
    expires_at = _expiry(row.register)
    if expires_at is not None:
        transaction.delete(Table.EXPIRIES, _expiry_key(expires_at, key))
    removed_at = _removal(row.register)
    if removed_at is not None:
        transaction.delete(Table.TOMBSTONES, _expiry_key(removed_at, key))
    if len(row.register) > 1:
        transaction.delete(Table.CONCURRENT, key)
    return frame[12:]


def _search_place(transaction: Transaction, key: bytes) -> None:
    """The same where the row cannot say: walk the indexes. Rare, and it must not leave a second row for the
    key.
    """
    for place, frame in transaction.items(Table.CHANGES):
        if frame[20:] == key:
            transaction.delete(Table.CHANGES, place)
    for table in (Table.EXPIRIES, Table.TOMBSTONES):
        for place, _ in transaction.items(table):
            if place[8:] == key:
                transaction.delete(table, place)
    transaction.delete(Table.CONCURRENT, key)


def in_log(snapshot: Snapshot, key: bytes) -> bool:
    """Whether the change log names a key, whatever became of the register there."""
    frame = snapshot.get(Table.REGISTERS, key) or b""
    # What the damaged row says of its place is most likely so, and else all of the log is looked through.
    named = snapshot.get(Table.CHANGES, frame[4:12]) if len(frame) >= 12 else None
    if named is not None and named[20:] == key:
        return True
    return any(named[20:] == key for _, named in snapshot.items(Table.CHANGES))


def lost_registers(snapshot: Snapshot) -> Iterator[bytes]:
    """The keys that the change log names although no register is there: it cannot be found under its key."""
    for place, frame in snapshot.items(Table.CHANGES):
        with suppress(DamagedRow):
            key = _open(Table.CHANGES, place, frame)[16:]
            if snapshot.get(Table.REGISTERS, key) is None:
                yield key


def put_unreadable(transaction: Transaction, key: bytes) -> None:
    """Let a lost register count as a damaged one: a row that does not open stands in its place."""
    transaction.put(Table.REGISTERS, key, b"")
    recount(transaction, key)


@dataclass(frozen=True, slots=True)
class Change:
    """A row of the change log."""

    sequence: int
    key: bytes
    origin: StoreId | None


def changes_after(snapshot: Snapshot, sequence: int) -> Iterator[Change]:
    """The change log beyond a sequence, in order."""
    for place, frame in snapshot.items(Table.CHANGES, _u64(sequence + 1)):
        body = _open(Table.CHANGES, place, frame)
        origin = body[:16]
        yield Change(int.from_bytes(place, "big"), body[16:], origin if any(origin) else None)


def last_change(snapshot: Snapshot) -> int:
    """The highest sequence in the change log; 0 when it is empty."""
    for place, _ in snapshot.items(Table.CHANGES, reverse=True):
        return int.from_bytes(place, "big")
    return 0


# --- the clock, a row for each actor


def _actor_key(actor: Actor) -> bytes:
    return actor.cluster.encode() + b"\0" + actor.incarnation


def _key_actor(key: bytes) -> Actor:
    return Actor(key[:-17].decode(), Incarnation(key[-16:]))


@lru_cache(maxsize=1024)
def _decode_clock_row(key: bytes, frame: bytes) -> tuple[Actor, Runs]:
    """Cached: every message reads the whole clock, and few of its rows have moved."""
    try:
        return _key_actor(key), decode_runs(_open(Table.CLOCK, key, frame))
    except Undecodable:
        raise DamagedRow(Table.CLOCK, key) from None


def get_clock(snapshot: Snapshot) -> Clock:
    """The dots this store has seen. Raises DamagedRow."""
    return Clock(dict(_decode_clock_row(key, frame) for key, frame in snapshot.items(Table.CLOCK)))


def get_runs(snapshot: Snapshot, actor: Actor) -> Runs:
    """The runs of one actor; empty when none of its dots was seen."""
    key = _actor_key(actor)
    body = _get(snapshot, Table.CLOCK, key)
    return () if body is None else decode_runs(body)


def put_clock(transaction: Transaction, before: Clock, after: Clock) -> None:
    """Store a clock that has grown: only the rows of actors that moved are written."""
    for actor, runs in after.runs.items():
        if before.runs.get(actor) != runs:
            put_runs(transaction, actor, runs)


def put_runs(transaction: Transaction, actor: Actor, runs: Runs) -> None:
    """Store the runs of one actor."""
    key = _actor_key(actor)
    transaction.put(Table.CLOCK, key, seal_frame(key, encode_runs(runs)))


# --- cursors, a row for each supplier


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far this store has applied a supplier's change log."""

    store_id: StoreId
    sequence: int


def get_cursor(snapshot: Snapshot, supplier: str) -> Cursor | None:
    """The cursor at a supplier, by its cluster id."""
    body = _get(snapshot, Table.CURSORS, supplier.encode())
    if body is None:
        return None
    store_id, sequence = msgpack.unpackb(body)
    return Cursor(store_id, sequence)


def put_cursor(transaction: Transaction, supplier: str, cursor: Cursor) -> None:
    """Store the cursor at a supplier."""
    key = supplier.encode()
    body = msgpack.packb((cursor.store_id, cursor.sequence))
    assert body is not None
    transaction.put(Table.CURSORS, key, seal_frame(key, body))


def clear_cursors(transaction: Transaction) -> None:
    """Drop every cursor: the past they stand for is in doubt (section 8)."""
    for key, _ in transaction.items(Table.CURSORS):
        transaction.delete(Table.CURSORS, key)


# --- registers as they travel


def read_encoding(snapshot: Snapshot, key: bytes) -> bytes | None:
    """The encoding of the register at a key in store form, checked but not decoded; none when there is none.

    Raises DamagedRow.
    """
    frame = snapshot.get(Table.REGISTERS, key)
    return None if frame is None else _open(Table.REGISTERS, key, frame)[8:]


def encodings(
    snapshot: Snapshot, start: bytes = b"", stop: bytes | None = None
) -> Iterator[tuple[bytes, bytes | DamagedRow]]:
    """The same of every register with ``start <= key < stop``, by key; for a damaged row, its error."""
    for key, frame in snapshot.items(Table.REGISTERS, start, stop):
        try:
            yield key, _open(Table.REGISTERS, key, frame)[8:]
        except DamagedRow as damaged:
            yield key, damaged


def read_sequence(snapshot: Snapshot, key: bytes) -> int | None:
    """Where a key in store form stands in the change log; none when it has no register. Raises DamagedRow."""
    frame = snapshot.get(Table.REGISTERS, key)
    return None if frame is None else int.from_bytes(_open(Table.REGISTERS, key, frame)[:8], "big")


def concurrent_siblings(snapshot: Snapshot) -> int:
    """The number of siblings of all registers that have more than one. Raises DamagedRow."""
    return sum(
        int.from_bytes(_open(Table.CONCURRENT, key, frame), "big")
        for key, frame in snapshot.items(Table.CONCURRENT)
    )


# --- what can be purged one day


@dataclass(frozen=True, slots=True)
class Due:
    """A register in an index by time."""

    at: Millis
    key: bytes


def _due(snapshot: Snapshot, table: Table, after: Due | None, until: Millis | None) -> Iterator[Due]:
    start = b"" if after is None else _expiry_key(after.at, after.key) + b"\0"
    for place, _ in snapshot.items(table, start, None if until is None else _u64(max(0, until) + 1)):
        yield Due(Millis(int.from_bytes(place[:8], "big")), place[8:])


def expiries(snapshot: Snapshot, after: Due | None = None, until: Millis | None = None) -> Iterator[Due]:
    """Entries by the expiry in force, the earliest first: beyond ``after``, up to ``until`` inclusive."""
    return _due(snapshot, Table.EXPIRIES, after, until)


def expiries_between(
    snapshot: Snapshot, start: Due, stop: Due | None, *, reverse: bool = False
) -> Iterator[Due]:
    """Entries by the expiry in force and then by key, ``start <= entry < stop``, or in reverse."""
    end = None if stop is None else _expiry_key(stop.at, stop.key)
    for place, _ in snapshot.items(Table.EXPIRIES, _expiry_key(start.at, start.key), end, reverse=reverse):
        yield Due(Millis(int.from_bytes(place[:8], "big")), place[8:])


def tombstones(snapshot: Snapshot, after: Due | None = None) -> Iterator[Due]:
    """Registers of nothing but tombstones, by the time of the last removal, the earliest first."""
    return _due(snapshot, Table.TOMBSTONES, after, None)
