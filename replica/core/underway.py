"""What is under way in a store: its first filling, or a reconcile (DESIGN sections 5 to 7).

One of them at a time, with one supplier: meanwhile nothing is applied from others, and nothing is purged.
Both survive a restart, so that neither can be forgotten half done; both are given up when they make no
progress.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgpack

from crdt.clock import Clock
from crdt.codec import decode_clock, encode_clock
from crdt.dot import Millis
from replica.core.rows import StoreId, get_meta, put_meta
from replica.core.storage import Snapshot, Transaction

__all__ = [
    "PATIENCE",
    "Filling",
    "Reconcile",
    "busy_with",
    "clear_underway",
    "get_fillings",
    "get_reconcile",
    "give_up_stalled",
    "put_filling",
    "put_reconcile",
    "refresh",
    "shift",
]

PATIENCE = Millis(60_000)
"""``reconcile.timeout``: after so long without progress what is under way is given up."""

_FILLINGS = "fillings"
_RECONCILE = "reconcile"


@dataclass(frozen=True, slots=True)
class Filling:
    """A supplier's log that was begun to be read while this store was empty, and not read to its end yet."""

    store_id: StoreId
    """The supplier's."""
    exclusive: bool
    """Others wait for it. It ends by giving up; that the supplier's clock will be taken over without its
    history holds until the log was read to its end.
    """
    progress_at: Millis


@dataclass(frozen=True, slots=True)
class Reconcile:
    """An unfinished reconcile."""

    supplier: str
    store_id: StoreId
    """The supplier's."""
    mark: int
    """The number of this replica's entry on the supplier's list when it began; 0: none."""
    position: bytes
    """Everything below this key is done."""
    start_sequence: int
    """The end of the supplier's log when it began."""
    start_clock: Clock
    """The supplier's clock when it began."""
    progress_at: Millis


def get_fillings(snapshot: Snapshot) -> Mapping[str, Filling]:
    """The fillings that have not reached the end of the log, by supplier."""
    value = get_meta(snapshot, _FILLINGS)
    rows = [] if value is None else msgpack.unpackb(value)
    return {supplier: Filling(*filling) for supplier, *filling in rows}


def put_filling(transaction: Transaction, supplier: str, filling: Filling | None) -> None:
    """Store how a filling stands; none: it has reached the end."""
    rows = dict(get_fillings(transaction))
    if filling is None:
        if supplier not in rows:
            return
        del rows[supplier]
    else:
        rows[supplier] = filling
    _put_fillings(transaction, rows)


def _put_fillings(transaction: Transaction, rows: Mapping[str, Filling]) -> None:
    value = msgpack.packb(
        [(supplier, row.store_id, row.exclusive, row.progress_at) for supplier, row in sorted(rows.items())]
    )
    assert value is not None
    put_meta(transaction, _FILLINGS, value)


def get_reconcile(snapshot: Snapshot) -> Reconcile | None:
    """The reconcile that is under way."""
    value = get_meta(snapshot, _RECONCILE)
    if not value:
        return None
    supplier, store_id, mark, position, start_sequence, start_clock, progress_at = msgpack.unpackb(value)
    return Reconcile(
        supplier, store_id, mark, position, start_sequence, decode_clock(start_clock), progress_at
    )


def put_reconcile(transaction: Transaction, state: Reconcile | None) -> None:
    """Store how the reconcile stands; none: nothing of the kind is under way."""
    if state is None:
        put_meta(transaction, _RECONCILE, b"")
        return
    value = msgpack.packb(
        (
            state.supplier,
            state.store_id,
            state.mark,
            state.position,
            state.start_sequence,
            encode_clock(state.start_clock),
            state.progress_at,
        )
    )
    assert value is not None
    put_meta(transaction, _RECONCILE, value)


def busy_with(snapshot: Snapshot) -> str | None:
    """The supplier for which all others wait; none when nothing is under way."""
    state = get_reconcile(snapshot)
    if state is not None:
        return state.supplier
    return next((one for one, filling in get_fillings(snapshot).items() if filling.exclusive), None)


def give_up_stalled(
    transaction: Transaction, now: Millis, timeout: Millis, *, fillings: bool = True
) -> str | None:
    """Give up what made no progress for so long, so that a dead supplier blocks nobody. Returns its supplier.

    What was joined stays. The cursor stays, too: it is what this store has acknowledged.
    """
    state = get_reconcile(transaction)
    if state is not None and now - state.progress_at >= timeout:
        put_reconcile(transaction, None)
        return state.supplier
    for supplier, filling in get_fillings(transaction).items() if fillings else ():
        if filling.exclusive and now - filling.progress_at >= timeout:
            put_filling(transaction, supplier, replace(filling, exclusive=False))
            return supplier
    return None


def refresh(transaction: Transaction, now: Millis) -> None:
    """Start: the time in which this replica was down does not count as time without progress."""
    _move(transaction, lambda _: now)


def shift(transaction: Transaction, step: Millis) -> None:
    """This replica's clock has stepped by so much: it does not count as time, or as no time, without
    progress.
    """
    _move(transaction, lambda progress_at: Millis(progress_at + step))


def _move(transaction: Transaction, moved: Callable[[Millis], Millis]) -> None:
    state = get_reconcile(transaction)
    if state is not None:
        put_reconcile(transaction, replace(state, progress_at=moved(state.progress_at)))
    fillings = get_fillings(transaction)
    if fillings:
        rows = {
            supplier: replace(filling, progress_at=moved(filling.progress_at))
            for supplier, filling in fillings.items()
        }
        _put_fillings(transaction, rows)


def clear_underway(transaction: Transaction) -> None:
    """Drop it all: the store begins anew (section 8)."""
    if get_reconcile(transaction) is not None:
        put_reconcile(transaction, None)
    if get_fillings(transaction):
        _put_fillings(transaction, {})
