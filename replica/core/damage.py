"""Damaged register rows: noted, never used, fetched again from peers (DESIGN section 8).

While a row is damaged this store cannot vouch for its clock: it holds less than the clock says. So a supplier
sends what it can and completes no batch, and a reconcile waits before the row.
"""

from __future__ import annotations

from collections.abc import Iterable

from crdt.clock import Clock
from crdt.codec import Damaged, Undecodable, decode_register, open_frame, seal_frame
from crdt.dot import Dot
from crdt.key import EntryKey, InvalidKey
from crdt.register import Register, join
from replica.core.messages import Fetched, ProtocolError
from replica.core.rows import (
    get_clock,
    put_clock,
    put_register,
    read_encoding,
    read_register,
)
from replica.core.storage import DamagedRow, Snapshot, Table, Transaction
from replica.core.vanishing import drop_register

__all__ = ["damaged_keys", "fetch", "heal", "is_damaged", "is_noted", "note_damage"]

_NOTE = b"damaged\0"


def _note(key: bytes) -> bytes:
    return _NOTE + key


def is_damaged(snapshot: Snapshot, key: bytes) -> bool:
    """Whether the row at a key is damaged now."""
    try:
        read_register(snapshot, key)
    except DamagedRow:
        return True
    return False


def is_noted(snapshot: Snapshot, key: bytes) -> bool:
    """Whether it is on disk that the row at a key was found damaged."""
    return snapshot.get(Table.META, _note(key)) is not None


def note_damage(transaction: Transaction, keys: Iterable[bytes]) -> tuple[bytes, ...]:
    """Note the keys whose rows are damaged; returns those that were not noted yet."""
    new = [key for key in keys if is_damaged(transaction, key) and not is_noted(transaction, key)]
    for key in new:
        transaction.put(Table.META, _note(key), seal_frame(_note(key), b""))
    return tuple(new)


def damaged_keys(snapshot: Snapshot) -> tuple[bytes, ...]:
    """The keys that were noted and are still damaged."""
    noted = [key[len(_NOTE) :] for key, _ in snapshot.items(Table.META, _NOTE, _NOTE[:-1] + b"\x01")]
    return tuple(key for key in noted if is_damaged(snapshot, key))


def fetch(snapshot: Snapshot, keys: Iterable[bytes]) -> tuple[Fetched, ...]:
    """What a peer gets that asks for keys; those that are damaged here, too, are left out."""
    clock = get_clock(snapshot)
    fetched = []
    for key in keys:
        try:
            encoding = read_encoding(snapshot, key)
        except DamagedRow:
            continue
        register = None if encoding is None else seal_frame(key, encoding)
        fetched.append(Fetched(key, register, clock))
    return tuple(fetched)


def _opened(answer: Fetched) -> Register:
    if answer.register is None:
        return ()
    try:
        return decode_register(open_frame(answer.key, answer.register))
    except (Damaged, Undecodable) as error:
        raise ProtocolError(f"a fetched register does not open: {error}") from None


def heal(transaction: Transaction, key: bytes, answers: Iterable[Fetched], *, everyone: bool) -> bool:
    """Replace a damaged row by the join of what peers have; false when it has to wait.

    The answers are joined under their own clocks: that this store's clock claims to have seen a sibling does
    not stand in the way. They suffice when together they have seen all that this store has; or when
    ``everyone`` who can be asked was asked: what only the damaged row held is then lost, and the caller says
    so.
    Raises ProtocolError for an answer that does not open.
    """
    try:
        EntryKey.from_store(key)
    except InvalidKey as error:
        raise ProtocolError(f"a fetched key is none: {error}") from None
    if not is_damaged(transaction, key):
        return True
    register: Register = ()
    seen = Clock()
    dots: list[Dot] = []
    for answer in answers:
        joined = join(register, _opened(answer), seen, answer.clock)
        register = joined.register
        dots += joined.seen
        seen = seen.join(answer.clock)
    own = get_clock(transaction)
    if not (own.leq(seen) or everyone) or not seen:
        return False
    put_clock(transaction, own, own.with_dots(dots))
    if register:
        put_register(transaction, key, register, origin=None)
    else:
        drop_register(transaction, key)
    transaction.delete(Table.META, _note(key))
    return True
