"""The supplier's side of replication: what it reads for a consumer (DESIGN sections 5 and 7).

Every function reads one snapshot and changes nothing. What is read together belongs together: registers, the
sequence reached, and the supplier's clock, which the consumer joins them under.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from crdt.clock import EMPTY_CLOCK
from crdt.codec import seal_frame
from crdt.dot import Incarnation, Millis
from replica.core.damage import damaged_keys, is_noted
from replica.core.fingerprint import is_cut
from replica.core.identity import Identity
from replica.core.member_rows import get_member, members
from replica.core.membership import get_acknowledged
from replica.core.messages import Answer, Batch, Change, Question, Range
from replica.core.must_reconcile import get_list
from replica.core.rows import StoreId, changes_after, encodings, get_clock, get_sequence, read_encoding
from replica.core.storage import DamagedRow, Snapshot
from replica.core.underway import busy_with
from replica.core.verdict import Known, Present

__all__ = ["Asker", "ReadBatch", "ReadRange", "answer", "get_known", "get_mark", "read_batch", "read_range"]

_SCAN_MAX = 2000
"""How many rows of the log one batch may pass over: a step of the event loop stays short."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The consumer that a stream serves."""

    cluster: str
    incarnation: Incarnation
    store_id: StoreId


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch, and what could not be read for it."""

    batch: Batch
    damaged: tuple[bytes, ...]
    """Keys whose rows are damaged: skipped, and to be reported."""
    waits: bool
    """It ends before a damaged row that is not noted yet."""


@dataclass(frozen=True, slots=True)
class ReadRange:
    """A range, and what could not be read for it."""

    range: Range | None
    """None: the very first row is damaged, and the reconcile waits until it is healed."""
    damaged: bytes | None
    """The key before which the range had to end."""


def get_known(
    snapshot: Snapshot,
    identity: Identity,
    cluster: str,
    present: Present | None = None,
    authenticated: Set[str] | None = None,
) -> Known:
    """What a verdict over a consumer is based on."""
    return Known(
        identity=identity,
        sequence=get_sequence(snapshot),
        clock=get_clock(snapshot),
        member=get_member(snapshot, cluster),
        present=present,
        authenticated=authenticated,
    )


def get_mark(snapshot: Snapshot, cluster: str) -> int:
    """The number of a member's entry on the list of those that must reconcile; 0: it is not on it."""
    member = get_member(snapshot, cluster)
    return 0 if member is None else member.listed


def _member_names(snapshot: Snapshot, identity: Identity) -> tuple[str, ...]:
    return tuple(sorted({identity.cluster, *(member.cluster for member in members(snapshot))}))


def read_batch(
    snapshot: Snapshot,
    identity: Identity,
    asker: Asker,
    after: int,
    limit: int,
    now: Millis,
    *,
    filling: bool,
) -> ReadBatch:
    """The changes after a cursor, up to ``limit`` bytes of registers, and at least one if there is any.

    A change is left out only if its register came from this very consumer and has not changed since. A
    damaged row is skipped, and while there is one no batch is complete; so is a register that is not there
    although the log names it. It is not skipped before it is noted: after a stop in between nobody would know
    that the clock claims too much.
    """
    changes: list[Change] = []
    damaged: list[bytes] = []
    upto, size, reached, waits = after, 0, True, False
    for scanned, change in enumerate(changes_after(snapshot, after)):
        if scanned >= _SCAN_MAX:
            reached = False
            break
        if change.origin != asker.store_id:
            try:
                encoding = read_encoding(snapshot, change.key)
            except DamagedRow:
                encoding = None
            if encoding is None:
                damaged.append(change.key)
                if not is_noted(snapshot, change.key):
                    reached, waits = False, True
                    break
            else:
                if changes and size + len(encoding) > limit:
                    reached = False
                    break
                size += len(encoding) + len(change.key)
                changes.append(Change(change.key, seal_frame(change.key, encoding)))
        upto = change.sequence
    if reached:
        upto = get_sequence(snapshot)
    batch = Batch(
        store_id=identity.store_id,
        for_incarnation=asker.incarnation,
        for_store_id=asker.store_id,
        after=after,
        upto=upto,
        changes=tuple(changes),
        clock=get_clock(snapshot),
        complete=reached and not damaged_keys(snapshot),
        must_reconcile=get_list(snapshot),
        members=_member_names(snapshot, identity) if filling else (),
        now=now,
    )
    return ReadBatch(batch, tuple(damaged), waits)


def read_range(
    snapshot: Snapshot,
    identity: Identity,
    asker: Asker,
    start: bytes,
    least: int,
    limit: int,
    now: Millis,
) -> ReadRange:
    """The registers from a key on, up to ``limit`` bytes, and at least one if there is any.

    Beyond ``least`` bytes the range ends at the next cut between fingerprinted parts. A key that it leaves
    out is one that the supplier does not have; so it ends before a damaged row.
    """
    changes: list[Change] = []
    size, stop = 0, b""
    damaged: bytes | None = None
    for key, encoding in encodings(snapshot, start):
        if isinstance(encoding, DamagedRow):
            # Before it is noted nobody knows whether it is the key that was damaged, and another one is lost.
            if (not changes and key == start) or not is_noted(snapshot, key):
                return ReadRange(None, key)
            stop, damaged = key, key
            break
        if changes and (size + len(encoding) > limit or (size > least and is_cut(key))):
            stop = key
            break
        size += len(encoding) + len(key)
        changes.append(Change(key, seal_frame(key, encoding)))
    read = Range(
        store_id=identity.store_id,
        for_incarnation=asker.incarnation,
        for_store_id=asker.store_id,
        mark=get_mark(snapshot, asker.cluster),
        start=start,
        stop=stop,
        changes=tuple(changes),
        clock=get_clock(snapshot),
        must_reconcile=get_list(snapshot),
        members=_member_names(snapshot, identity),
        now=now,
    )
    return ReadRange(read, damaged)


def answer(snapshot: Snapshot, identity: Identity, question: Question, *, connected: bool = False) -> Answer:
    """What this replica has seen of one that asks at its start (section 8).

    ``connected``: a stream with that very store is open.
    """
    member = get_member(snapshot, question.cluster)
    known = None if member is None else member.known
    return Answer(
        cluster=identity.cluster,
        store_id=identity.store_id,
        incarnation=None if known is None else known.incarnation,
        clock=EMPTY_CLOCK if known is None else known.clock,
        acknowledged=get_acknowledged(snapshot, identity, question.cluster, question.incarnation),
        filling=busy_with(snapshot) is not None,
        connected=connected,
    )
