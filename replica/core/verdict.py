"""The verdict: how a supplier serves a consumer that says hello (DESIGN sections 5 and 8).

A pure function from what the supplier knows and what the consumer says. It is reached anew before every batch
and every range.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from crdt.clock import Clock
from crdt.dot import Incarnation
from replica.core.identity import Identity
from replica.core.member_rows import Member
from replica.core.messages import PROTOCOL_VERSION, Cause, Hello, Kind, Verdict
from replica.core.rows import StoreId

__all__ = ["Known", "Present", "judge"]


@dataclass(frozen=True, slots=True)
class Present:
    """The store that speaks for a cluster on another stream that is open now."""

    incarnation: Incarnation
    store_id: StoreId


@dataclass(frozen=True, slots=True)
class Known:
    """What a supplier knows when it judges."""

    identity: Identity
    sequence: int
    """The end of its log."""
    clock: Clock
    """Every dot it has seen."""
    member: Member | None
    """What it knows of the consumer's cluster."""
    present: Present | None = None
    """Who else speaks for that cluster now."""
    authenticated: Set[str] | None = None
    """The clusters that the transport vouches for; none: it vouches for nobody, and everyone is believed."""


def judge(known: Known, hello: Hello) -> Verdict:
    """The verdict over a consumer. Law: the first case that holds, in the order written here."""
    return _refusal(known, hello) or _service(known, hello)


def _refused(cause: Cause, reason: str) -> Verdict:
    return Verdict(Kind.REFUSED, cause, reason)


def _refusal(known: Known, hello: Hello) -> Verdict | None:
    identity, member = known.identity, known.member
    own, asker = identity.cluster, hello.cluster
    newest = None if member is None else member.known
    if hello.version != PROTOCOL_VERSION:
        return _refused(
            Cause.PROTOCOL_VERSION,
            f"{asker} speaks version {hello.version} of the replication protocol and {own} version "
            f"{PROTOCOL_VERSION}: run versions of Ricordo that agree",
        )
    if known.authenticated is not None and asker not in known.authenticated:
        return _refused(
            Cause.UNTRUSTED,
            f"the connection does not prove that it comes from {asker}: give that replica a certificate "
            "in its name",
        )
    if asker == own:
        return _refused(
            Cause.OWN_CLUSTER,
            f"both ends are cluster {own}: a replica was pointed at itself, or two were given one cluster id",
        )
    if newest is not None and hello.incarnation < newest.incarnation:
        return _refused(
            Cause.OLD_INCARNATION,
            f"a newer incarnation of {asker} is known: its data directory is an old copy, or two replicas "
            "have its cluster id; it has to begin a new incarnation",
        )
    if known.present is not None and known.present != Present(hello.incarnation, hello.store_id):
        return _refused(
            Cause.SECOND_STORE,
            f"another store is connected as {asker}: two replicas have one cluster id, or the old "
            "connection of one that began anew has not ended yet",
        )
    cursor = hello.cursor
    if cursor is not None and cursor.store_id == identity.store_id and cursor.sequence > known.sequence:
        return _refused(
            Cause.SUPPLIER_ROLLED_BACK,
            f"{asker} has applied changes up to {cursor.sequence} and {own} has only {known.sequence}: the "
            f"data of {own} was rolled back, and it begins a new incarnation",
        )
    if hello.clock.top(identity.actor) > known.clock.top(identity.actor):
        return _refused(
            Cause.SUPPLIER_ROLLED_BACK,
            f"{asker} has writes of {own} that {own} lacks: the data of {own} was rolled back, and it "
            "begins a new incarnation",
        )
    if _rolled_back(known, hello):
        return _refused(
            Cause.CONSUMER_ROLLED_BACK,
            f"{asker} had seen or acknowledged more than it says now: its data was rolled back, and it has "
            "to begin a new incarnation",
        )
    return None


def _rolled_back(known: Known, hello: Hello) -> bool:
    """Whether the consumer is known to have been further on, in this very incarnation.

    A statement that reached us another way may have overtaken the hello; by the consumer's own clock it is
    then not older. In that case nothing is refused: the welcome tells the consumer what is known of it, and
    the consumer judges itself, exactly.
    """
    member = known.member
    if member is None:
        return False
    acknowledged, cursor, store_id = member.acknowledged, hello.cursor, known.identity.store_id
    applied = cursor.sequence if cursor is not None and cursor.store_id == store_id else 0
    if (
        acknowledged is not None
        and (acknowledged.incarnation, acknowledged.store_id) == (hello.incarnation, store_id)
        and acknowledged.sequence > applied
    ):
        return True
    return (
        member.known is not None
        and member.known.incarnation == hello.incarnation
        and not member.known.clock.leq(hello.clock)
        and member.said_at is not None
        and member.said_at < hello.now
    )


def _service(known: Known, hello: Hello) -> Verdict:
    cursor, identity = hello.cursor, known.identity
    listed = known.member is not None and known.member.listed > 0
    if not hello.clock and (cursor is None or cursor.store_id != identity.store_id or listed):
        # Who has seen nothing cannot be misled by what was purged.
        return Verdict(Kind.EMPTY, Cause.NOTHING_SEEN, f"{hello.cluster} has seen nothing yet")
    if listed:
        return Verdict(
            Kind.RECONCILE,
            Cause.PASSED_BY,
            f"{identity.cluster} has purged, or taken over, what {hello.cluster} may not have seen",
        )
    if cursor is None:
        return Verdict(
            Kind.RECONCILE,
            Cause.NO_CURSOR,
            f"{hello.cluster} has data and has not replicated from {identity.cluster} before",
        )
    if cursor.store_id != identity.store_id:
        return Verdict(
            Kind.RECONCILE,
            Cause.OTHER_STORE,
            f"the store of {identity.cluster} is a new one since {hello.cluster} replicated from it",
        )
    return Verdict(Kind.TAIL, Cause.CURSOR, f"changes after {cursor.sequence}")
