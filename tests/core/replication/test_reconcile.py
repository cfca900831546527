"""Reconcile: what it removes and what it keeps, how little it sends, and how it survives interruptions."""

from __future__ import annotations

from crdt.fold import read_record
from replica.core.messages import Batch, Kind, Outline, Range
from replica.core.must_reconcile import put_on_list
from replica.core.underway import Reconcile, get_reconcile
from tests.core.replication.small_fleet import LAPSE, Site, Stream, World, one_by_one, pull, store_key, sync

LONG = LAPSE / 1000 + 1


def passed_by() -> tuple[Site, Site]:
    """A consumer that was lapsed, and a supplier that has purged k0 past it."""
    world = World()
    n, s = Site(world, "N", ["S"]), Site(world, "S", ["N"])
    sync(n, s)
    for number in range(4):
        s.remember(f"k{number}", "s")
    sync(n, s)
    world.wait(LONG)
    s.forget("k0")
    assert s.purge().tombstones == 1
    assert s.listed() == {"N"}
    return n, s


class Counted(Stream):
    """A stream that counts what the supplier sends."""

    def count(self) -> tuple[int, int, int]:
        """Outlines, ranges and registers of the whole stream."""
        outlines = ranges = registers = 0
        for _ in range(10_000):
            self.poll()
            if self.up:
                self.deliver_up()
            elif self.down:
                message = self.down[0]
                outlines += isinstance(message, Outline)
                ranges += isinstance(message, Range)
                registers += len(message.changes) if isinstance(message, Range | Batch) else 0
                self.deliver_down()
            else:
                break
        self.close()
        return outlines, ranges, registers


def test_what_was_purged_past_a_member_is_removed_there_by_a_dot_of_its_own() -> None:
    n, s = passed_by()
    assert pull(n, s).pulling.verdict.kind is Kind.RECONCILE  # type: ignore[union-attr]
    (tombstone,) = n.read("k0")
    assert tombstone.tombstone
    assert tombstone.dot.actor == n.identity.actor
    assert n.titles("k1") == {"s"}
    assert s.listed() == set()
    sync(n, s)
    assert n.everything() == s.everything()


def test_what_is_expired_or_a_tombstone_already_is_just_dropped() -> None:
    world = World()
    n, s = Site(world, "N", ["S"]), Site(world, "S", ["N"])
    sync(n, s)
    s.remember("short", "s", ttl=10)
    s.remember("gone", "s")
    sync(n, s)
    s.forget("gone")
    pull(n, s)
    world.wait(LONG)
    first, second = s.purge(), s.purge()
    assert (first.tombstones, first.superseded, second.tombstones) == (1, 1, 1)
    sequence = n.clock().base(n.identity.actor)
    pull(n, s)
    assert n.everything() == {}
    assert n.clock().base(n.identity.actor) == sequence, "no write of our own was needed"


def test_what_the_supplier_has_not_seen_is_news_and_stays() -> None:
    n, s = passed_by()
    n.remember("mine", "news")
    n.remember("k0", "written again, unaware")
    pull(n, s)
    assert n.titles("mine") == {"news"}
    assert n.titles("k0") == {"written again, unaware"}
    sync(n, s)
    assert s.titles("mine") == {"news"}
    assert s.titles("k0") == {"written again, unaware"}


def test_only_siblings_that_the_supplier_has_seen_are_covered() -> None:
    world = World()
    n, s, m = (Site(world, name, [x for x in "NSM" if x != name]) for name in "NSM")
    sync(n, s, m)
    s.remember("k", "seen")
    pull(n, s)
    m.remember("k", "more")
    m.world.wait(LONG)
    s.forget("k")
    assert s.purge().tombstones == 1
    pull(n, m)
    assert n.titles("k") == {"seen", "more"}
    pull(n, s)
    assert n.titles("k") == {"more"}
    assert len(n.read("k")) == 2, "beside the tombstone over the other"


def test_the_clock_that_is_taken_over_is_the_one_of_the_start() -> None:
    n, s = passed_by()
    stream = Stream(n, s, batch_bytes=1, window=1)
    while (state := get_state(n)) is None or state.position <= store_key("k1"):
        step(stream)
    s.remember("a", "written meanwhile, behind the walk")
    while get_state(n) is not None:
        step(stream)
    assert not s.clock().leq(n.clock())
    assert n.titles("a") == set()
    stream.run()
    assert s.clock().leq(n.clock())
    assert n.titles("a") == {"written meanwhile, behind the walk"}


def test_local_writes_and_supplying_others_go_on_throughout() -> None:
    n, s = passed_by()
    o = Site(n.world, "O", ["N"])
    one_by_one(n, s, 2)
    assert get_state(n) is not None
    n.remember("local", "n")
    pull(o, n)
    assert o.titles("local") == {"n"}
    pull(n, s)
    assert n.titles("local") == {"n"}


