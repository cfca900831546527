"""A past in doubt, and the new incarnation that answers it (DESIGN section 8).

A dot is never minted twice. When anything says that this store is not the newest there was of itself, it
begins a new incarnation, with a new store id, no cursors and nothing under way. That is cheap; being wrong is
not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crdt.dot import Incarnation, Millis
from replica.core.identity import Entropy, Identity, begin_anew
from replica.core.messages import Answer
from replica.core.rows import get_clock, get_cursor, get_meta, put_meta
from replica.core.storage import Snapshot, Transaction
from replica.core.underway import clear_underway

__all__ = ["Doubt", "doubt_at_start", "doubt_of_place", "settle"]

_PLACE = "place"


@dataclass(frozen=True, slots=True)
class Doubt:
    """This replica's past is in doubt: it has to begin a new incarnation."""

    reason: str
    """In words for an operator."""
    above: Incarnation | None = None
    """The new one has to be greater than this."""


def settle(transaction: Transaction, doubt: Doubt, now: Millis, entropy: Entropy) -> Identity:
    """Begin a new incarnation. Every session of the old one has to end; peers reconcile with the new one."""
    clear_underway(transaction)
    return begin_anew(transaction, now, entropy, above=doubt.above)


def doubt_of_place(transaction: Transaction, place: bytes) -> Doubt | None:
    """Whether this store is a copy: it does not lie where it was left. Where it lies now is noted.

    ``place`` tells a store from every copy of its files. The original may run on, or come back: no peer could
    tell the two apart, and they would mint the same dots.
    """
    noted = get_meta(transaction, _PLACE)
    if noted == place:
        return None
    put_meta(transaction, _PLACE, place)
    return None if noted is None else Doubt("the data directory is a copy")


def doubt_at_start(
    snapshot: Snapshot, identity: Identity, configured: Iterable[str], answers: Mapping[str, Answer]
) -> Doubt | None:
    """What follows from the answers of the peers that were asked, before anything is written after a start.

    ``answers`` are those that came in time, by cluster. A peer that could not be asked, that knows nothing of
    this replica, or that is itself new or filling, may be the one that has seen what was lost here.
    """
    own = get_clock(snapshot)
    newest: Incarnation | None = None
    reasons = []
    for cluster in sorted({*configured} - {identity.cluster}):
        answer = answers.get(cluster)
        if answer is None:
            reasons.append(f"{cluster} could not be asked what it has seen of this replica")
            continue
        if answer.incarnation is not None and (newest is None or answer.incarnation > newest):
            newest = answer.incarnation
        cursor = get_cursor(snapshot, cluster)
        applied = cursor.sequence if cursor is not None and cursor.store_id == answer.store_id else 0
        if answer.connected:
            reasons.append(f"{cluster} is connected to another replica with this very store")
        elif answer.incarnation is not None and answer.incarnation > identity.incarnation:
            reasons.append(f"{cluster} has heard of a newer incarnation of this replica")
        elif answer.clock.top(identity.actor) > own.top(identity.actor):
            reasons.append(f"{cluster} has writes of this replica that this replica does not have")
        elif answer.incarnation == identity.incarnation and not answer.clock.leq(own):
            reasons.append(f"{cluster} knows that this replica had seen more than it has now")
        elif answer.acknowledged is not None and answer.acknowledged > applied:
            reasons.append(f"{cluster} has an acknowledgement of this replica that is later than its cursor")
        elif answer.filling or answer.incarnation is None:
            reasons.append(f"{cluster} is new or incomplete, and cannot tell what was seen of this replica")
    if not reasons:
        return None
    return Doubt("; ".join(reasons), newest)
