"""A replica that was away for a year: its news survives, nothing forgotten returns, and coming back costs
what differs, not what is stored.

Cost is counted in messages, bytes and registers, never in seconds; docs/bounds.md has the figures of large
stores.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

import pytest

from replica.core.messages import Kind
from tests.core.replication.metered import Cost, metered_pull
from tests.core.replication.small_fleet import Site, World, store_key, sync

YEAR = 365 * 24 * 3600
HOUR = 3600


@dataclass
class Return:
    """What happened during a year, and what the return from it cost."""

    home: Site
    other: Site
    away: Site
    keys: list[str]
    """In disorder: what was done to the first of them is said below."""
    difference: int
    cost: Cost
    kinds: tuple[Kind, Kind]
    """How the one who was away was served, and how it served."""

    def part(self, number: int) -> list[str]:
        """One of the parts of the keys, all as large as the difference, to which one thing happened."""
        return self.keys[number * self.difference : (number + 1) * self.difference]


CHANGED_AT_HOME, CHANGED_AWAY, FORGOTTEN_AT_HOME, FORGOTTEN_AWAY, FORGOTTEN_AND_CHANGED, CHANGED_ON_BOTH = (
    range(6)
)


def away_for_a_year(stored: int, difference: int, seed: int = 1) -> Return:
    """Three replicas with the same entries, of which one goes away, lives on alone, and comes back."""
    world = World(random=random.Random(seed))
    names = ("home", "other", "away")
    home, other, away = (Site(world, name, [peer for peer in names if peer != name]) for name in names)
    keys = [f"k{number:05}" for number in range(stored)]
    for key in keys:
        home.remember(key, f"from before: {key}")
    sync(home, other, away, rounds=2)
    world.random.shuffle(keys)
    done = Return(home, other, away, keys, difference, Cost(), (Kind.TAIL, Kind.TAIL))

    world.wait(YEAR / 2)
    sync(home, other, rounds=1)
    for key in done.part(CHANGED_AT_HOME) + done.part(CHANGED_ON_BOTH):
        home.remember(key, "changed at home")
    for key in done.part(FORGOTTEN_AT_HOME) + done.part(FORGOTTEN_AND_CHANGED):
        home.forget(key)
    for number in range(difference):
        home.remember(f"home-{number}", "made at home")
        other.remember(f"lapse-{number}", "short", ttl=HOUR)
    for key in done.part(CHANGED_AWAY) + done.part(CHANGED_ON_BOTH) + done.part(FORGOTTEN_AND_CHANGED):
        away.remember(key, "changed away")
    for key in done.part(FORGOTTEN_AWAY):
        away.forget(key)
    for number in range(difference):
        away.remember(f"away-{number}", "made away")
        away.remember(f"away-lapse-{number}", "short", ttl=HOUR)
    world.wait(YEAR / 2)
    sync(home, other, rounds=2)

    # Everything dead goes, on all of them: what is past its expiry first becomes a tombstone.
    for _ in range(3):
        for site in (home, other, away):
            site.purge()
        sync(home, other, rounds=2)
    assert len(home.everything()) == len(other.everything()) == stored - difference
    assert len(away.everything()) == stored
    assert home.purge().waiting == other.purge().waiting == away.purge().waiting == 0

    down, served = metered_pull(away, home)
    up, serving = metered_pull(home, away)
    assert served.pulling.verdict is not None
    assert serving.pulling.verdict is not None
    done.cost = down + up
    done.kinds = (served.pulling.verdict.kind, serving.pulling.verdict.kind)
    return done


@pytest.fixture(scope="module")
def back() -> Return:
    done = away_for_a_year(600, 10)
    sync(done.home, done.other, done.away)
    return done


def test_both_sides_have_purged_past_the_other_so_both_reconcile(back: Return) -> None:
    assert back.kinds == (Kind.RECONCILE, Kind.RECONCILE)
    assert [site.listed() for site in (back.home, back.other, back.away)] == [set(), set(), set()]


def test_the_news_of_both_sides_survives(back: Return) -> None:
    for site in (back.home, back.other, back.away):
        for number in range(back.difference):
            assert site.titles(f"home-{number}") == {"made at home"}
            assert site.titles(f"away-{number}") == {"made away"}
        for key in back.part(CHANGED_AT_HOME):
            assert site.titles(key) == {"changed at home"}
        for key in back.part(CHANGED_AWAY):
            assert site.titles(key) == {"changed away"}
        for key in back.part(CHANGED_ON_BOTH):
            assert site.titles(key) == {"changed at home", "changed away"}


def test_what_was_changed_unaware_of_its_removal_survives_it(back: Return) -> None:
    for site in (back.home, back.other, back.away):
        for key in back.part(FORGOTTEN_AND_CHANGED):
            assert site.titles(key) == {"changed away"}


def test_nothing_forgotten_or_expired_returns(back: Return) -> None:
    for site in (back.home, back.other, back.away):
        for key in back.part(FORGOTTEN_AT_HOME) + back.part(FORGOTTEN_AWAY):
            assert site.titles(key) == set()
        for number in range(back.difference):
            assert site.titles(f"lapse-{number}") == site.titles(f"away-lapse-{number}") == set()


def test_nobody_else_has_changed_and_all_agree(back: Return) -> None:
    assert back.home.everything() == back.other.everything() == back.away.everything()
    for key in back.keys[6 * back.difference :]:
        assert back.away.titles(key) == {f"from before: {key}"}


def test_the_removals_that_were_made_on_behalf_are_purged_in_turn(back: Return) -> None:
    sites = (back.home, back.other, back.away)
    for _ in range(2):
        for site in sites:
            site.purge()
        sync(*sites, rounds=2)
    gone = {store_key(key) for key in back.part(FORGOTTEN_AT_HOME) + back.part(FORGOTTEN_AWAY)}
    for site in sites:
        assert not gone & site.everything().keys()
        assert site.clock().extras() == 0


# --- what it costs

_PART = 64
"""About how many registers share a fingerprint."""
_PLACES = 10
"""At how many keys the stores differ for each unit of :func:`away_for_a_year`'s difference."""


@cache
def cost(stored: int, difference: int) -> Cost:
    return away_for_a_year(stored, difference).cost


@pytest.mark.parametrize("stored", [500, 4000])
def test_the_cost_is_bounded_by_the_difference(stored: int) -> None:
    # Both pull. A part that differs is sent whole, and that a key lies in a large one is the more likely.
    assert cost(stored, 1).registers <= 2 * _PLACES * 2 * _PART < 2 * 4000
    # For each there and back: two outlines and the registers; and what opens a stream.
    assert cost(stored, 1).messages <= 2 * (_PLACES * 2 * 3 + 10)


def test_it_grows_as_the_difference_does() -> None:
    assert 1.5 * cost(4000, 1).registers < cost(4000, 2).registers < 3 * cost(4000, 1).registers


def test_a_store_eight_times_as_large_costs_little_more() -> None:
    assert cost(4000, 1).registers < 2 * cost(500, 1).registers
    assert cost(4000, 1).bytes < 2 * cost(500, 1).bytes
    assert cost(4000, 1).messages < 2 * cost(500, 1).messages


def test_without_a_difference_it_costs_next_to_nothing() -> None:
    for stored in (500, 4000):
        assert cost(stored, 0).registers == 0
        assert cost(stored, 0).messages <= 8
        assert cost(stored, 0).bytes < 4000