def test_an_interrupted_reconcile_resumes_where_it_stood() -> None:
    world = World()
    n, s = Site(world, "N", ["S"]), Site(world, "S", ["N"])
    n.remember("mine", "n")
    for number in range(40):
        s.remember(f"k{number:02}", "s")
    one_by_one(n, s, 30)
    state = get_state(n)
    assert state is not None
    assert state.position > store_key("k10")
    n.storage = n.copy()
    stream = Counted(n, s)
    _, _, registers = stream.count()
    assert registers < 30
    assert all(n.titles(f"k{number:02}") == {"s"} for number in range(40))
    assert get_state(n) is None


def test_a_slow_reconcile_that_goes_on_is_not_given_up() -> None:
    world = World()
    n, s, o = Site(world, "N", ["S", "O"]), Site(world, "S", ["N"]), Site(world, "O", ["N"])
    n.remember("mine", "n")
    for number in range(6):
        s.remember(f"k{number}", "s")
    for _ in range(8):
        one_by_one(n, s, 3)
        world.wait(20)
        Stream(n, o).run(beats=1)
        assert get_state(n) is not None or n.titles("k5") == {"s"}
    assert n.titles("k5") == {"s"}
    assert get_state(n) is None


def test_it_starts_over_in_another_store() -> None:
    world = World()
    n, s = Site(world, "N", ["S"]), Site(world, "S", ["N"])
    n.remember("mine", "n")
    for number in range(6):
        s.remember(f"k{number}", "s")
    one_by_one(n, s, 4)
    before = get_state(n)
    assert before is not None
    s.roll_back(s.copy())
    pull(n, s)
    assert n.titles("k0") == {"s"}
    assert get_state(n) is None


def test_stores_that_agree_find_out_with_one_outline() -> None:
    world = World()
    n, s = Site(world, "N", ["S"]), Site(world, "S", ["N"])
    for number in range(300):
        s.remember(f"k{number}", "s")
    sync(n, s)
    list_again(s, n)
    outlines, ranges, registers = Counted(n, s).count()
    assert registers == 0
    assert ranges == 1, "the last one, empty, with the list of its snapshot"
    assert outlines <= 2


def test_what_is_sent_grows_with_the_difference_and_not_with_the_store() -> None:
    world = World()
    n, s = Site(world, "N", ["S"]), Site(world, "S", ["N"])
    for number in range(600):
        s.remember(f"k{number:03}", "s")
    sync(n, s)
    s.remember("k100", "changed")
    s.remember("k500", "changed")
    list_again(s, n)
    outlines, ranges, registers = Counted(n, s).count()
    assert n.titles("k100") == n.titles("k500") == {"changed"}
    assert registers < 400
    assert outlines + ranges < 14


def test_a_store_that_differs_everywhere_is_sent_whole_and_once() -> None:
    world = World()
    n, s = Site(world, "N", ["S"]), Site(world, "S", ["N"])
    n.remember("mine", "n")
    for number in range(600):
        s.remember(f"k{number:03}", "s")
    _, ranges, registers = Counted(n, s).count()
    assert registers == 600
    assert ranges < 20


def test_members_that_the_supplier_lists_are_taken_over_once_at_the_start_and_once_at_the_end() -> None:
    n, s = passed_by()
    late = Site(n.world, "L", ["S"])
    pull(late, s)
    n.world.wait(LONG)
    s.forget("k1")
    s.purge()
    assert {"L", "N"} <= s.listed()
    one_by_one(n, s, 3)
    assert get_state(n) is not None
    assert "L" in n.listed(), "at the start"
    pull(late, n)
    assert "L" not in n.listed()
    pull(n, s)
    assert "L" in n.listed(), "again at the end: what it reconciled with was half done"
    pull(late, n)
    list_again(s, n)
    pull(n, s)
    assert "L" not in n.listed(), "an entry is taken over from a supplier once"


def test_a_register_beyond_the_last_key_of_the_supplier_is_settled_too() -> None:
    n, s = passed_by()
    s.remember("zz", "s")
    sync(n, s)
    n.world.wait(LONG)
    s.forget("zz")
    s.purge()
    pull(n, s)
    assert n.titles("zz") == set()


def get_state(site: Site) -> Reconcile | None:
    with site.storage.snapshot() as snapshot:
        return get_reconcile(snapshot)


def step(stream: Stream) -> None:
    stream.poll()
    if stream.up:
        stream.deliver_up()
    elif stream.down:
        stream.deliver_down()


def list_again(supplier: Site, consumer: Site) -> None:
    """Make the consumer reconcile, without a difference."""
    supplier.storage.run(lambda transaction: put_on_list(transaction, (consumer.name,)))


def test_a_tombstone_on_behalf_keeps_the_record_context_of_what_it_covers() -> None:
    n, s = passed_by()
    (value,) = n.read("k0")
    pull(n, s)
    (tombstone,) = n.read("k0")
    assert tombstone.context[value.dot.actor] == value.dot.counter
    record = read_record(tombstone)
    assert record is not None
    assert record.context.has(value.dot)
