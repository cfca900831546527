"""Short histories that broke earlier rules, each told step by step. They must end right.

T is a tombstone of a; "A pulls from B" is one stream, to its end unless a number of batches is given. The
histories that are about restores and codecs are told where those are tested.
"""

from __future__ import annotations

import pytest

from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import Forget, Remember
from replica.core.errors import Code, Refused
from replica.core.membership import slowest
from replica.core.messages import Cause, Kind
from replica.core.node import Node
from replica.core.purge import Hold
from replica.core.rows import get_cursor
from replica.core.underway import busy_with, get_reconcile
from tests.core.replication.small_fleet import LAPSE, Site, Stream, World, one_by_one, pull, sync

LONG = LAPSE / 1000 + 1
"""Seconds after which a silent member is lapsed."""


def fleet(*names: str) -> list[Site]:
    """Replicas that are all peers of each other."""
    world = World()
    return [Site(world, name, [peer for peer in names if peer != name]) for name in names]


def test_history_01_a_living_durable_note_is_not_hidden_with_a_dead_one() -> None:
    a, b = fleet("A", "B")
    a.remember("k", "dead", ttl=10)
    a.world.wait(100)
    b.remember("k", "living")
    sync(a, b)
    for site in (a, b):
        site.purge()
    sync(a, b)
    assert a.titles("k") == b.titles("k") == {"living"}


def test_history_02_a_tombstone_over_a_gap_is_not_purged() -> None:
    a, c, m = fleet("A", "C", "M")
    a.remember("z", "filler")
    sync(a, c, m)
    a.remember("k", "a")
    pull(m, a)
    a.remember("k", "a again")
    a.forget("k")
    a.remember("z", "later in the log")
    one_by_one(c, a, 1)
    (tombstone,) = c.read("k")
    assert tombstone.tombstone

    c.world.wait(LONG)
    purged = c.purge()
    assert purged.tombstones == 0
    assert (c.name, Hold.GAP) in purged.held
    pull(c, m)
    assert c.titles("k") == set()


def test_history_03_a_removal_without_a_trace_lists_whom_its_supplier_passed_by() -> None:
    world = World()
    b, a = Site(world, "B", ["A"]), Site(world, "A", ["B", "Z"])
    z, m = Site(world, "Z", ["A", "M"]), Site(world, "M", ["Z"])
    links = [(a, b), (b, a), (z, a), (a, z), (m, z), (z, m)]

    def settle() -> None:
        for _ in range(4):
            for consumer, supplier in links:
                pull(consumer, supplier)

    settle()
    a.remember("k", "a")
    settle()
    assert m.titles("k") == {"a"}
    assert a.listed() == set()
    z.wipe()
    world.wait(LONG)
    pull(a, b)
    pull(b, a)
    a.forget("k")
    pull(b, a)
    assert b.purge().tombstones == 1
    assert b.listed() == {"Z", "M"}

    z.remember("k", "b")
    pull(m, z)
    assert m.titles("k") == {"a", "b"}
    pull(a, z)
    pull(b, a)
    pull(a, b)
    assert a.titles("k") == {"b"}
    assert "M" in a.listed()
    z.forget("k")
    for _ in range(3):
        settle()
        for site in (b, a, z, m):
            site.purge()
    settle()
    assert m.titles("k") == set()


def test_history_04_what_is_written_after_a_rollback_is_not_skipped() -> None:
    a, b = fleet("A", "B")
    a.remember("x", "1")
    sync(a, b)
    old = a.copy()
    a.remember("y", "2")
    a.remember("z", "3")
    pull(b, a)
    a.roll_back(old)
    a.remember("k1", "new")
    a.remember("k2", "new")
    sync(a, b)
    assert b.titles("k1") == b.titles("k2") == {"new"}
    assert a.titles("y") == {"2"}


def test_history_05_a_rollback_undoes_what_its_lost_state_had_acknowledged() -> None:
    a, b, c = fleet("A", "B", "C")
    a.remember("k", "a")
    sync(a, b, c)
    old = a.copy()
    b.forget("k")
    sync(a, b, c)
    for site in (b, c):
        assert site.purge().tombstones == 1
        assert site.listed() == set()
    a.roll_back(old)
    assert a.titles("k") == {"a"}
    with a.storage.snapshot() as snapshot:
        assert get_cursor(snapshot, "C") is None
    sync(a, c)
    assert a.titles("k") == set()


def test_history_06_an_empty_replica_fills_itself_from_one_supplier_at_a_time() -> None:
    x, y, n = fleet("X", "Y", "N")
    x.remember("k", "a")
    x.remember("other", "1")
    x.remember("third", "1")
    pull(y, x)
    x.world.wait(LONG)
    y.forget("k")
    # N has not been heard either: it is as if it did not exist yet.
    y.purge()
    assert "X" in y.listed()
    n.wipe()

    from_x = Stream(n, x, batch_bytes=1, window=1)
    from_y = Stream(n, y)
    from_y.poll()
    from_y.deliver_up()
    from_y.poll()
    while n.titles("k") != {"a"}:
        from_x.poll()
        if from_x.up:
            from_x.deliver_up()
        else:
            from_x.deliver_down()
    while from_y.down:
        from_y.deliver_down()
    assert not y.clock().leq(n.clock()), "the whole clock of another supplier was taken over"

    # X is gone for good; after a while N turns to Y.
    n.world.wait(31)
    Stream(n, y).run(beats=3)
    assert n.titles("k") == set()
    assert n.titles("other") == {"1"}


