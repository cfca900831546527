"""Purging: what goes, what stays and for whom, and that nothing rises from the dead."""

from __future__ import annotations

import pytest

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.dot import Actor, Incarnation, Millis
from replica.core.member_rows import Member, Stated, put_member
from replica.core.membership import configure, retire
from replica.core.purge import Hold, oldest_expired, oldest_tombstone, purge, waiting
from replica.core.rows import put_clock
from replica.core.storage import Transaction
from replica.core.vanishing import get_vanished
from tests.core.replication.small_fleet import (
    GRACE,
    LAPSE,
    Site,
    Stream,
    World,
    one_by_one,
    pull,
    store_key,
    sync,
)

LONG = LAPSE / 1000 + 1


def fleet(*names: str, **skews: float) -> list[Site]:
    world = World()
    sites = [
        Site(world, name, [peer for peer in names if peer != name], skew=skews.get(name, 0)) for name in names
    ]
    sync(*sites, rounds=2)
    return sites


def held(site: Site) -> set[tuple[str, Hold]]:
    return set(site.purge().held)


# --- tombstones


def test_a_tombstone_goes_once_every_member_is_known_to_have_seen_it() -> None:
    a, b, c = fleet("A", "B", "C")
    a.remember("k", "v")
    sync(a, b, c)
    a.forget("k")
    assert held(a) == {("B", Hold.UNSEEN), ("C", Hold.UNSEEN)}
    pull(b, a)
    pull(a, b)
    assert held(a) == {("C", Hold.UNSEEN)}
    sync(a, b, c)
    assert a.purge().tombstones == 1
    assert a.everything() == {}
    assert a.clock() == b.clock(), "the dots stay seen"
    with a.storage.snapshot() as snapshot:
        assert get_vanished(snapshot).sequence == 2
        assert oldest_tombstone(snapshot) is None


def test_a_member_that_was_never_heard_is_waited_for_until_it_is_lapsed() -> None:
    world = World()
    a = Site(world, "A", ["ghost"])
    a.remember("k", "v")
    a.forget("k")
    assert held(a) == {("ghost", Hold.NEVER_HEARD)}
    world.wait(LONG)
    assert a.purge().tombstones == 1
    assert a.listed() == {"ghost"}


def test_a_member_that_gossip_alone_has_named_is_waited_for() -> None:
    world = World()
    a, b = Site(world, "A", ["B"]), Site(world, "B", ["A"])
    c = Site(world, "C", ["B"])
    pull(c, b)
    pull(a, b)
    a.remember("k", "v")
    a.forget("k")
    pull(b, a)
    pull(a, b)
    assert held(a) == {("C", Hold.UNSEEN)}


def test_knowledge_that_is_not_dominated_here_does_not_count() -> None:
    a, b = fleet("A", "B")
    a.remember("k", "v")
    sync(a, b)
    a.forget("k")
    pull(b, a)
    b.remember("other", "not here yet")
    stream = Stream(b, a)
    stream.run_open()
    stream.close()
    assert held(a) == {("B", Hold.UNSEEN)}
    pull(a, b)
    assert a.purge().tombstones == 1


def test_while_a_member_is_lapsed_tombstones_go_and_it_is_listed() -> None:
    a, b, c = fleet("A", "B", "C")
    a.remember("k", "v")
    sync(a, b, c)
    a.world.wait(LONG)
    sync(a, b, rounds=1)
    a.forget("k")
    sync(a, b, rounds=2)
    purged = a.purge()
    assert purged.tombstones == 1
    assert purged.listed == ("C",)
    assert a.listed() == {"C"}
    pull(c, a)
    assert c.titles("k") == set()
    assert a.listed() == set()


def test_a_retired_member_counts_as_lapsed_for_ever() -> None:
    a, b = fleet("A", "B")
    a.remember("k", "v")
    sync(a, b)
    a.storage.run(lambda tx: retire(tx, a.identity, "B"))
    a.forget("k")
    assert a.purge().tombstones == 1
    assert a.listed() == {"B"}
    sync(a, b)
    assert b.titles("k") == set()


