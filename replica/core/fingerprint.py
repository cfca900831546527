"""Fingerprints of parts of a store, kept as registers change (DESIGN section 7).

The key space is cut into parts at keys whose hash ends in zeros: about every 64th key starts a part of level
1, about every 64th of those one of level 2. Stores that hold the same keys are cut at the same places,
whatever the order in which they came (the idea of Merkle search trees: Auvolat, Taïani, 2019). The
fingerprint of a part is the sum of its registers' hashes, so a change costs two additions, and only a new or
vanished cut needs a walk over one part.

A fingerprint covers keys and whole encodings: dots, contexts, expiries and payloads. Equal fingerprints mean
equal registers. Where the cuts of two stores differ the parts are called different, which costs a message and
no more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from crdt.codec import Damaged, open_frame, seal_frame
from replica.core.storage import DamagedRow, Snapshot, Table, Transaction

__all__ = ["BEYOND", "LEVELS", "is_cut", "level_at", "parts", "recount", "register_moved", "same_part"]

LEVELS = 2

BEYOND = b"\xff"
"""A position beyond every key: keys are UTF-8."""

_BITS = 6
_BYTES = 16
_MODULUS = 1 << 8 * _BYTES


def _hash(key: bytes, encoding: bytes) -> int:
    digest = hashlib.blake2b(len(key).to_bytes(2, "big") + key + encoding, digest_size=_BYTES)
    return int.from_bytes(digest.digest(), "big")


def _cut_level(key: bytes) -> int:
    """The coarsest level of which a part starts at this key; 0: none does."""
    tail = int.from_bytes(hashlib.blake2b(key, digest_size=4).digest(), "big")
    level = 0
    while level < LEVELS and tail % (1 << _BITS * (level + 1)) == 0:
        level += 1
    return level


def is_cut(key: bytes) -> bool:
    """Whether a part starts at this key wherever it is stored."""
    return _cut_level(key) > 0


def _row(level: int, start: bytes) -> bytes:
    return bytes([level]) + start


def _rows(
    snapshot: Snapshot, level: int, start: bytes, stop: bytes | None = None
) -> Iterator[tuple[bytes, int]]:
    """The parts of a level that start within the bounds, with their sums."""
    end = _row(level + 1, b"") if stop is None else _row(level, stop)
    for place, frame in snapshot.items(Table.FINGERPRINTS, _row(level, start), end):
        yield place[1:], _open(place, frame)


def _open(place: bytes, frame: bytes) -> int:
    try:
        return int.from_bytes(open_frame(place, frame), "big")
    except Damaged:
        raise DamagedRow(Table.FINGERPRINTS, place) from None


def _put(transaction: Transaction, level: int, start: bytes, total: int) -> None:
    place = _row(level, start)
    body = (total % _MODULUS).to_bytes(_BYTES, "big")
    transaction.put(Table.FINGERPRINTS, place, seal_frame(place, body))


def _containing(snapshot: Snapshot, level: int, key: bytes) -> tuple[bytes, int]:
    """The part that a key lies in, with its sum: the first part starts before every key."""
    end = _row(level, key + b"\0")
    for place, frame in snapshot.items(Table.FINGERPRINTS, _row(level, b""), end, reverse=True):
        return place[1:], _open(place, frame)
    return b"", 0


def _next(snapshot: Snapshot, level: int, start: bytes) -> bytes | None:
    """Where the next part after the one that starts here starts; none: this one has no end."""
    return next((place for place, _ in _rows(snapshot, level, start + b"\0")), None)


def _count(snapshot: Snapshot, level: int, start: bytes, stop: bytes | None) -> int:
    """The sum over a stretch that starts and stops at cuts of the level, from the level below."""
    if level > 1:
        return sum(total for _, total in _rows(snapshot, level - 1, start, stop)) % _MODULUS
    total = 0
    for key, frame in snapshot.items(Table.REGISTERS, start, stop):
        try:
            total += _hash(key, open_frame(key, frame)[8:])
        except Damaged:
            continue
    return total % _MODULUS


def register_moved(transaction: Transaction, key: bytes, before: bytes | None, after: bytes | None) -> None:
    """Keep the fingerprints when the encoding at a key has changed; none: there is no register.

    The registers table holds the new state already.
    """
    if before == after:
        return
    delta = (0 if after is None else _hash(key, after)) - (0 if before is None else _hash(key, before))
    cut = _cut_level(key)
    for level in range(1, LEVELS + 1):
        start, total = _containing(transaction, level, key)
        if level <= cut and before is None:
            if start == key:
                _put(transaction, level, key, total + delta)
                continue
            beyond = _count(transaction, level, key, _next(transaction, level, start))
            _put(transaction, level, start, total + delta - beyond)
            _put(transaction, level, key, beyond)
        elif level <= cut and after is None and start == key:
            transaction.delete(Table.FINGERPRINTS, _row(level, key))
            previous, earlier = _containing(transaction, level, key)
            _put(transaction, level, previous, earlier + total + delta)
        else:
            _put(transaction, level, start, total + delta)


def recount(transaction: Transaction, key: bytes) -> None:
    """Count the parts around a key anew, after a row there whose old contents nobody can tell."""
    cut = _cut_level(key)
    there = transaction.get(Table.REGISTERS, key) is not None
    for level in range(1, LEVELS + 1):
        if level <= cut and there:
            _put(transaction, level, key, 0)
        elif level <= cut:
            transaction.delete(Table.FINGERPRINTS, _row(level, key))
        for place in dict.fromkeys(
            (_before(transaction, level, key), _containing(transaction, level, key)[0])
        ):
            _put(
                transaction, level, place, _count(transaction, level, place, _next(transaction, level, place))
            )


def _before(snapshot: Snapshot, level: int, key: bytes) -> bytes:
    """The start of the last part that starts before a key."""
    rows = snapshot.items(Table.FINGERPRINTS, _row(level, b""), _row(level, key), reverse=True)
    return next((place[1:] for place, _ in rows), b"")


def level_at(snapshot: Snapshot, start: bytes) -> int:
    """The coarsest level of which a part starts at this place; 0: none does."""
    for level in range(LEVELS, 0, -1):
        if not start or snapshot.get(Table.FINGERPRINTS, _row(level, start)) is not None:
            return level
    return 0


def parts(snapshot: Snapshot, level: int, start: bytes, most: int) -> list[tuple[bytes, bytes]]:
    """Up to so many consecutive parts of a level from a cut on: where each stops, and its sum.

    An empty stop: it has no end.

    They end where a part of the next coarser level does.
    """
    out: list[tuple[bytes, bytes]] = []
    total = 0 if start else _containing(snapshot, level, b"")[1]
    for place, found in _rows(snapshot, level, start):
        if place == start:
            total = found
            continue
        out.append((place, total.to_bytes(_BYTES, "big")))
        if len(out) == most or _cut_level(place) > level:
            return out
        total = found
    out.append((b"", total.to_bytes(_BYTES, "big")))
    return out


def same_part(snapshot: Snapshot, level: int, start: bytes, stop: bytes, fingerprint: bytes) -> bool:
    """Whether this store has the same part: the same cuts, and the same registers between them."""
    place, total = _containing(snapshot, level, start)
    if place != start or (_next(snapshot, level, start) or b"") != stop:
        return False
    return total.to_bytes(_BYTES, "big") == fingerprint
