"""Expiry, to the exact millisecond."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt.dot import Dot, Millis
from crdt.expiry import Life, contributing, expiry_in_force, life, remaining_seconds, with_ttl
from crdt.register import Register, Sibling, make_register
from tests.crdt.values import ACTORS, AP, EU, US, tombstone, value

A, B, C = Dot(EU, 1), Dot(US, 1), Dot(AP, 1)


def alive(register: Register, now: int) -> Life | None:
    return life(register, Millis(now))


# --- one sibling


def test_an_entry_is_absent_from_the_very_millisecond_of_its_expiry() -> None:
    note = value(A, expires_at=1000, written_at=0)
    assert alive((note,), 999) == Life((note,), Millis(1000))
    assert alive((note,), 1000) is None
    assert alive((note,), 1001) is None


def test_a_durable_entry_lives_at_any_time() -> None:
    note = value(A)
    assert alive((note,), -(2**63)) == alive((note,), 2**63) == Life((note,), None)


@pytest.mark.parametrize("register", [(), (tombstone(A),), (tombstone(A), tombstone(B))])
def test_without_a_value_the_entry_is_absent(register: Register) -> None:
    assert alive(register, 0) is None
    assert contributing(register) == ()


def test_no_sibling_is_excluded_by_its_own_time_of_writing() -> None:
    odd, other = value(A, expires_at=10, written_at=10), value(B, written_at=0)
    assert contributing((odd, other)) == (odd, other)


# --- the join of expiries


def test_the_later_expiry_wins() -> None:
    early, late = value(A, expires_at=1000, written_at=0), value(B, expires_at=2000, written_at=0)
    assert alive((early, late), 1999) == Life((early, late), Millis(2000))
    assert alive((early, late), 2000) is None


def test_durable_is_the_bottom() -> None:
    durable, ephemeral = value(A, written_at=0), value(B, expires_at=1000, written_at=0)
    assert alive((durable, ephemeral), 999) == Life((durable, ephemeral), Millis(1000))
    assert alive((durable, ephemeral), 1000) is None
    assert expiry_in_force((durable,)) is None
    assert expiry_in_force(()) is None


def test_a_tombstone_says_nothing_about_expiry() -> None:
    note = value(A, expires_at=1000, written_at=0)
    assert alive((note, tombstone(B, written_at=5000)), 999) == Life((note,), Millis(1000))


# --- the refinement


@pytest.mark.parametrize(("written_at", "contributes"), [(999, True), (1000, False), (1001, False)])
def test_a_sibling_that_had_expired_when_another_was_written_contributes_nothing(
    written_at: int, contributes: bool
) -> None:
    dead, other = value(A, expires_at=1000, written_at=0), value(B, written_at=written_at)
    assert contributing((dead, other)) == ((dead, other) if contributes else (other,))
    assert alive((dead, other), 5000) == (None if contributes else Life((other,), None))


def test_a_dead_note_does_not_take_a_living_durable_one_with_it() -> None:
    """History 1: A writes k with TTL 10; at 100 B, unaware, writes k durable; they sync."""
    dead, durable = value(A, expires_at=10, written_at=0), value(B, written_at=100)
    assert alive((dead, durable), 100) == Life((durable,), None)
    assert alive((dead, durable), 10**12) == Life((durable,), None)


def test_a_tombstone_written_after_an_expiry_excludes_nothing() -> None:
    note = value(A, expires_at=1000, written_at=0)
    assert contributing((note, tombstone(B, written_at=2000))) == (note,)


def test_a_durable_sibling_is_never_excluded() -> None:
    old, young = value(A, written_at=0), value(B, written_at=10**15)
    assert contributing((old, young)) == (old, young)


def test_an_excluded_sibling_still_excludes() -> None:
    """The refinement asks when another value was written, not whether that one contributes itself."""
    first = value(A, expires_at=10, written_at=0)
    second = value(B, expires_at=20, written_at=10)
    third = value(C, expires_at=30, written_at=20)
    assert contributing((first, second, third)) == (third,)


def test_siblings_of_one_write_do_not_exclude_each_other() -> None:
    both = (value(A, expires_at=1000, written_at=999), value(Dot(EU, 2), expires_at=1000, written_at=999))
    assert contributing(both) == both


small = st.integers(0, 12)
timed = st.lists(st.tuples(st.booleans(), st.none() | small, small), max_size=4)
"""Whether a tombstone, the expiry, the time of the write. A wild clock can write what had expired before."""


def _register(rows: list[tuple[bool, int | None, int]]) -> Register:
    return make_register(
        tombstone(Dot(actor, 1), written_at=at)
        if dead
        else value(Dot(actor, 1), expires_at=expiry, written_at=at)
        for actor, (dead, expiry, at) in zip(ACTORS, rows, strict=False)
    )


@given(timed, small)
def test_what_lives_is_the_rule_word_for_word(rows: list[tuple[bool, int | None, int]], now: int) -> None:
    register = _register(rows)
    values = [sibling for sibling in register if not sibling.tombstone]

    def had_expired(sibling: Sibling, other: Sibling) -> bool:
        return sibling.expires_at is not None and sibling.expires_at <= other.written_at

    left = [
        sibling
        for sibling in values
        if not any(had_expired(sibling, other) for other in values if other.dot != sibling.dot)
    ]
    expiries = [sibling.expires_at for sibling in left if sibling.expires_at is not None]
    expected = (
        None
        if not left or (expiries and max(expiries) <= now)
        else Life(tuple(left), max(expiries) if expiries else None)
    )
    assert contributing(register) == tuple(left)
    assert alive(register, now) == expected


@given(timed, small, small)
def test_what_has_lapsed_stays_so(rows: list[tuple[bool, int | None, int]], now: int, later: int) -> None:
    register = _register(rows)
    if alive(register, now) is None:
        assert alive(register, now + later) is None


# --- writes with a TTL, and the time left


@pytest.mark.parametrize(
    ("in_force", "now", "ttl", "expected"),
    [
        (None, 1000, 500, 1500),
        (1200, 1000, 500, 1500),
        (1500, 1000, 500, 1500),
        (1501, 1000, 500, 1501),
        (9000, 1000, 500, 9000),
    ],
)
def test_a_ttl_sets_or_extends_and_never_shortens(
    in_force: int | None, now: int, ttl: int, expected: int
) -> None:
    force = None if in_force is None else Millis(in_force)
    assert with_ttl(force, Millis(now), Millis(ttl)) == expected


@pytest.mark.parametrize(
    ("left", "seconds"),
    [
        (1, 1),
        (999, 1),
        (1000, 1),
        (1001, 2),
        (59_999, 60),
        (60_000, 60),
        (60_001, 61),
        (0, 0),
        (-5, 0),
        (-1000, 0),
        (-1001, 0),
    ],
)
def test_remaining_life_is_rounded_up(left: int, seconds: int) -> None:
    assert remaining_seconds(Millis(10_000 + left), Millis(10_000)) == seconds


@given(st.integers(0, 2**53), st.integers(0, 2**53))
def test_remaining_life_is_never_zero_while_live(expires_at: int, now: int) -> None:
    note = value(A, expires_at=expires_at, written_at=0)
    left = remaining_seconds(Millis(expires_at), Millis(now))
    assert (left > 0) == (alive((note,), now) is not None)
    assert left * 1000 >= expires_at - now > (left - 1) * 1000 or left == 0