def test_nothing_is_purged_during_a_reconcile() -> None:
    a, b = fleet("A", "B")
    a.remember("k", "v")
    sync(a, b)
    a.forget("k")
    sync(a, b)
    c = Site(a.world, "C", [])
    for number in range(4):
        c.remember(f"c{number}", "c")
    one_by_one(a, c, 2)
    assert held(a) == {("A", Hold.BUSY)}
    pull(a, c)
    sync(a, b, c)
    assert a.purge().tombstones == 1


# --- expired entries


def test_an_expired_entry_goes_after_the_grace_when_everybody_has_seen_it() -> None:
    a, b = fleet("A", "B")
    a.remember("k", "v", ttl=10)
    sync(a, b)
    a.world.now = Millis(a.world.now + 10_000 + GRACE - 1)
    assert a.purge() == a.purge()
    assert a.purge().expired == 0
    a.world.now = Millis(a.world.now + 1)
    assert a.purge().expired == 1
    assert a.everything() == {}


@pytest.mark.parametrize("lag", [5, 600])
def test_past_its_expiry_is_judged_by_the_slowest_clock(lag: float) -> None:
    a, b = fleet("A", "B", B=-lag)
    a.remember("k", "v", ttl=10)
    sync(a, b)
    a.world.now = Millis(a.world.now + 10_000 + GRACE)
    assert held(a) == {("B", Hold.SLOW_CLOCK)}
    a.world.wait(lag)
    sync(a, b, rounds=1)
    assert a.purge().expired == 1


def test_a_wild_clock_hides_here_and_purges_nothing() -> None:
    a, b = fleet("A", "B", A=365 * 24 * 3600)
    b.remember("k", "v", ttl=3600)
    sync(a, b)
    assert a.titles("k") == set()
    assert b.titles("k") == {"v"}
    assert a.purge().expired == 0
    sync(a, b)
    assert b.titles("k") == {"v"}


def test_after_a_start_a_members_clock_is_not_known_until_it_tells_it() -> None:
    a, b = fleet("A", "B")
    a.remember("k", "v", ttl=10)
    sync(a, b)
    a.roll_back(a.copy(), noticed=False)
    a.world.now = Millis(a.world.now + 10_000 + GRACE)
    assert held(a) == {("B", Hold.UNREPORTED)}
    pull(a, b)
    assert a.purge().expired == 1


def test_while_a_member_is_lapsed_an_expired_entry_is_superseded_by_a_dot() -> None:
    a, b = fleet("A", "B")
    a.remember("k", "v", ttl=10)
    sync(a, b)
    a.world.wait(LONG)
    purged = a.purge()
    assert (purged.superseded, purged.expired) == (1, 0)
    (tombstone,) = a.read("k")
    assert tombstone.dot.actor == a.identity.actor
    assert a.purge().tombstones == 1
    sync(a, b)
    assert a.everything() == b.everything()


def test_a_durable_write_beside_an_expired_one_is_kept_for_a_lapsed_member() -> None:
    a, b = fleet("A", "B")
    a.remember("k", "short", ttl=10)
    b.remember("k", "durable")
    pull(a, b)
    a.world.wait(LONG)
    assert held(a) == {("B", Hold.DURABLE)}
    sync(a, b)
    assert a.purge().expired == 1
    assert b.purge().expired == 1


# --- gaps


def test_a_gap_left_by_a_wiped_replica_is_closed_when_nobody_has_what_is_missing() -> None:
    a, b, c = fleet("A", "B", "C")
    a.remember("x", "1")
    a.remember("k", "old")
    a.remember("x", "lost with A")
    a.remember("k", "delivered")
    a.remember("x", "lost with A, too")
    one_by_one(b, a, 1)
    assert b.titles("k") == {"delivered"}
    a.wipe()
    b.forget("k")
    sync(b, c)
    assert (("B", Hold.GAP)) in held(b)
    for _ in range(3):
        sync(a, b, c)
        for site in (a, b, c):
            site.purge()
    assert b.clock().extras() == 0
    assert all(site.everything() == {} for site in (a, b, c))


