"""The consumer's side of replication: its hello, and what it makes of a batch (DESIGN sections 4 and 5).

Functions over a snapshot or a transaction. A batch is applied whole, in one transaction, or dropped whole; a
batch that was dropped has changed nothing and can be asked for again.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from crdt.clock import Clock
from crdt.dot import Actor, Millis
from replica.core.doubt import Doubt
from replica.core.identity import Identity
from replica.core.joining import Fault, Joining, decode_changes
from replica.core.member_rows import next_mark
from replica.core.membership import Told, tell
from replica.core.messages import Batch, Hello, Resume
from replica.core.must_reconcile import Moment, take_over
from replica.core.rows import Cursor, get_clock, get_cursor, put_cursor
from replica.core.storage import Snapshot, Transaction
from replica.core.underway import Filling, busy_with, get_fillings, get_reconcile, put_filling

__all__ = ["Applied", "Dropped", "apply", "betrayed", "greet"]


class Dropped(enum.Enum):
    """Why what a supplier sent was not applied."""

    NOT_FOR_US = "it was asked for by another incarnation or store"
    BUSY = "a first filling or a reconcile with another supplier is under way"
    DUPLICATE = "it is applied already"
    GAP = "it does not continue the cursor"


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a batch or a range."""

    dropped: Dropped | None = None
    """None: it was applied."""
    doubt: Doubt | None = None
    """It betrays that this replica's past was rolled back; it was not applied."""
    upto: int = 0
    """The cursor now."""
    received: int = 0
    """Registers that came."""
    changed: tuple[bytes, ...] = ()
    """Keys whose registers changed here."""
    faults: tuple[Fault, ...] = ()
    damaged: tuple[bytes, ...] = ()
    """Keys whose own row turned out to be damaged."""
    taken_over: tuple[str, ...] = ()
    """Members that were put on the list of those that must reconcile."""
    released: bool = False
    """A first filling or a reconcile has ended: suppliers that were waiting can go on."""


def greet(
    snapshot: Snapshot, identity: Identity, supplier: str, now: Millis, max_silence: Millis
) -> tuple[Hello, Mapping[str, Told]]:
    """The hello to a supplier, and what it tells of members."""
    knowledge, told = tell(snapshot, identity, {}, now, max_silence)
    state = get_reconcile(snapshot)
    resume = None
    if state is not None and state.supplier == supplier:
        resume = Resume(state.store_id, state.mark, state.position)
    hello = Hello(
        cluster=identity.cluster,
        incarnation=identity.incarnation,
        store_id=identity.store_id,
        clock=get_clock(snapshot),
        cursor=get_cursor(snapshot, supplier),
        resume=resume,
        filling=supplier in get_fillings(snapshot),
        knowledge=knowledge,
        now=now,
    )
    return hello, told


def betrayed(identity: Identity, own: Clock, theirs: Clock, supplier: str) -> Doubt | None:
    """Whether a supplier's clock holds writes of this incarnation that this store lacks (section 8)."""
    if theirs.top(identity.actor) > own.top(identity.actor):
        return Doubt(f"{supplier} has writes of this replica that this replica does not have")
    return None


def _nothing_but_own(clock: Clock, actor: Actor) -> bool:
    return all(one == actor for one in clock.runs)


def _refuse(
    transaction: Transaction, identity: Identity, supplier: str, batch: Batch, own: Clock
) -> Dropped | None:
    if (batch.for_incarnation, batch.for_store_id) != (identity.incarnation, identity.store_id):
        return Dropped.NOT_FOR_US
    if get_reconcile(transaction) is not None or busy_with(transaction) not in (None, supplier):
        return Dropped.BUSY
    if _begins_filling(transaction, supplier, batch):
        # Only a store that has seen nothing may read a log as if nothing had been purged past it.
        return None if batch.after == 0 and _nothing_but_own(own, identity.actor) else Dropped.GAP
    cursor = get_cursor(transaction, supplier)
    if cursor is None or cursor.store_id != batch.store_id:
        return Dropped.GAP
    if cursor.sequence == batch.after:
        return None
    return Dropped.DUPLICATE if cursor.sequence >= batch.upto else Dropped.GAP


def _begins_filling(snapshot: Snapshot, supplier: str, batch: Batch) -> bool:
    """Whether the supplier takes this store for one that fills itself, and it has not begun to."""
    filling = get_fillings(snapshot).get(supplier)
    return bool(batch.members) and (filling is None or filling.store_id != batch.store_id)


def apply(transaction: Transaction, identity: Identity, supplier: str, batch: Batch, now: Millis) -> Applied:
    """Apply a batch, or say why not. Raises ProtocolError for one that no honest supplier sends.

    ``identity`` is the store's own, read in this transaction.
    """
    changes = decode_changes(batch.changes, batch.clock)
    own = get_clock(transaction)
    doubt = betrayed(identity, own, batch.clock, supplier)
    if doubt is not None:
        return Applied(doubt=doubt)
    dropped = _refuse(transaction, identity, supplier, batch, own)
    if dropped is not None:
        return Applied(dropped=dropped)
    cursor = get_cursor(transaction, supplier)
    filling = get_fillings(transaction).get(supplier)
    if _begins_filling(transaction, supplier, batch):
        filling = Filling(batch.store_id, True, now)

    # Below this point we make changes.
    joining = Joining(transaction, own, batch.clock, batch.store_id, identity.actor, now)
    for change in changes:
        joining.take(change.key, change.register)
    joining.store_clock(seen=batch.clock if batch.complete else None)
    after = Cursor(batch.store_id, batch.upto)
    if after != cursor:
        put_cursor(transaction, supplier, after)
    taken_over: tuple[str, ...] = ()
    if joining.purged_there:
        taken_over = take_over(
            transaction, identity, supplier, batch.store_id, batch.must_reconcile, now, Moment.EVIDENCE
        )
    released = False
    if filling is not None:
        if batch.complete:
            put_filling(transaction, supplier, None)
            taken_over += _take_over_clock(transaction, identity, supplier, batch, now)
            released = filling.exclusive
        else:
            put_filling(transaction, supplier, Filling(batch.store_id, filling.exclusive, now))
    return Applied(
        upto=batch.upto,
        received=len(changes),
        changed=tuple(joining.changed),
        faults=tuple(joining.faults),
        damaged=tuple(joining.damaged),
        taken_over=taken_over,
        released=released,
    )


def _take_over_clock(
    transaction: Transaction, identity: Identity, supplier: str, batch: Batch, now: Millis
) -> tuple[str, ...]:
    """A supplier's clock was taken over without its history (section 7): so is whom it would mislead."""
    if not batch.clock:
        return ()
    next_mark(transaction)
    return take_over(
        transaction,
        identity,
        supplier,
        batch.store_id,
        batch.must_reconcile,
        now,
        Moment.END,
        heard_of=frozenset(batch.members),
    )
