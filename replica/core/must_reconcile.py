"""The list of members that must reconcile with this replica before they may tail (DESIGN sections 6 and 7).

A member is on it when this replica has purged something without waiting for it, or has taken over a clock
whose history it does not have: what is absent here may then be present there, and the clock alone would tell
it nothing. An entry has a number; when the same happens again the number grows.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Set
from dataclasses import replace

from crdt.dot import Millis
from replica.core.identity import Identity
from replica.core.member_rows import Member, Taken, get_member, members, next_mark, put_member
from replica.core.messages import Listed
from replica.core.rows import StoreId
from replica.core.storage import Snapshot, Transaction

__all__ = ["Moment", "get_list", "leave_list", "put_on_list", "take_over"]


def get_list(snapshot: Snapshot) -> tuple[Listed, ...]:
    """The list, by cluster."""
    return tuple(Listed(member.cluster, member.listed) for member in members(snapshot) if member.listed)


def put_on_list(transaction: Transaction, clusters: Iterable[str]) -> None:
    """Put members on the list, under a new number."""
    number = next_mark(transaction)
    for cluster in clusters:
        member = get_member(transaction, cluster)
        if member is not None:
            put_member(transaction, replace(member, listed=number))


def leave_list(transaction: Transaction, cluster: str, number: int) -> bool:
    """A member has reconciled; false when it has been put on the list again since it began."""
    member = get_member(transaction, cluster)
    if member is None or member.listed != number:
        return False
    if number:
        put_member(transaction, replace(member, listed=0))
    return True


class Moment(enum.Enum):
    """When a supplier's list is taken over."""

    BEGIN = "begin"
    """At the start of a reconcile."""
    END = "end"
    """At the end of a reconcile, or of a first filling."""
    EVIDENCE = "evidence"
    """Something here was removed on the word of the supplier's clock alone (section 4, step 6)."""


def take_over(
    transaction: Transaction,
    identity: Identity,
    supplier: str,
    store_id: StoreId,
    listed: Iterable[Listed],
    now: Millis,
    moment: Moment,
    *,
    heard_of: Set[str] | None = None,
) -> tuple[str, ...]:
    """Put on the list whom a supplier's list names: whoever it misleads, this replica would now mislead too.

    An entry is taken over from a supplier once: else replicas in a ring would hand each other's members round
    for ever. Once at the beginning of a reconcile and once at its end, because a member that reconciles with
    this replica in between misses the rest; and again on evidence, which cannot recur for ever.

    With ``heard_of``, the members that the supplier has heard of, every other member is put on the list too.
    """
    taken: dict[str, Member] = {}
    for entry in listed:
        if entry.cluster == identity.cluster:
            continue
        member = get_member(transaction, entry.cluster) or Member(entry.cluster, now)
        note = member.taken.get(supplier)
        if note is None or note.store_id != store_id:
            note = Taken(store_id, 0, 0)
        if entry.number <= (note.begun if moment is Moment.BEGIN else note.settled) and (
            moment is not Moment.EVIDENCE
        ):
            continue
        begun = max(note.begun, entry.number)
        settled = note.settled if moment is Moment.BEGIN else max(note.settled, entry.number)
        taken[entry.cluster] = replace(
            member, taken={**member.taken, supplier: Taken(store_id, begun, settled)}
        )
    if heard_of is not None:
        for member in members(transaction):
            if member.cluster != supplier and member.cluster not in heard_of:
                taken.setdefault(member.cluster, member)
    if taken:
        number = next_mark(transaction)
        for member in taken.values():
            put_member(transaction, replace(member, listed=number))
    return tuple(sorted(taken))