def test_a_gap_stays_open_while_somebody_is_lapsed_or_retired() -> None:
    a, b, c = fleet("A", "B", "C")
    a.remember("x", "1")
    a.remember("k", "delivered")
    a.remember("x", "2")
    one_by_one(b, a, 1)
    old = a.identity.actor
    a.wipe()
    b.world.wait(LONG)
    sync(a, b)
    assert b.purge().closed == ()
    sync(a, b, c)
    b.storage.run(lambda tx: retire(tx, b.identity, "C"))
    assert b.purge().closed == ()
    assert b.clock().gaps(old)


@pytest.mark.parametrize("has", [True, False])
def test_a_gap_stays_open_when_somebody_is_known_to_have_what_is_missing(has: bool) -> None:
    world = World()
    b = Site(world, "B")
    over, now = Incarnation(bytes(16)), Incarnation(b"\1" * 16)
    lost, knows = Actor("A", over), {"A": now}
    states = Clock({lost: (1, 1, 3, 3)}), Clock({lost: (1, 3)}) if has else Clock({lost: (1, 1)})

    def arrange(transaction: Transaction) -> None:
        put_clock(transaction, EMPTY_CLOCK, states[0])
        stable = Stated(now, Clock({lost: (1, 1)}), knows)
        for cluster, known in (("A", stable), ("C", Stated(now, states[1], knows))):
            put_member(
                transaction,
                Member(cluster, b.now, known=known, candidate=known, stable=stable, reported=True),
            )

    b.storage.run(arrange)
    assert b.purge().closed == (() if has else (lost,))
    assert b.clock().gaps(lost) == ((2, 2) if has else ())


# --- the walk


def test_a_walk_takes_small_steps_and_looks_at_everything_once() -> None:
    world = World()
    a = Site(world, "A")
    for number in range(50):
        a.remember(f"k{number}", "v", ttl=1 if number % 2 else None)
        if number % 2 == 0:
            a.forget(f"k{number}")
    a.remember("lives", "v")
    world.wait(LONG)
    steps, position, total = 0, None, 0
    while True:
        step = a.storage.run(
            lambda tx, at=position: purge(tx, a.now, LAPSE, GRACE, at, 7)  # type: ignore[misc]
        )
        assert step.tombstones + step.expired <= 7
        total += step.tombstones + step.expired
        steps += 1
        position = step.position
        if position is None:
            break
    assert total == 50
    assert steps >= 50 // 7
    assert set(a.everything()) == {store_key("lives")}


def test_what_waits_is_what_is_dead_and_how_long_it_has_been_is_known() -> None:
    world = World()
    a = Site(world, "A", ["ghost"])

    def dead() -> tuple[int, int | None, int | None]:
        with a.storage.snapshot() as snapshot:
            return (
                waiting(snapshot, a.now, GRACE),
                oldest_tombstone(snapshot),
                oldest_expired(snapshot, a.now),
            )

    a.remember("lives", "v")
    a.remember("short", "v", ttl=1)
    a.remember("k", "v")
    assert dead() == (0, None, None)
    world.wait(1)
    lapsed = a.now
    a.forget("k")
    assert dead() == (1, lapsed, lapsed)
    world.wait(GRACE / 1000)
    a.remember("l", "v")
    a.forget("l")
    assert dead() == (3, lapsed, lapsed)


def test_a_member_that_is_configured_after_a_purge_must_reconcile() -> None:
    world = World()
    a = Site(world, "A")
    a.remember("k", "v")
    a.forget("k")
    assert a.purge().tombstones == 1
    a.storage.run(lambda tx: configure(tx, a.identity, ["new"], a.now))
    assert a.listed() == {"new"}
