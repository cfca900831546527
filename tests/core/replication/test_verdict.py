"""The verdict: every case by itself, and which of several comes first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, combinations

import pytest

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.dot import Actor, Incarnation, Millis
from replica.core.identity import Identity
from replica.core.member_rows import Acknowledged, Member, Stated
from replica.core.messages import Cause, Hello, Kind
from replica.core.rows import Cursor
from replica.core.verdict import Known, Present, judge


def _id(number: int) -> bytes:
    return number.to_bytes(16, "big")


OWN = Identity("eu", Incarnation(_id(1)), _id(100))
ASKER = Actor("us", Incarnation(_id(5)))
SEEN = Clock.up_to({ASKER: 7, OWN.actor: 9})
NOW = Millis(1_000_000)

Case = tuple[Known, Hello]


def _member(**changes: object) -> Member:
    known = Stated(ASKER.incarnation, Clock.up_to({ASKER: 5}), {})
    member = Member("us", NOW, said_at=Millis(NOW - 1000), skew=Millis(0), reported=True, known=known)
    return replace(member, **changes)  # type: ignore[arg-type]


KNOWN = Known(OWN, sequence=40, clock=SEEN, member=_member())
HELLO = Hello(
    cluster="us",
    incarnation=ASKER.incarnation,
    store_id=_id(200),
    clock=SEEN,
    cursor=Cursor(OWN.store_id, 30),
    resume=None,
    filling=False,
    knowledge=(),
    now=NOW,
)


def member_of(known: Known) -> Member:
    assert known.member is not None
    return known.member


def test_a_consumer_whose_cursor_names_this_store_tails() -> None:
    verdict = judge(KNOWN, HELLO)
    assert (verdict.kind, verdict.cause) == (Kind.TAIL, Cause.CURSOR)
    assert "30" in verdict.reason


@pytest.mark.parametrize("listed", [0, 3])
@pytest.mark.parametrize("known", [None, _member()])
@pytest.mark.parametrize("cursor", [None, Cursor(_id(77), 3)])
def test_a_consumer_that_has_seen_nothing_gets_the_log_from_its_start(
    listed: int, known: Member | None, cursor: Cursor | None
) -> None:
    member = None if known is None else replace(known, listed=listed, known=None)
    verdict = judge(replace(KNOWN, member=member), replace(HELLO, clock=EMPTY_CLOCK, cursor=cursor))
    assert (verdict.kind, verdict.cause) == (Kind.EMPTY, Cause.NOTHING_SEEN)


def test_what_was_purged_past_it_cannot_mislead_who_has_seen_nothing() -> None:
    known = replace(KNOWN, member=_member(listed=3, known=None))
    hello = replace(HELLO, clock=EMPTY_CLOCK, cursor=Cursor(OWN.store_id, 0))
    assert judge(known, hello).kind is Kind.EMPTY
    assert judge(replace(known, member=_member(known=None)), hello).kind is Kind.TAIL


@pytest.mark.parametrize(
    ("known", "hello", "cause"),
    [
        (KNOWN, replace(HELLO, cursor=None), Cause.NO_CURSOR),
        (replace(KNOWN, member=None), replace(HELLO, cursor=None), Cause.NO_CURSOR),
        (KNOWN, replace(HELLO, cursor=Cursor(_id(77), 30)), Cause.OTHER_STORE),
        (replace(KNOWN, member=_member(listed=1)), HELLO, Cause.PASSED_BY),
        (replace(KNOWN, member=_member(listed=1)), replace(HELLO, cursor=None), Cause.PASSED_BY),
    ],
)
def test_anybody_else_reconciles(known: Known, hello: Hello, cause: Cause) -> None:
    verdict = judge(known, hello)
    assert (verdict.kind, verdict.cause) == (Kind.RECONCILE, cause)


def _version(known: Known, hello: Hello) -> Case:
    return known, replace(hello, version=2)


def _untrusted(known: Known, hello: Hello) -> Case:
    return replace(known, authenticated=frozenset({"ap"})), hello


def _own_cluster(known: Known, hello: Hello) -> Case:
    return known, replace(hello, cluster="eu")


def _old(known: Known, hello: Hello) -> Case:
    newer = Stated(Incarnation(_id(9)), EMPTY_CLOCK, {})
    return replace(known, member=replace(member_of(known), known=newer)), hello


def _second_store(known: Known, hello: Hello) -> Case:
    return replace(known, present=Present(hello.incarnation, _id(201))), hello


def _supplier_rolled_back(known: Known, hello: Hello) -> Case:
    return known, replace(hello, cursor=Cursor(OWN.store_id, 41))


def _consumer_rolled_back(known: Known, hello: Hello) -> Case:
    acknowledged = Acknowledged(hello.incarnation, OWN.store_id, 50)
    return replace(known, member=replace(member_of(known), acknowledged=acknowledged)), hello


REFUSALS: list[tuple[Cause, Callable[[Known, Hello], Case]]] = [
    (Cause.PROTOCOL_VERSION, _version),
    (Cause.UNTRUSTED, _untrusted),
    (Cause.OWN_CLUSTER, _own_cluster),
    (Cause.OLD_INCARNATION, _old),
    (Cause.SECOND_STORE, _second_store),
    (Cause.SUPPLIER_ROLLED_BACK, _supplier_rolled_back),
    (Cause.CONSUMER_ROLLED_BACK, _consumer_rolled_back),
]


@pytest.mark.parametrize(
    "chosen",
    list(chain.from_iterable(combinations(REFUSALS, count) for count in range(1, len(REFUSALS) + 1))),
    ids=lambda chosen: "+".join(cause.name for cause, _ in chosen),
)
def test_the_first_refusal_that_holds_is_the_verdict(
    chosen: tuple[tuple[Cause, Callable[[Known, Hello], Case]], ...],
) -> None:
    known, hello = KNOWN, HELLO
    for _, make in chosen:
        known, hello = make(known, hello)
    verdict = judge(known, hello)
    assert (verdict.kind, verdict.cause) == (Kind.REFUSED, chosen[0][0])
    assert len(verdict.reason) > 40, "a reason tells an operator what to do"


def test_a_consumer_that_the_transport_vouches_for_is_not_refused() -> None:
    assert judge(replace(KNOWN, authenticated=frozenset({"us", "ap"})), HELLO).kind is Kind.TAIL


def test_the_same_store_on_another_stream_is_a_reconnect() -> None:
    assert judge(replace(KNOWN, present=Present(HELLO.incarnation, HELLO.store_id)), HELLO).kind is Kind.TAIL


def test_a_newer_incarnation_than_known_is_served() -> None:
    assert judge(KNOWN, replace(HELLO, incarnation=Incarnation(_id(6)))).kind is Kind.TAIL


def test_writes_of_the_supplier_that_it_lacks_betray_its_rollback() -> None:
    more = replace(HELLO, clock=SEEN.with_run(OWN.actor, 10, 10))
    assert judge(KNOWN, more).cause is Cause.SUPPLIER_ROLLED_BACK
    other = Actor("eu", Incarnation(_id(0)))
    old_life = replace(HELLO, clock=SEEN.with_run(other, 1, 3))
    assert judge(KNOWN, old_life).kind is Kind.TAIL


def test_a_cursor_at_the_end_of_the_log_is_no_rollback() -> None:
    assert judge(KNOWN, replace(HELLO, cursor=Cursor(OWN.store_id, 40))).kind is Kind.TAIL


@pytest.mark.parametrize(
    ("sequence", "incarnation", "store_id", "rolled_back"),
    [
        (31, ASKER.incarnation, OWN.store_id, True),
        (30, ASKER.incarnation, OWN.store_id, False),
        (31, Incarnation(_id(4)), OWN.store_id, False),
        (31, ASKER.incarnation, _id(99), False),
    ],
)
def test_an_acknowledgement_later_than_the_cursor_betrays_the_consumers_rollback(
    sequence: int, incarnation: Incarnation, store_id: bytes, rolled_back: bool
) -> None:
    known = replace(KNOWN, member=_member(acknowledged=Acknowledged(incarnation, store_id, sequence)))
    assert (judge(known, HELLO).cause is Cause.CONSUMER_ROLLED_BACK) == rolled_back
    assert (judge(known, replace(HELLO, cursor=None)).cause is Cause.CONSUMER_ROLLED_BACK) == (
        rolled_back or (incarnation == ASKER.incarnation and store_id == OWN.store_id)
    )


@pytest.mark.parametrize(
    ("said_at", "incarnation", "rolled_back"),
    [
        (NOW - 1, ASKER.incarnation, True),
        # The statement may have overtaken the hello: the consumer judges itself.
        (NOW, ASKER.incarnation, False),
        (NOW + 5, ASKER.incarnation, False),
        (NOW - 1, Incarnation(_id(4)), False),
    ],
)
def test_a_clock_that_shrank_betrays_the_consumers_rollback(
    said_at: int, incarnation: Incarnation, rolled_back: bool
) -> None:
    further = Stated(incarnation, SEEN.with_run(ASKER, 8, 8), {})
    known = replace(KNOWN, member=_member(known=further, said_at=Millis(said_at)))
    assert (judge(known, HELLO).cause is Cause.CONSUMER_ROLLED_BACK) == rolled_back
