"""Damaged register rows: noted, never used, fetched again from peers (DESIGN section 8).

While a row is damaged this store cannot vouch for its clock: it holds less than the clock says. So a supplier
sends what it can and completes no batch, and a reconcile waits before the row.

Where a row's key was damaged, no register is found under the right one, and to others that would look like a
purge. But the change log has a row for each register: what it names and is not there is lost, and from then
on counts as damaged.
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
    delete_register,
    get_clock,
    in_log,
    lost_registers,
    put_clock,
    put_register,
    put_unreadable,
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
    """Note the keys whose rows are damaged or lost; returns those that were not noted yet."""
    new: list[bytes] = []
    for key in keys:
        if is_noted(transaction, key) or (is_damaged(transaction, key) and in_log(transaction, key)):
            found = [key]
        elif found := [lost for lost in lost_registers(transaction) if not is_noted(transaction, lost)]:
            if is_damaged(transaction, key):
                # What was damaged is its key; under that there never was a register.
                delete_register(transaction, key)
            for lost in found:
                put_unreadable(transaction, lost)
        elif is_damaged(transaction, key):
            found = [key]
        for one in found:
            if not is_noted(transaction, one) and is_damaged(transaction, one):
                transaction.put(Table.META, _note(one), seal_frame(_note(one), b""))
                new.append(one)
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
