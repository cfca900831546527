"""The consumer's side of a reconcile: range by range, resumable (DESIGN section 7).

The supplier walks its keys; the consumer joins each range and settles the keys that the supplier does not
have. At the end it takes over the supplier's clock *as it was at the start*, and tails from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from crdt.dot import Millis
from replica.core.consumer import Applied, Dropped, betrayed
from replica.core.fingerprint import BEYOND, same_part
from replica.core.identity import Identity
from replica.core.joining import Joining, decode_changes
from replica.core.member_rows import next_mark
from replica.core.messages import Kind, Listed, Outline, Range, Welcome
from replica.core.must_reconcile import Moment, take_over
from replica.core.rows import Cursor, get_clock, put_clock, put_cursor, registers
from replica.core.storage import Transaction
from replica.core.underway import Reconcile, busy_with, get_reconcile, put_filling, put_reconcile

__all__ = ["Step", "begin", "compare", "join_range"]


@dataclass(frozen=True, slots=True)
class Step:
    """How a reconcile stands after something of it was done."""

    applied: Applied
    mark: int = 0
    position: bytes = b""
    """Everything below this key is done."""
    descend: int = 0
    """At ``position`` the stores differ by an outline of this level; 0: no outline was compared."""
    done: bool = False
    sequence: int = 0
    """When ``done``: the cursor now."""


def begin(transaction: Transaction, identity: Identity, welcome: Welcome, now: Millis) -> Step:
    """Begin a reconcile, or go on with the one that the welcome allows to resume.

    It is dropped when something else is under way.
    """
    assert welcome.verdict.kind is Kind.RECONCILE
    if busy_with(transaction) not in (None, welcome.cluster):
        return Step(Applied(dropped=Dropped.BUSY))
    state = get_reconcile(transaction)
    if (
        state is None
        or not welcome.resume
        or (state.store_id, state.mark) != (welcome.store_id, welcome.mark)
    ):
        state = Reconcile(
            supplier=welcome.cluster,
            store_id=welcome.store_id,
            mark=welcome.mark,
            position=b"",
            start_sequence=welcome.sequence,
            start_clock=welcome.clock,
            progress_at=now,
        )
        put_reconcile(transaction, state)
    taken_over = take_over(
        transaction,
        identity,
        welcome.cluster,
        welcome.store_id,
        welcome.must_reconcile,
        now,
        Moment.BEGIN,
    )
    return Step(Applied(taken_over=taken_over), state.mark, state.position)


def _accepted(
    transaction: Transaction, identity: Identity, supplier: str, message: Range | Outline
) -> Reconcile | Dropped:
    """The reconcile that the message continues."""
    if (message.for_incarnation, message.for_store_id) != (identity.incarnation, identity.store_id):
        return Dropped.NOT_FOR_US
    state = get_reconcile(transaction)
    if state is None or state.supplier != supplier:
        return Dropped.BUSY
    if (state.store_id, state.mark, state.position) != (message.store_id, message.mark, message.start):
        return Dropped.GAP
    return state


def join_range(
    transaction: Transaction, identity: Identity, supplier: str, message: Range, now: Millis
) -> Step:
    """Join a range, or say why not. Raises ProtocolError for one that no honest supplier sends."""
    changes = decode_changes(message.changes, message.clock)
    own = get_clock(transaction)
    doubt = betrayed(identity, own, message.clock, supplier)
    if doubt is not None:
        return Step(Applied(doubt=doubt))
    state = _accepted(transaction, identity, supplier, message)
    if isinstance(state, Dropped):
        return Step(Applied(dropped=state))
    remote = {change.key: change.register for change in changes}
    local = [key for key, _ in registers(transaction, message.start, message.stop or None)]

    # Below this point we make changes.
    joining = Joining(transaction, own, message.clock, message.store_id, identity.actor, now)
    for key in sorted({*remote, *local}):
        if key in remote:
            joining.take(key, remote[key])
        else:
            joining.miss(key)
    joining.store_clock()
    taken_over: tuple[str, ...] = ()
    if joining.purged_there:
        taken_over = take_over(
            transaction, identity, supplier, message.store_id, message.must_reconcile, now, Moment.EVIDENCE
        )
    done = not message.stop
    if done:
        taken_over += _finish(
            transaction, identity, state, message.must_reconcile, frozenset(message.members), now
        )
    else:
        put_reconcile(transaction, replace(state, position=message.stop, progress_at=now))
    applied = Applied(
        received=len(changes),
        changed=tuple(joining.changed),
        faults=tuple(joining.faults),
        damaged=tuple(joining.damaged),
        taken_over=taken_over,
        released=done,
    )
    return Step(applied, state.mark, message.stop, 0, done, state.start_sequence if done else 0)


def _finish(
    transaction: Transaction,
    identity: Identity,
    state: Reconcile,
    listed: tuple[Listed, ...],
    heard_of: frozenset[str],
    now: Millis,
) -> tuple[str, ...]:
    own = get_clock(transaction)
    put_clock(transaction, own, own.join(state.start_clock))
    put_cursor(transaction, state.supplier, Cursor(state.store_id, state.start_sequence))
    put_reconcile(transaction, None)
    put_filling(transaction, state.supplier, None)
    next_mark(transaction)
    return take_over(
        transaction,
        identity,
        state.supplier,
        state.store_id,
        listed,
        now,
        Moment.END,
        heard_of=heard_of,
    )


def compare(
    transaction: Transaction, identity: Identity, supplier: str, message: Outline, now: Millis
) -> Step:
    """Compare an outline with the own store: what agrees is done, up to the first part that differs.

    It never finishes a reconcile: the last range does, even an empty one, with the list of its snapshot.
    """
    state = _accepted(transaction, identity, supplier, message)
    if isinstance(state, Dropped):
        return Step(Applied(dropped=state))
    position, differs = message.start, False
    for part in message.parts:
        if not same_part(transaction, message.level, position, part.stop, part.fingerprint):
            differs = True
            break
        position = part.stop or BEYOND
    if position != state.position:
        put_reconcile(transaction, replace(state, position=position, progress_at=now))
    return Step(Applied(), state.mark, position, message.level if differs else 0)
