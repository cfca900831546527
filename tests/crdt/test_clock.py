"""Clocks are sets of dots: every operation agrees with the plain set."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.dot import Actor, Dot
from tests.crdt.values import ACTORS, EU, US, actors, dot_sets, dots

DotSet = frozenset[Dot]


def elements(clock: Clock) -> DotSet:
    """Every dot of a clock, one by one."""
    return frozenset(
        Dot(actor, counter)
        for actor, runs in clock.runs.items()
        for lo, hi in zip(runs[::2], runs[1::2], strict=True)
        for counter in range(lo, hi + 1)
    )


def counters(dots: Iterable[Dot], actor: Actor) -> list[int]:
    return sorted(dot.counter for dot in dots if dot.actor == actor)


@given(dot_sets)
def test_a_clock_holds_exactly_the_dots_it_was_given(dots: DotSet) -> None:
    clock = Clock.of(dots)
    assert elements(clock) == dots
    assert bool(clock) == bool(dots)
    assert list(clock.actors()) == sorted({dot.actor for dot in dots})


@given(dot_sets, dots)
def test_has_is_membership(dots: DotSet, dot: Dot) -> None:
    assert Clock.of(dots).has(dot) == (dot in dots)


@given(dot_sets)
def test_has_agrees_at_every_counter(dots: DotSet) -> None:
    clock = Clock.of(dots)
    for actor in ACTORS:
        for counter in range(23):
            assert clock.has(Dot(actor, counter)) == (Dot(actor, counter) in dots)


@given(dot_sets, dot_sets)
def test_with_dots_is_union(a: DotSet, b: DotSet) -> None:
    assert elements(Clock.of(a).with_dots(b)) == a | b
    assert Clock.of(a).with_dots(b) == Clock.of(a | b)


@given(dot_sets, dot_sets)
def test_join_is_union(a: DotSet, b: DotSet) -> None:
    assert elements(Clock.of(a).join(Clock.of(b))) == a | b


@given(dot_sets, dot_sets)
def test_join_is_commutative(a: DotSet, b: DotSet) -> None:
    assert Clock.of(a).join(Clock.of(b)) == Clock.of(b).join(Clock.of(a))


@given(dot_sets, dot_sets, dot_sets)
def test_join_is_associative(a: DotSet, b: DotSet, c: DotSet) -> None:
    x, y, z = Clock.of(a), Clock.of(b), Clock.of(c)
    assert x.join(y).join(z) == x.join(y.join(z))


@given(dot_sets)
def test_join_is_idempotent_and_the_empty_clock_is_its_bottom(a: DotSet) -> None:
    clock = Clock.of(a)
    assert clock.join(Clock.of(a)) == clock
    assert clock.join(EMPTY_CLOCK) == EMPTY_CLOCK.join(clock) == clock


@given(dot_sets, dot_sets)
def test_leq_is_inclusion(a: DotSet, b: DotSet) -> None:
    assert Clock.of(a).leq(Clock.of(b)) == (a <= b)
    assert Clock.of(a).leq(Clock.of(a | b))
    assert Clock.of(a & b).leq(Clock.of(a))


@given(dot_sets, dot_sets)
def test_leq_is_the_order_of_the_join(a: DotSet, b: DotSet) -> None:
    x, y = Clock.of(a), Clock.of(b)
    assert x.leq(y) == (x.join(y) == y)


@given(dot_sets)
def test_runs_are_canonical(dots: DotSet) -> None:
    for runs in Clock.of(dots).runs.values():
        assert runs
        assert len(runs) % 2 == 0
        edge = -1
        for lo, hi in zip(runs[::2], runs[1::2], strict=True):
            assert edge + 1 < lo <= hi
            edge = hi


@given(st.lists(st.frozensets(dots, max_size=8), max_size=6))
def test_equal_sets_are_equal_values_however_they_came_about(parts: list[DotSet]) -> None:
    whole: DotSet = frozenset().union(*parts)
    by_dots = EMPTY_CLOCK
    for dot in sorted(whole, key=lambda dot: (dot.counter * 7 % 11, dot)):
        by_dots = by_dots.with_dots([dot])
    by_joins = EMPTY_CLOCK
    for part in parts:
        by_joins = by_joins.join(Clock.of(part))
    assert by_dots == by_joins == Clock.of(whole)
    assert hash(by_dots) == hash(by_joins) == hash(Clock.of(whole))


@given(dot_sets, actors)
def test_base_top_gaps_and_extras_describe_the_set(dots: DotSet, actor: Actor) -> None:
    clock = Clock.of(dots)
    there = counters(dots, actor)
    top = there[-1] if there else 0
    missing = [counter for counter in range(1, top + 1) if counter not in there]
    assert clock.top(actor) == top
    assert clock.base(actor) == (missing[0] - 1 if missing else top)
    gaps = clock.gaps(actor)
    found = [counter for lo, hi in zip(gaps[::2], gaps[1::2], strict=True) for counter in range(lo, hi + 1)]
    assert found == missing
    assert clock.extras() == sum(dot.counter > clock.base(dot.actor) for dot in dots)


@given(dot_sets, st.dictionaries(actors, st.integers(1, 20)))
def test_a_context_is_covered_without_gap_when_every_dot_up_to_it_is_there(
    dots: DotSet, context: dict[Actor, int]
) -> None:
    below = {Dot(actor, counter) for actor, top in context.items() for counter in range(1, top + 1)}
    assert Clock.of(dots).covers_without_gap(context) == (below <= dots)


@given(dot_sets, actors, st.integers(1, 20), st.integers(0, 20))
def test_with_run_adds_every_dot_of_the_run(dots: DotSet, actor: Actor, first: int, last: int) -> None:
    run = {Dot(actor, counter) for counter in range(first, last + 1)}
    clock = Clock.of(dots).with_run(actor, first, last)
    assert elements(clock) == dots | run
    assert clock == Clock.of(dots | run)


@given(st.dictionaries(actors, st.integers(0, 20)))
def test_up_to_holds_every_dot_from_the_first(tops: dict[Actor, int]) -> None:
    expected = {Dot(actor, counter) for actor, top in tops.items() for counter in range(1, top + 1)}
    clock = Clock.up_to(tops)
    assert elements(clock) == expected
    assert clock == Clock.of(expected)
    assert clock.extras() == 0


@pytest.mark.parametrize(
    ("runs", "base", "extras", "gaps"),
    [
        ((), 0, 0, ()),
        ((1, 5), 5, 0, ()),
        ((2, 5), 0, 4, (1, 1)),
        ((1, 3, 7, 7, 9, 12), 3, 5, (4, 6, 8, 8)),
    ],
)
def test_a_base_and_what_lies_beyond(
    runs: tuple[int, ...], base: int, extras: int, gaps: tuple[int, ...]
) -> None:
    clock = Clock({EU: runs} if runs else {})
    assert (clock.base(EU), clock.extras(), clock.gaps(EU)) == (base, extras, gaps)
    assert (clock.base(US), clock.top(US), clock.gaps(US)) == (0, 0, ())


def test_an_operation_leaves_its_clock_as_it_was() -> None:
    clock = Clock.of([Dot(EU, 1)])
    clock.join(Clock.of([Dot(US, 1)]))
    clock.with_dots([Dot(EU, 2)])
    clock.with_run(EU, 2, 9)
    assert elements(clock) == {Dot(EU, 1)}


def test_two_incarnations_of_one_cluster_are_two_actors() -> None:
    again = Actor(EU.cluster, US.incarnation)
    assert not Clock.of([Dot(EU, 1)]).has(Dot(again, 1))
