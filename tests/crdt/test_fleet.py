"""The laws of the joins over states that real writes bring about, and what a fleet agrees on."""

from hypothesis import given, settings
from hypothesis import strategies as st

from crdt.record import join_records
from crdt.register import join
from tests.crdt.fleet import KEYS, Fleet, Snapshot, Step, histories, joined_states

picks = st.lists(st.tuples(*[st.integers(0, 1000)] * 3), min_size=10, max_size=10)
Picks = list[tuple[int, int, int]]


def picked(fleet: Fleet, picks: Picks) -> list[tuple[Snapshot, Snapshot, Snapshot]]:
    """Triples of states that came about at different times and places."""
    pool = fleet.snapshots
    return [(pool[a % len(pool)], pool[b % len(pool)], pool[c % len(pool)]) for a, b, c in picks]


@given(histories)
@settings(max_examples=200)
def test_every_replica_holds_at_every_moment_what_the_graph_of_writes_says(history: list[Step]) -> None:
    Fleet.after(history)


@given(histories)
def test_a_healed_fleet_reads_the_same_bytes(history: list[Step]) -> None:
    fleet = Fleet.after(history)
    fleet.heal()
    for key in KEYS:
        registers = [replica.registers[key] for replica in fleet.replicas]
        assert registers[0] == registers[1] == registers[2]
        assert len(set(fleet.folds(key))) == 1
    clocks = [replica.clock for replica in fleet.replicas]
    assert clocks[0] == clocks[1] == clocks[2]
    assert clocks[0].extras() == 0


@given(histories, picks)
def test_the_join_of_states_is_a_semilattice(history: list[Step], picks: Picks) -> None:
    for a, b, c in picked(Fleet.after(history), picks):
        assert joined_states(a, b) == joined_states(b, a)
        assert joined_states(joined_states(a, b), c) == joined_states(a, joined_states(b, c))
        assert joined_states(a, a) == a
        both = joined_states(a, b)
        assert joined_states(both, a) == joined_states(a, both) == both
        assert a.clock.leq(both.clock)


@given(histories, picks)
def test_a_part_that_arrived_before_changes_nothing_about_the_whole(
    history: list[Step], picks: Picks
) -> None:
    for a, b, c in picked(Fleet.after(history), picks):
        part = join(a.register, b.register, a.clock, b.clock)
        after_part = Snapshot(part.register, a.clock.with_dots(part.seen))
        assert a.clock.leq(after_part.clock)
        assert after_part.clock.leq(a.clock.join(b.clock))
        assert joined_states(after_part, b) == joined_states(a, b)
        assert joined_states(joined_states(after_part, c), b) == joined_states(joined_states(a, c), b)


@given(histories, picks)
def test_the_join_of_records_is_a_semilattice(history: list[Step], picks: Picks) -> None:
    pool = Fleet.after(history).records
    for drawn in picks:
        a, b, c = (pool[at % len(pool)] for at in drawn)
        assert join_records(a, b) == join_records(b, a)
        assert join_records(join_records(a, b), c) == join_records(a, join_records(b, c))
        assert join_records(a, b, c) == join_records(c, a, b)
        assert join_records(a, a) == a
        both = join_records(a, b)
        assert join_records(both, a) == both
        assert a.context.leq(both.context)
