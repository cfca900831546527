"""Request ids: a repeated call is the same write (DESIGN section 10).

The result of a write is stored under the request's id in the write's own transaction, and kept ten minutes.
A repeat within them gets that result and writes nothing. Later writes clear away what is older, a few rows
each, and so does a purge, for a store that nobody writes to any more.

So the room that results take is bounded by the writes of ten minutes and by nothing else; their rows are kept
small.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from itertools import islice
from typing import TypeVar

import msgpack

from crdt.codec import Damaged, open_frame, seal_frame
from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import Command, Kind, Links, Remember, flat_links
from replica.core.errors import Code, Refused
from replica.core.results import Forgotten, Remembered, Result, Updated
from replica.core.storage import DamagedRow, Snapshot, Table, Transaction

__all__ = ["KEPT", "PRUNED_PER_WRITE", "find_result", "fingerprint", "keep_result", "prune_results"]

KEPT = Millis(10 * 60 * 1000)
"""How long a result is kept."""

PRUNED_PER_WRITE = 4
"""How many old rows a write clears away at most: more than one, so that what has piled up goes."""

_R = TypeVar("_R", Remembered, Updated, Forgotten)

_RESULTS: tuple[type[Result], ...] = (Remembered, Updated, Forgotten)
"""A row names one of these by its place."""


def _pack(plain: object) -> bytes:
    packed = msgpack.packb(plain, use_bin_type=True)
    assert packed is not None
    return packed


def _canonical(value: object) -> object:
    """What a field of a command asks for: the order and repetition of tags and targets say nothing."""
    if isinstance(value, Kind):
        return value.value
    if isinstance(value, tuple):
        links = [item for item in value if isinstance(item, Links)]
        return sorted(flat_links(links)) if links else sorted(set(value))
    return value


def fingerprint(command: Command) -> bytes:
    """A hash of what a command asks for. An id that was generated here is no part of it."""
    generated = isinstance(command, Remember) and command.generated_id
    key = command.key
    asked = [
        (field.name, _canonical(getattr(command, field.name)))
        for field in fields(command)
        if field.name not in ("key", "generated_id", "request_id")
    ]
    id = None if generated else key.id
    plain = (type(command).__name__, key.repo_id, key.topic, id, asked)
    return hashlib.blake2b(_pack(plain), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class _Row:
    at: Millis
    fingerprint: bytes
    result: Result


def _read_row(snapshot: Snapshot, id: bytes) -> _Row | None:
    frame = snapshot.get(Table.REQUESTS, id)
    if frame is None:
        return None
    try:
        body = open_frame(id, frame)
    except Damaged:
        raise DamagedRow(Table.REQUESTS, id) from None
    at, of_command, which, parts, values = msgpack.unpackb(body)
    kind = _RESULTS[which]
    named = zip(_value_names(kind), values, strict=True)
    return _Row(Millis(at), of_command, kind(key=EntryKey(*parts), **dict(named)))


def _value_names(kind: type[Result]) -> list[str]:
    return [field.name for field in fields(kind) if field.name != "key"]


def _time_key(at: Millis, id: bytes) -> bytes:
    return max(at, 0).to_bytes(8, "big") + id


def find_result(snapshot: Snapshot, command: Command, expected: type[_R], now: Millis) -> _R | None:
    """The result that is kept for the command's request id; none when this is no repeat.

    Raises Refused when the id stands for a different command, and DamagedRow.
    """
    if command.request_id is None:
        return None
    row = _read_row(snapshot, command.request_id.encode())
    if row is None or row.at + KEPT <= now:
        return None
    if not isinstance(row.result, expected) or row.fingerprint != fingerprint(command):
        raise Refused(
            Code.INVALID_ARGUMENT,
            "was used for a different call; give every call an id of its own",
            field="request_id",
        )
    return row.result


def keep_result(transaction: Transaction, command: Command, result: Result, now: Millis) -> None:
    """Store what a command gave under its request id, if it has one."""
    if command.request_id is None:
        return
    id = command.request_id.encode()
    old = _read_row(transaction, id)
    if old is not None:
        transaction.delete(Table.REQUEST_TIMES, _time_key(old.at, id))
    key = result.key
    values = [getattr(result, name) for name in _value_names(type(result))]
    which = _RESULTS.index(type(result))
    body = _pack((now, fingerprint(command), which, (key.repo_id, key.topic, key.id), values))
    transaction.put(Table.REQUESTS, id, seal_frame(id, body))
    transaction.put(Table.REQUEST_TIMES, _time_key(now, id), b"")


def prune_results(transaction: Transaction, now: Millis, most: int = PRUNED_PER_WRITE) -> int:
    """Clear away results that are kept no longer, oldest first, and return how many, at most ``most``."""
    stop = _time_key(Millis(now - KEPT + 1), b"")
    pruned = 0
    for place, _ in islice(transaction.items(Table.REQUEST_TIMES, stop=stop), most):
        transaction.delete(Table.REQUESTS, place[8:])
        transaction.delete(Table.REQUEST_TIMES, place)
        pruned += 1
    return pruned