def test_history_06_not_even_if_it_can_tail_the_other() -> None:
    x, y, n = fleet("X", "Y", "N")
    assert pull(n, y).pulling.verdict.kind is Kind.EMPTY  # type: ignore[union-attr]
    x.remember("k", "a")
    x.remember("other", "1")
    pull(y, x)
    one_by_one(n, x, 1)
    assert n.titles("k") == {"a"}
    assert pull(n, y).pulling.verdict.kind is Kind.TAIL  # type: ignore[union-attr]
    assert not y.clock().leq(n.clock())
    assert n.titles("other") == set()


def test_history_06_a_log_is_read_from_its_start_only_while_nothing_was_seen() -> None:
    x, y, n = fleet("X", "Y", "N")
    x.remember("k", "a")
    x.remember("other", "1")
    pull(y, x)
    x.world.wait(LONG)
    y.forget("k")
    y.purge()
    n.wipe()
    from_y = Stream(n, y)
    from_y.poll()
    from_y.deliver_up()
    from_y.poll()
    pull(n, x)
    assert n.titles("k") == {"a"}
    while from_y.down:
        from_y.deliver_down()
    assert not y.clock().leq(n.clock())
    from_y.run()
    assert y.clock().leq(n.clock())
    assert n.titles("k") == set()


def test_history_06_nor_from_its_start_beside_another_that_it_tails() -> None:
    x, y, n = fleet("X", "Y", "N")
    sync(x, y, n)
    x.remember("k", "a")
    x.remember("other", "1")
    pull(y, x)
    x.world.wait(LONG)
    y.forget("k")
    assert y.purge().tombstones == 1
    assert y.listed() == {"X", "N"}
    from_y = Stream(n, y)
    from_y.poll()
    from_y.deliver_up()
    from_y.poll()
    one_by_one(n, x, 1)
    assert n.titles("k") == {"a"}
    while from_y.down:
        from_y.deliver_down()
    assert not y.clock().leq(n.clock())


def test_history_07_a_supplier_that_dies_in_the_middle_of_a_reconcile_blocks_nobody() -> None:
    n, s, o = fleet("N", "S", "O")
    n.remember("mine", "1")
    for number in range(5):
        s.remember(f"k{number}", "s")
    o.remember("news", "o")
    one_by_one(n, s, 3)
    with n.storage.snapshot() as snapshot:
        assert busy_with(snapshot) == "S"
    pull(n, o)
    assert n.titles("news") == set()
    n.world.wait(31)
    Stream(n, o).run(beats=3)
    assert n.titles("news") == {"o"}


def test_history_08_a_late_member_is_listed_where_its_supplier_was_filled_again() -> None:
    world = World()
    o, a = Site(world, "O", ["A"]), Site(world, "A", ["O"])
    a.remember("k", "a")
    sync(a, o)
    k = Site(world, "K", ["A"])
    pull(k, a)
    assert k.titles("k") == {"a"}
    world.wait(LONG)
    o.forget("k")
    assert o.purge().tombstones == 1
    a.wipe()
    pull(k, a)
    assert k.titles("k") == {"a"}
    pull(a, o)
    assert "K" in a.listed()
    pull(k, a)
    assert k.titles("k") == set()


def test_history_08_even_if_the_supplier_hears_of_the_late_member_too_late() -> None:
    world = World()
    o, a = Site(world, "O", ["A"]), Site(world, "A", ["O"])
    a.remember("k", "a")
    sync(a, o)
    k = Site(world, "K", ["A"])
    pull(k, a)
    world.wait(LONG)
    o.forget("k")
    assert o.purge().tombstones == 1
    a.wipe()
    filling = Stream(a, o)
    filling.poll()
    pull(k, a)
    filling.run()
    assert a.listed() == {"K"}
    pull(k, a)
    assert k.titles("k") == set()


def test_history_10_what_was_not_sent_by_the_consumer_itself_is_not_left_out() -> None:
    world = World()
    c, d = Site(world, "C", ["D"]), Site(world, "D", ["C"])
    a = Site(world, "A", ["C"])
    a.remember("k", "b")
    c.remember("k", "e", ttl=10)
    sync(c, d)
    world.wait(20)
    sync(c, d)
    assert d.purge().expired == 1
    pull(c, a)
    assert c.titles("k") == set()
    pull(d, c)
    assert d.titles("k") == {"b"}
    pull(c, d)
    assert c.titles("k") == {"b"}


