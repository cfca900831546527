"""The fold: the one record that a reader sees (DESIGN sections 3 and 4).

The fold of a register is a function of its siblings and ``now`` alone, so replicas with the same siblings
return the same bytes. What cannot be decoded stops nothing: it is left out and counted.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from crdt.codec import Undecodable, decode_record
from crdt.dot import Millis
from crdt.expiry import Life, life
from crdt.record import Record, join_records
from crdt.register import Register, Sibling

__all__ = ["Folded", "fold", "read_record", "version"]


_SMALL = 4096
"""Bytes up to which a payload, once decoded, is kept for the next fold of it."""

_decode_small = lru_cache(maxsize=1024)(decode_record)


@dataclass(frozen=True, slots=True)
class Folded:
    """A live entry, folded."""

    record: Record
    """The join of the records of the contributing values that decode and of the tombstones beside them."""
    life: Life
    undecodable: Register
    """The contributing values whose payload does not decode."""


def read_record(sibling: Sibling) -> Record | None:
    """The record in a sibling's payload; none when it does not decode."""
    payload = sibling.payload
    try:
        return _decode_small(payload) if len(payload) <= _SMALL else decode_record(payload)
    except Undecodable:
        return None


def fold(register: Register, now: Millis) -> Folded | None:
    """What a reader sees at ``now``; none when the entry is absent."""
    alive = life(register, now)
    if alive is None:
        return None
    records: list[Record] = []
    undecodable: list[Sibling] = []
    for sibling in register:
        if not sibling.tombstone and sibling not in alive.values:
            continue
        record = read_record(sibling)
        if record is not None:
            records.append(record)
        elif not sibling.tombstone:
            undecodable.append(sibling)
    return Folded(join_records(*records), alive, tuple(undecodable))


def version(register: Register) -> str:
    """An opaque name of what a register holds: a hash of the dots of its value siblings; empty when it has
    none.
    """
    values = [sibling.dot for sibling in register if not sibling.tombstone]
    if not values:
        return ""
    digest = hashlib.blake2b(digest_size=15)
    for dot in values:
        cluster = dot.actor.cluster.encode()
        digest.update(b"%d:%b%b%d;" % (len(cluster), cluster, dot.actor.incarnation, dot.counter))
    return digest.hexdigest()
