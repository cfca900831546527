"""The rules of expiry, to the millisecond (DESIGN section 4; docs/decisions/0002)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import DEFAULT_LAPSE, END_OF_TIME, Forget, Remember, Update
from replica.core.errors import Code
from replica.core.node import SKEW_ALLOWED
from replica.core.policy import LONGEST_DEFAULT, TtlPolicy
from tests.core.one_replica import KEY, START, Replica, sibling

SECOND = 1000
UNREADABLE = b"\xc1"


@pytest.fixture
def replica() -> Replica:
    return Replica()


@pytest.mark.parametrize(
    ("first", "then", "expires"),
    [
        # A write with a TTL sets the later of the expiry in force and now + ttl; without one it leaves it.
        (None, None, None),
        (None, 5, 5),
        (10, None, 10),
        (10, 5, 10),
        (10, 10, 10),
        (10, 15, 15),
    ],
)
def test_a_ttl_gives_or_extends_and_never_shortens(
    replica: Replica, first: int | None, then: int | None, expires: int | None
) -> None:
    def ttl(seconds: int | None) -> Millis | None:
        return None if seconds is None else Millis(seconds * SECOND)

    replica.remember(Remember(key=KEY, ttl=ttl(first)))
    done = replica.remember(Remember(key=KEY, ttl=ttl(then)))
    assert (
        done.expires_at
        == replica.recall().expires_at
        == (None if expires is None else START + expires * SECOND)
    )
    assert replica.update(Update(key=KEY, title="x")).expires_at == done.expires_at
    assert replica.remember(Remember(key=KEY, durable=True)).expires_at == done.expires_at


def test_a_ttl_counts_from_the_write(replica: Replica) -> None:
    replica.remember(Remember(key=KEY, ttl=Millis(10 * SECOND)))
    replica.now = Millis(START + 6 * SECOND)
    assert replica.remember(Remember(key=KEY, ttl=Millis(4 * SECOND))).expires_at == START + 10 * SECOND
    assert (
        replica.remember(Remember(key=KEY, ttl=Millis(4 * SECOND + 1))).expires_at == START + 10 * SECOND + 1
    )


def test_the_later_expiry_wins_and_durable_is_the_bottom(replica: Replica) -> None:
    replica.arrive(sibling("eu"))
    replica.arrive(sibling("us", expires_at=START + 5))
    assert replica.recall().expires_at == START + 5
    replica.arrive(sibling("ap", expires_at=START + 9))
    assert replica.recall().expires_at == START + 9
    assert replica.update(Update(key=KEY, title="x")).expires_at == START + 9


def test_a_note_that_was_dead_when_another_was_written_takes_nothing_with_it(replica: Replica) -> None:
    """History 1: A writes with a TTL of 10; at 100 B, unaware, writes durably; they meet."""
    replica.arrive(sibling("a", fields={"title": "dead"}, expires_at=START + 10))
    replica.arrive(sibling("b", fields={"body": "living"}, written_at=START + 100))
    replica.now = Millis(START + 100)
    entry = replica.recall()
    assert (entry.exists, entry.expires_at, entry.title, entry.body) == (True, None, "", "living")
    replica.update(Update(key=KEY, author="x"))
    assert (replica.recall().title, replica.recall().expires_at) == ("", None)


def test_expired_means_absent_from_the_very_millisecond(replica: Replica) -> None:
    replica.remember(Remember(key=KEY, title="t", ttl=Millis(10)))
    replica.now = Millis(START + 9)
    assert (replica.recall().exists, replica.recall().remaining_seconds) == (True, 1)
    assert not replica.remember(Remember(key=KEY)).created
    replica.now = Millis(START + 10)
    assert not replica.recall().exists
    assert replica.remember(Remember(key=KEY)).created
    assert (replica.recall().title, replica.recall().expires_at) == ("", None)


@pytest.mark.parametrize(("left", "seconds"), [(1, 1), (999, 1), (1000, 1), (1001, 2), (60_000, 60)])
def test_remaining_life_is_rounded_up(replica: Replica, left: int, seconds: int) -> None:
    replica.remember(Remember(key=KEY, ttl=Millis(left)))
    assert replica.recall().remaining_seconds == seconds


def test_no_expiry_lies_beyond_the_end_of_time(replica: Replica) -> None:
    most = Millis(END_OF_TIME - START)
    assert replica.remember(Remember(key=KEY, ttl=most)).expires_at == END_OF_TIME
    replica.now = Millis(START + 1)
    over: list[tuple[str, Callable[[], object]]] = [
        ("ttl_seconds", lambda: replica.remember(Remember(key=KEY, ttl=most))),
        ("ttl_seconds", lambda: replica.remember(Remember(key=EntryKey("r", "t", "new"), ttl=most))),
        ("lapse_seconds", lambda: replica.forget(Forget(key=KEY, lapse=True, lapse_for=most))),
    ]
    for field, call in over:
        replica.refuses(Code.INVALID_ARGUMENT, field, call)
    longest = Replica(policy=TtlPolicy(LONGEST_DEFAULT))
    assert longest.remember(Remember(key=KEY)).expires_at == START + LONGEST_DEFAULT


# --- lapse


@pytest.mark.parametrize(
    ("ttl", "lapse", "expires"),
    [(None, None, 60), (None, 5, 5), (10, 5, 10), (10, None, 60), (300, None, 300), (300, 301, 301)],
)
def test_a_lapse_is_a_ttl_and_reports_what_is_in_force(
    replica: Replica, ttl: int | None, lapse: int | None, expires: int
) -> None:
    replica.remember(Remember(key=KEY, title="t", ttl=None if ttl is None else Millis(ttl * SECOND)))
    lapse_for = None if lapse is None else Millis(lapse * SECOND)
    done = replica.forget(Forget(key=KEY, lapse=True, lapse_for=lapse_for))
    assert (done.lapse, done.existed, done.undecodable) == (True, True, 0)
    assert done.expires_at == replica.recall().expires_at == START + expires * SECOND
    assert replica.recall().title == "t"
    replica.now = Millis(START + expires * SECOND)
    assert not replica.recall().exists


def test_a_lapse_keeps_every_concurrent_value(replica: Replica) -> None:
    replica.arrive(sibling("eu", fields={"title": "a"}), sibling("us", fields={"title": "b"}))
    before = replica.recall().concurrent
    replica.forget(Forget(key=KEY, lapse=True))
    entry = replica.recall()
    assert (entry.concurrent, entry.sibling_count) == (before, 1)


def test_what_cannot_be_read_lapses_exactly(replica: Replica) -> None:
    replica.arrive(sibling("eu", payload=UNREADABLE, expires_at=START + 500 * SECOND))
    replica.arrive(sibling("us", payload=UNREADABLE + b"2"))
    done = replica.forget(Forget(key=KEY, lapse=True, lapse_for=Millis(5 * SECOND)))
    assert (done.existed, done.undecodable, done.expires_at) == (True, 2, START + 5 * SECOND)
    assert [each.payload for each in replica.register()] == [UNREADABLE, UNREADABLE + b"2"]
    assert replica.recall().expires_at == START + 5 * SECOND


def test_with_one_readable_sibling_a_lapse_never_shortens(replica: Replica) -> None:
    replica.arrive(sibling("eu", payload=UNREADABLE, expires_at=START + 500 * SECOND))
    replica.arrive(sibling("us", fields={"title": "t"}))
    done = replica.forget(Forget(key=KEY, lapse=True))
    assert (done.undecodable, done.expires_at) == (1, START + 500 * SECOND)
    assert (replica.recall().undecodable, replica.recall().title) == (1, "t")


def test_a_lapse_of_what_is_not_live_does_nothing(replica: Replica) -> None:
    before = replica.dump()
    done = replica.forget(Forget(key=KEY, lapse=True))
    assert (done.lapse, done.existed, done.expires_at) == (True, False, None)
    assert replica.dump() == before
    replica.remember(Remember(key=KEY, ttl=Millis(1)))
    replica.now = Millis(START + 1)
    before = replica.dump()
    assert not replica.forget(Forget(key=KEY, lapse=True)).existed
    assert replica.dump() == before


def test_a_lapse_of_60_seconds_is_the_default() -> None:
    assert DEFAULT_LAPSE == 60 * SECOND


# --- clock skew (history 16)


@pytest.fixture
def fast(replica: Replica) -> Replica:
    """An entry that this replica's fast clock hides, and that lives a minute and a millisecond more
    elsewhere.
    """
    replica.remember(Remember(key=KEY, title="t", ttl=Millis(10 * SECOND)))
    replica.now = Millis(START + 3600 * SECOND)
    replica.slowest = Millis(START + 10 * SECOND - SKEW_ALLOWED - 1)
    assert not replica.recall().exists
    return replica


@pytest.mark.parametrize(
    "command",
    [
        Remember(key=KEY, title="new"),
        Remember(key=KEY, create_only=True),
        Remember(key=KEY, if_version="x"),
        Update(key=KEY, title="new"),
        Forget(key=KEY, lapse=True),
    ],
)
def test_a_fast_clock_does_not_destroy_what_lives_elsewhere(
    fast: Replica, command: Remember | Update | Forget
) -> None:
    fast.refuses(Code.FAILED_PRECONDITION, "key", lambda: fast.do(command))


def test_a_minute_of_skew_is_allowed(fast: Replica) -> None:
    assert fast.slowest is not None
    fast.slowest = Millis(fast.slowest + 1)
    assert not fast.forget(Forget(key=KEY, lapse=True)).existed
    fast.refuses(Code.NOT_FOUND, "key", lambda: fast.update(Update(key=KEY)))
    assert fast.remember(Remember(key=KEY)).created


def test_a_forget_on_a_fast_clock_does_what_was_asked(fast: Replica) -> None:
    assert not fast.forget(Forget(key=KEY)).existed
    assert [each.tombstone for each in fast.register()] == [True]
    assert fast.remember(Remember(key=KEY)).created


def test_a_slow_peer_holds_nothing_up_that_was_forgotten_or_never_there(replica: Replica) -> None:
    replica.slowest = Millis(START - 10**9)
    assert replica.remember(Remember(key=KEY)).created
    assert not replica.remember(Remember(key=KEY, title="x")).created
    replica.forget(Forget(key=KEY))
    assert replica.remember(Remember(key=KEY)).created