def test_history_11_a_new_incarnation_is_greater_than_any_whatever_the_clock_says() -> None:
    a, b = fleet("A", "B")
    a.remember("x", "1")
    sync(a, b)
    old = a.identity.incarnation
    a.skew = -3_600_000
    a.wipe()
    assert a.identity.incarnation < old
    a.remember("k", "new")
    stream = pull(a, b)
    assert stream.pulling.ended is not None
    assert a.begun
    assert a.identity.incarnation > old
    sync(a, b)
    assert b.titles("k") == {"new"}
    b.forget("k")
    sync(a, b)
    assert b.purge().tombstones == 1


def test_history_12_an_expired_entry_is_removed_by_a_dot_while_a_member_is_lapsed() -> None:
    a, b = fleet("A", "B")
    b.remember("s", "contact")
    sync(a, b)
    a.remember("k", "a")
    b.remember("k", "s", ttl=10)
    pull(a, b)
    assert len(a.read("k")) == 2
    a.world.wait(LONG)
    assert b.purge().superseded == 1
    assert a.purge().superseded == 0
    pull(b, a)
    a.purge()
    sync(a, b)
    assert a.everything() == b.everything()
    assert a.titles("k") == b.titles("k") == {"a"}


def test_history_13_who_was_filled_from_empty_misleads_whom_its_supplier_passed_by() -> None:
    a, b, c = fleet("A", "B", "C")
    a.remember("k", "a")
    sync(a, b, c)
    b.remember("k", "b", ttl=10)
    pull(c, b)
    b.world.wait(LONG)
    pull(c, b)
    assert c.purge().superseded == 1
    pull(b, c)
    pull(c, b)
    assert c.purge().tombstones == 1
    assert "A" in c.listed()
    b.wipe()
    pull(a, b)
    assert a.titles("k") == {"a"}
    assert pull(b, c).pulling.verdict.kind is Kind.EMPTY  # type: ignore[union-attr]
    assert "A" in b.listed()
    assert pull(a, b).pulling.verdict.cause is Cause.PASSED_BY  # type: ignore[union-attr]
    assert a.titles("k") == set()


def test_history_14_a_reconcile_starts_over_when_something_was_purged_past_it() -> None:
    n, s = fleet("N", "S")
    for number in range(6):
        s.remember(f"k{number}", "s")
    pull(n, s)
    n.world.wait(LONG)
    s.remember("k6", "s")
    s.forget("k5")
    s.purge()
    assert s.listed() == {"N"}
    one_by_one(n, s, 5)
    with n.storage.snapshot() as snapshot:
        state = get_reconcile(snapshot)
    assert state is not None
    assert state.position > EntryKey.make("r", "t", "k0").to_store()
    n.world.wait(LONG)
    s.forget("k0")
    assert s.purge().tombstones == 1
    pull(n, s)
    assert n.titles("k0") == set()


def test_history_15_a_gap_is_closed_only_on_statements_that_know_the_incarnation_is_over() -> None:
    a, b, m = fleet("A", "B", "M")
    b.remember("own", "b")
    sync(b, m)
    sync(a, b)
    a.remember("k1", "live")
    a.remember("k2", "live")
    unacknowledged = Stream(m, a)
    while m.titles("k2") != {"live"}:
        unacknowledged.poll()
        if unacknowledged.up:
            unacknowledged.deliver_up()
        else:
            unacknowledged.deliver_down()
    a.remember("k3", "extra")
    a.remember("k1", "never delivered")
    a.remember("k2", "never delivered")
    one_by_one(b, a, 1)
    assert b.titles("k3") == {"extra"}
    b.roll_back(b.copy())
    a.wipe()
    pull(b, a)
    assert b.purge().closed == ()
    pull(b, m)
    assert b.titles("k1") == b.titles("k2") == {"live"}


def test_history_16_a_fast_clock_does_not_destroy_what_lives_elsewhere() -> None:
    world = World()
    slow, fast = Site(world, "S", ["F"]), Site(world, "F", ["S"], skew=3600)
    slow.remember("k", "lives", ttl=600)
    sync(slow, fast)
    assert slow.titles("k") == {"lives"}
    assert fast.titles("k") == set()
    node = Node(fast.identity)
    key = EntryKey.make("r", "t", "k")

    with fast.storage.transaction() as transaction:
        plausible = slowest(transaction, fast.now, LAPSE)
        assert plausible <= Millis(fast.now - 3_500_000)
        with pytest.raises(Refused) as refused:
            node.remember(transaction, Remember(key=key, request_id="1"), fast.now, plausible)
        assert refused.value.code is Code.FAILED_PRECONDITION
        node.forget(transaction, Forget(key=key, request_id="2"), fast.now, plausible)
    sync(slow, fast)
    assert slow.titles("k") == set()


def test_history_19_nothing_is_purged_while_a_replica_fills_itself() -> None:
    s, n = fleet("S", "N")
    for number in range(4):
        s.remember(f"k{number}", "s")
    n.remember("gone", "n")
    sync(s, n)
    n.wipe()
    one_by_one(n, s, 2)
    n.remember("note", "acknowledged", ttl=1)
    n.world.wait(LONG)
    purged = n.purge()
    assert (purged.expired, purged.tombstones, purged.superseded) == (0, 0, 0)
    assert (n.name, Hold.BUSY) in purged.held
