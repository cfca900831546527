"""Members: who has seen what, told and retold; silence, and the list of those that must reconcile."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.dot import Actor, Incarnation, Millis
from replica.core.errors import Code, Refused
from replica.core.member_rows import Member, get_member, put_member
from replica.core.membership import (
    clock_stepped,
    configure,
    find_doubt,
    is_lapsed,
    learn,
    promote,
    retire,
    slowest,
    tell,
    wake,
)
from replica.core.messages import Heartbeat, Knowledge, Listed, ProtocolError, Statement
from replica.core.must_reconcile import Moment, get_list, leave_list, put_on_list, take_over
from replica.core.protocol import MEMBERS_MAX
from replica.core.rows import put_clock
from replica.core.storage import Transaction
from tests.core.replication.small_fleet import LAPSE, Site, Stream, World, pull, sync

DAY = Millis(24 * 3_600_000)
FIRST, SECOND = Incarnation(bytes(15) + b"\1"), Incarnation(bytes(15) + b"\2")
X = Actor("X", FIRST)


def site(*peers: str) -> Site:
    world = World()
    world.now = Millis(10 * DAY)
    return Site(world, "A", peers)


def hear(
    own: Site,
    clock: Clock = EMPTY_CLOCK,
    *,
    cluster: str = "X",
    incarnation: Incarnation = FIRST,
    knowledge: Knowledge = (),
    said_at: Millis | None = None,
    silence: Millis = DAY,
) -> object:
    """A message of a peer."""
    said = own.now if said_at is None else said_at
    speaker = Statement(cluster, incarnation, clock, {}, said, Millis(0))
    return own.storage.run(lambda tx: learn(tx, own.identity, speaker, knowledge, own.now, silence))


def row(own: Site, cluster: str = "X") -> Member:
    with own.storage.snapshot() as snapshot:
        member = get_member(snapshot, cluster)
    assert member is not None
    return member


def member_clock(own: Site, cluster: str = "X") -> Clock:
    known = row(own, cluster).known
    return EMPTY_CLOCK if known is None else known.clock


def run_promote(own: Site) -> None:
    own.storage.run(lambda tx: promote(tx, own.clock()))


# --- learning


def test_statements_about_one_incarnation_are_joined() -> None:
    own = site()
    hear(own, Clock({X: (1, 3)}))
    hear(own, Clock({X: (2, 5)}))
    assert member_clock(own) == Clock({X: (1, 5)})


def test_a_newer_incarnation_replaces_the_clock_and_an_older_one_is_ignored() -> None:
    own = site()
    hear(own, Clock({X: (1, 3)}))
    hear(own, Clock({X: (1, 1)}), incarnation=SECOND)
    assert member_clock(own) == Clock({X: (1, 1)})
    hear(own, Clock({X: (1, 9)}))
    assert member_clock(own) == Clock({X: (1, 1)})


def test_what_is_not_new_writes_no_row() -> None:
    own = site()
    hear(own, Clock({X: (1, 3)}))
    own.world.wait(1)

    def again(transaction: Transaction) -> int:
        before = transaction.writes
        speaker = Statement("X", FIRST, Clock({X: (1, 3)}), {}, own.now, Millis(0))
        learn(transaction, own.identity, speaker, (), own.now, DAY)
        return transaction.writes - before

    assert own.storage.run(again) == 0


def test_a_relayed_statement_is_a_sign_of_life_only_if_the_member_said_something_new() -> None:
    own = site()
    old = Statement("Y", FIRST, EMPTY_CLOCK, {}, Millis(1000), Millis(0))
    hear(own, knowledge=(old,))
    heard = row(own, "Y").heard
    own.world.wait(3600)
    hear(own, knowledge=(old,))
    assert row(own, "Y").heard == heard, "the same words going round are no sign of life"
    hear(own, knowledge=(replace(old, said_at=Millis(2000), age=Millis(60_000)),))
    assert row(own, "Y").heard == own.now - 60_000
    assert row(own, "Y").skew == 2000 + 60_000 - own.now


def test_what_is_told_once_is_told_again_only_when_it_moved() -> None:
    own = site("P")
    hear(own, Clock({X: (1, 3)}))
    with own.storage.snapshot() as snapshot:
        knowledge, told = tell(snapshot, own.identity, {}, own.now, DAY)
        again, _ = tell(snapshot, own.identity, told, own.now, DAY)
    assert [statement.cluster for statement in knowledge] == ["A", "P", "X"]
    assert again == ()
    y = Actor("Y", FIRST)
    hear(own, Clock({X: (1, 4), y: (1, 1)}))
    hear(own, Clock({X: (1, 4), y: (1, 2)}))
    with own.storage.snapshot() as snapshot:
        moved, told = tell(snapshot, own.identity, told, own.now, DAY)
    (statement,) = moved
    assert statement.clock == Clock({X: (1, 4), y: (1, 2)})
    hear(own, Clock({X: (1, 5)}))
    with own.storage.snapshot() as snapshot:
        (statement,), _ = tell(snapshot, own.identity, told, own.now, DAY)
    assert statement.clock == Clock({X: (1, 5)}), "only the rows that moved"


def test_knowledge_travels_along_a_chain_and_comes_out_whole() -> None:
    world = World()
    a, b, c = Site(world, "A", ["B"]), Site(world, "B", ["A", "C"]), Site(world, "C", ["B"])
    for number in range(5):
        a.remember(f"k{number}", "a")
        c.remember(f"c{number}", "c")
        pull(b, a)
        pull(b, c)
        pull(c, b)
        pull(a, b)
    pull(a, b)
    assert member_clock(a, "C") == c.clock()
    known = row(a, "C").known
    assert known is not None
    assert known.knows["A"] == a.identity.incarnation


def test_an_open_stream_tells_what_moved_with_its_heartbeats() -> None:
    world = World()
    a, b = Site(world, "A", ["B"]), Site(world, "B", ["A"])
    stream = Stream(a, b)
    stream.run_open()
    b.remember("k", "b")
    a.remember("l", "a")
    stream.beat()
    assert member_clock(a, "B") == b.clock()
    assert member_clock(b, "A") == a.clock()


def test_a_peer_that_names_members_without_end_is_refused_and_changes_nothing() -> None:
    own = site()
    hear(own)
    endless = tuple(Statement(f"M{number}", None) for number in range(MEMBERS_MAX))
    with pytest.raises(ProtocolError):
        hear(own, knowledge=endless)
    with own.storage.snapshot() as snapshot:
        assert get_member(snapshot, "M0") is None
    huge = Clock({X: tuple(2 * number + 1 for number in range(1_000_002))})
    with pytest.raises(ProtocolError):
        hear(own, huge)


# --- stable knowledge


def test_knowledge_is_stable_once_the_own_clock_dominates_it() -> None:
    own = site()
    hear(own, Clock({X: (1, 1)}))
    run_promote(own)
    assert row(own).stable is None
    own.storage.run(lambda tx: put_clock(tx, EMPTY_CLOCK, Clock({X: (1, 1)})))
    run_promote(own)
    stable = row(own).stable
    assert stable is not None
    assert stable.clock == Clock({X: (1, 1)})
    hear(own, Clock({X: (1, 2)}))
    run_promote(own)
    assert row(own).stable == stable, "what is not dominated changes nothing"


def test_one_candidate_is_held_until_it_is_dominated_under_unceasing_load() -> None:
    world = World()
    a, b = Site(world, "A", ["B"]), Site(world, "B", ["A"])
    sync(a, b)
    stable_at = []
    for number in range(6):
        pull(a, b)
        b.remember(f"k{number}", "b")
        hear(a, b.clock(), cluster="B", incarnation=b.identity.incarnation)
        run_promote(a)
        stable = row(a, "B").stable
        stable_at.append(0 if stable is None else stable.clock.top(b.identity.actor))
    assert stable_at[-1] >= 4, "a new candidate is never ahead for ever"
    assert all(before <= after for before, after in pairwise(stable_at))


# --- time


def test_a_member_is_lapsed_after_too_long_a_silence_or_when_retired() -> None:
    own = site()
    hear(own)
    assert not is_lapsed(row(own), own.now, LAPSE)
    own.world.wait(LAPSE / 1000)
    assert not is_lapsed(row(own), own.now, LAPSE)
    own.world.wait(0.001)
    assert is_lapsed(row(own), own.now, LAPSE)
    hear(own, silence=LAPSE)
    assert not is_lapsed(row(own), own.now, LAPSE)
    own.storage.run(lambda tx: retire(tx, own.identity, "X"))
    assert is_lapsed(row(own), own.now, LAPSE)


def test_downtime_of_our_own_is_not_a_members_silence() -> None:
    own = site()
    hear(own)
    own.world.wait(10)
    own.storage.run(lambda tx: wake(tx, own.now))
    silent = own.now - row(own).heard
    own.world.wait(3 * 24 * 3600)
    own.storage.run(lambda tx: wake(tx, own.now))
    assert own.now - row(own).heard == silent
    assert not row(own).reported, "its clock was not told since the start"


def test_a_step_of_our_own_clock_is_nobodys_silence_and_changes_nobodys_clock() -> None:
    own = site()
    hear(own, said_at=Millis(own.now - 500))
    before = row(own)
    own.skew += 8 * DAY
    own.storage.run(lambda tx: clock_stepped(tx, Millis(8 * DAY)))
    after = row(own)
    assert own.now - after.heard == own.now - 8 * DAY - before.heard
    assert after.skew is not None
    assert own.now + after.skew == own.now - 8 * DAY - 500


def test_the_slowest_plausible_clock_is_over_the_active_members_that_told_theirs() -> None:
    own = site("silent")
    hear(own, said_at=Millis(own.now - 90_000), silence=LAPSE)
    hear(own, cluster="Y", said_at=Millis(own.now + 90_000), silence=LAPSE)
    with own.storage.snapshot() as snapshot:
        assert slowest(snapshot, own.now, LAPSE) == own.now - 90_000
    own.world.wait(10)
    with own.storage.snapshot() as snapshot:
        assert slowest(snapshot, own.now, LAPSE) == own.now - 90_000
    own.world.wait(LAPSE / 1000)
    with own.storage.snapshot() as snapshot:
        assert slowest(snapshot, own.now, LAPSE) == own.now, "a lapsed member's clock does not count"


# --- this replica's own past


@pytest.mark.parametrize(
    ("incarnation", "extra", "doubted"),
    [(0, False, False), (0, True, True), (1, False, True), (-1, True, False)],
)
def test_what_others_know_of_us_may_betray_a_rollback(incarnation: int, extra: bool, doubted: bool) -> None:
    own = site()
    own.remember("k", "1")
    mine = own.identity.incarnation
    said = Incarnation((int.from_bytes(mine, "big") + incarnation).to_bytes(16, "big"))
    clock = own.clock().with_run(X, 1, 1) if extra else own.clock()
    statement = Statement("A", said, clock)
    with own.storage.snapshot() as snapshot:
        doubt = find_doubt(snapshot, own.identity, "X", (statement,))
    assert (doubt is not None) == doubted
    if incarnation == 1:
        assert doubt is not None
        assert doubt.above == said


def test_anybody_who_has_more_of_our_writes_than_we_betrays_a_rollback() -> None:
    own = site()
    own.remember("k", "1")
    more = own.clock().with_run(own.identity.actor, 2, 2)
    with own.storage.snapshot() as snapshot:
        statement = Statement("Z", FIRST, more)
        assert find_doubt(snapshot, own.identity, "X", (statement,)) is not None


# --- the list


def listed(own: Site) -> tuple[Listed, ...]:
    with own.storage.snapshot() as snapshot:
        return get_list(snapshot)


def test_members_heard_of_first_are_listed_only_where_something_was_purged_or_taken_over() -> None:
    own = site()
    hear(own)
    assert listed(own) == ()
    own.storage.run(lambda tx: put_on_list(tx, ()))
    hear(own, knowledge=(Statement("Y", FIRST),))
    own.storage.run(lambda tx: configure(tx, own.identity, ["Z", "X", "A"], own.now))
    assert {entry.cluster for entry in listed(own)} == {"Y", "Z"}


def test_a_member_that_lost_something_is_listed_and_one_that_lost_nothing_is_not() -> None:
    own = site()
    hear(own, Clock({X: (1, 3)}))
    hear(own, Clock({X: (1, 3)}), cluster="Y")
    own.storage.run(lambda tx: put_on_list(tx, ()))
    hear(own, Clock({X: (1, 3)}), cluster="Y", incarnation=SECOND)
    hear(own, Clock({X: (1, 2)}), incarnation=SECOND)
    assert [entry.cluster for entry in listed(own)] == ["X"]


def test_an_entry_leaves_only_if_nothing_was_purged_past_the_member_since() -> None:
    own = site()
    hear(own)
    own.storage.run(lambda tx: put_on_list(tx, ("X",)))
    ((_, number),) = [(entry.cluster, entry.number) for entry in listed(own)]
    own.storage.run(lambda tx: put_on_list(tx, ("X",)))
    assert not own.storage.run(lambda tx: leave_list(tx, "X", number))
    assert len(listed(own)) == 1
    assert own.storage.run(lambda tx: leave_list(tx, "X", number + 1))
    assert listed(own) == ()


def test_entries_are_taken_over_once_from_a_supplier_but_always_on_evidence() -> None:
    own = site()
    hear(own)
    store = bytes(16)

    def take(moment: Moment, number: int = 3, supplier: str = "S") -> bool:
        taken = own.storage.run(
            lambda tx: take_over(
                tx, own.identity, supplier, store, (Listed("X", number), Listed("A", 9)), own.now, moment
            )
        )
        assert "A" not in taken, "a replica does not list itself"
        if taken:
            number = listed(own)[0].number
            own.storage.run(lambda tx: leave_list(tx, "X", number))
        return bool(taken)

    assert take(Moment.BEGIN)
    assert not take(Moment.BEGIN)
    assert take(Moment.END)
    assert not take(Moment.END)
    assert not take(Moment.BEGIN)
    assert take(Moment.EVIDENCE)
    assert take(Moment.BEGIN, number=4)
    assert take(Moment.END, number=4)
    assert take(Moment.END, supplier="T")


def test_retiring_travels_and_refuses_what_makes_no_sense() -> None:
    own, other = site(), site()
    hear(own)
    assert own.storage.run(lambda tx: retire(tx, own.identity, "X"))
    assert not own.storage.run(lambda tx: retire(tx, own.identity, "X"))
    with own.storage.snapshot() as snapshot:
        knowledge, _ = tell(snapshot, own.identity, {}, own.now, DAY)
    hear(other, cluster="B", knowledge=tuple(one for one in knowledge if one.cluster == "X"))
    assert row(other).retired
    for cluster, code in (("A", Code.INVALID_ARGUMENT), ("nobody", Code.NOT_FOUND)):
        with pytest.raises(Refused) as refused:
            own.storage.run(lambda tx, name=cluster: retire(tx, own.identity, name))  # type: ignore[misc]
        assert refused.value.code is code


def test_a_member_row_survives_its_encoding() -> None:
    own = site()
    hear(own, Clock({X: (1, 3, 5, 9)}), knowledge=(Statement("Y", SECOND, EMPTY_CLOCK, {"X": FIRST}),))
    run_promote(own)
    own.storage.run(lambda tx: put_on_list(tx, ("X",)))
    for cluster in ("X", "Y"):
        member = row(own, cluster)
        own.storage.run(lambda tx, one=member: put_member(tx, one))  # type: ignore[misc]
        assert row(own, cluster) == member


def test_heartbeats_without_news_ask_for_no_work() -> None:
    world = World()
    a, b = Site(world, "A", ["B"]), Site(world, "B", ["A"])
    stream = Stream(a, b)
    stream.run_open()
    assert stream.serving.receive(Heartbeat((), a.now), b.now) is None
    assert stream.pulling.receive(Heartbeat((), b.now), a.now) is None
    late = Heartbeat((), Millis(a.now + 5_000))
    assert stream.serving.receive(late, b.now) is not None, "its clock has moved against ours"
