"""Topics, repositories, digest and counts: what is live, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crdt.dot import Incarnation, Millis
from crdt.key import EntryKey
from crdt.register import Sibling, make_register
from replica.core.commands import Forget, Remember, Update
from replica.core.counts import Counting, Counts, get_counts
from replica.core.damage import note_damage
from replica.core.digest import Digesting
from replica.core.errors import Code
from replica.core.identity import Identity
from replica.core.listing import Listing, list_repos, list_topics
from replica.core.rows import delete_register, put_clock, put_register
from replica.core.storage import Table, Transaction
from tests.core.one_replica import KEY, START, Replica, sibling


def fill(replica: Replica, *names: str) -> None:
    for name in names:
        replica.remember(Remember(key=EntryKey.make(*name.split("/"))))


# --- hiding


def test_every_read_hides_an_entry_from_the_very_millisecond(replica: Replica) -> None:
    fill(replica, "other/t/i")
    nothing = (replica.digest().digest, replica.repos(), replica.counts().live)
    replica.remember(Remember(key=KEY, title="t", ttl=Millis(10)))

    def seen() -> list[bool]:
        counts = replica.counts()
        assert counts.expired == 2 - counts.live
        return [
            replica.recall().exists,
            replica.history().exists,
            bool(replica.scan_all()),
            bool(replica.scan_all(topic="topic")),
            bool(replica.topics()),
            "repo" in replica.repos(),
            replica.digest().live == 2,
            replica.digest().digest != nothing[0],
            bool(replica.digest("repo").live),
            counts.live == 2,
        ]

    replica.now = Millis(START + 9)
    assert all(seen())
    replica.now = Millis(START + 10)
    assert not any(seen())
    assert (replica.digest().digest, replica.repos(), replica.counts().live) == nothing


# --- topics and repositories


def test_topics_come_in_byte_order_with_their_live_counts(replica: Replica) -> None:
    fill(replica, "r/b/1", "r/a/1", "r/a/2", "r/a-b/1", "r/é/1", "r2/z/1", "r/gone/1", "r/a/3")
    replica.forget(Forget(key=EntryKey("r", "gone", "1")))
    replica.forget(Forget(key=EntryKey("r", "a", "3")))
    replica.remember(Remember(key=EntryKey("r", "short", "1"), ttl=Millis(1)))
    replica.now = Millis(START + 1)
    assert list(replica.topics("r").items()) == [("a", 2), ("a-b", 1), ("b", 1), ("é", 1)]
    assert replica.topics("none") == {}


def test_repos_come_in_byte_order_with_their_live_counts(replica: Replica) -> None:
    fill(replica, "b/x/1", "a/x/1", "a/y/1", "a-/x/1", "gone/x/1", "é/x/1")
    replica.forget(Forget(key=EntryKey("gone", "x", "1")))
    assert list(replica.repos().items()) == [("a", 2), ("a-", 1), ("b", 1), ("é", 1)]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_listings_have_pages(replica: Replica, size: int) -> None:
    fill(replica, *(f"r{repo}/t{topic}/{at}" for repo in range(3) for topic in range(3) for at in range(2)))

    def pages(of: Callable[[str], tuple[list[tuple[str, int]], str]]) -> list[tuple[str, int]]:
        found, token = of("")
        while token:
            assert len(found) % size == 0
            more, token = of(token)
            found += more
        return found

    def topics(token: str) -> tuple[list[tuple[str, int]], str]:
        with replica.storage.snapshot() as snapshot:
            names = list_topics(snapshot, "r1", size, token, replica.now)
        return [(count.name, count.live) for count in names.counts], names.next_page_token

    def repos(token: str) -> tuple[list[tuple[str, int]], str]:
        with replica.storage.snapshot() as snapshot:
            names = list_repos(snapshot, size, token, replica.now)
        return [(count.name, count.live) for count in names.counts], names.next_page_token

    assert pages(topics) == [("t0", 2), ("t1", 2), ("t2", 2)]
    assert pages(repos) == [("r0", 6), ("r1", 6), ("r2", 6)]


def test_a_listing_refuses_what_is_not_its_own(replica: Replica) -> None:
    fill(replica, "a/x/1", "a/y/1", "b/x/1", "b/y/1")
    with replica.storage.snapshot() as snapshot:
        topics = list_topics(snapshot, "a", 1, "", replica.now).next_page_token
        repos = list_repos(snapshot, 1, "", replica.now).next_page_token
        refused: list[tuple[str, Callable[[], object]]] = [
            ("page_token", lambda: list_topics(snapshot, "b", 1, topics, replica.now)),
            ("page_token", lambda: list_topics(snapshot, "a", 1, repos, replica.now)),
            ("page_token", lambda: list_repos(snapshot, 1, topics, replica.now)),
            ("page_token", lambda: list_repos(snapshot, 1, "?", replica.now)),
            ("page_size", lambda: list_repos(snapshot, 501, "", replica.now)),
            ("page_size", lambda: list_topics(snapshot, "a", -1, "", replica.now)),
            ("repo_id", lambda: list_topics(snapshot, "", 1, "", replica.now)),
        ]
        for field, call in refused:
            replica.refuses(Code.INVALID_ARGUMENT, field, call)


# --- counts


def test_every_register_is_counted_once(replica: Replica) -> None:
    fill(replica, "r/t/live", "r/t/forgotten", "r/t/damaged", "r/u/concurrent")
    replica.forget(Forget(key=EntryKey("r", "t", "forgotten")))
    replica.damage(EntryKey("r", "t", "damaged"))
    replica.arrive(sibling("eu"), sibling("us", payload=b"\xc1"), key=EntryKey("r", "u", "concurrent"))
    replica.remember(Remember(key=EntryKey("r", "t", "short"), ttl=Millis(1)))
    replica.now = Millis(START + 1)
    assert replica.counts() == Counts(
        registers=5,
        live=2,
        expired=1,
        tombstones=1,
        damaged=1,
        siblings=6,
        concurrent=1,
        undecodable=1,
    )


def put(replica: Replica, key: EntryKey, *siblings: Sibling) -> None:
    """Store a register as it is; of no siblings: drop it."""

    def work(transaction: Transaction) -> None:
        if siblings:
            put_register(transaction, key.to_store(), make_register(siblings), origin=None)
        elif transaction.get(Table.REGISTERS, key.to_store()) is not None:
            delete_register(transaction, key.to_store())

    replica.storage.run(work)


some_siblings = st.lists(
    st.builds(
        sibling,
        st.sampled_from(["eu", "us", "ap"]),
        expires_at=st.sampled_from([None, START + 5, START + 10]),
    )
    | st.builds(sibling, st.sampled_from(["eu", "us", "ap"]), tombstone=st.just(True)),
    max_size=3,
    unique_by=lambda one: one.dot,
)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), some_siblings | st.none(), st.sampled_from([0, 5, 10])), max_size=12
    )
)
@example([("a", [sibling("eu"), sibling("us")], 0), ("a", None, 0), ("a", [sibling("eu")], 0)])
def test_the_indexes_count_what_the_rows_say(
    steps: list[tuple[str, list[Sibling] | None, int]],
) -> None:
    """Whatever comes, goes, is damaged and is replaced."""
    replica = Replica()
    for name, siblings, passed in steps:
        key = EntryKey("r", "t", name)
        replica.now = Millis(START + passed)
        if siblings is not None:
            put(replica, key, *siblings)
        elif replica.row(key) is not None:
            replica.damage(key)
        replica.counts()
    for name in "abc":
        put(replica, EntryKey("r", "t", name), sibling("eu"), sibling("us"))
    counts = replica.counts()
    assert (counts.damaged, counts.concurrent, counts.siblings) == (0, 3, 6)


def test_the_indexes_count_damage_that_was_come_upon(replica: Replica) -> None:
    fill(replica, "r/t/a", "r/t/b")
    key = EntryKey("r", "t", "a")
    replica.damage(key)
    counting = Counting(replica.now)
    with replica.storage.snapshot() as snapshot:
        counting.run(snapshot)
        before = get_counts(snapshot, replica.now)
    assert counting.damaged == [key.to_store()]
    replica.storage.run(lambda transaction: note_damage(transaction, counting.damaged))
    with replica.storage.snapshot() as snapshot:
        after = get_counts(snapshot, replica.now)
    assert (before.damaged, after.damaged) == (0, 1)
    assert (after.registers, after.live) == (2, 2)


def test_what_the_index_of_siblings_cannot_say_is_not_counted(replica: Replica) -> None:
    replica.arrive(sibling("eu"), sibling("us"))
    replica.storage.run(lambda transaction: transaction.put(Table.CONCURRENT, KEY.to_store(), b"damaged"))
    with replica.storage.snapshot() as snapshot:
        assert get_counts(snapshot, replica.now).siblings is None


def test_walks_give_the_same_in_steps(replica: Replica) -> None:
    fill(replica, *(f"r{at % 3}/t/{at}" for at in range(10)))
    counting, digesting = Counting(replica.now), Digesting(replica.now)
    listing = Listing(None, 0, "", replica.now)
    for walk in (counting, digesting, listing):
        with replica.storage.snapshot() as snapshot:
            while walk.step(snapshot, 1):
                pass
    assert counting.counts.live == 10
    assert digesting.digest() == replica.digest()
    assert {count.name: count.live for count in listing.names().counts} == replica.repos()


# --- digest


@pytest.fixture
def pair() -> tuple[Replica, Replica]:
    """Two replicas with the same entries."""
    here, there = Replica(), Replica(identity=Identity("there", Incarnation(bytes(16)), b"t" * 16))
    fill(here, "a/t/1", "b/t/1", "b/t/2")
    here.remember(Remember(key=KEY, title="t", body="b", tags=("x",), ttl=Millis(10_000)))
    copy(here, there)
    assert agree(here, there)
    return here, there


def copy(source: Replica, target: Replica) -> None:
    """Bring every register over, as replication would."""
    for key in (EntryKey("a", "t", "1"), EntryKey("b", "t", "1"), EntryKey("b", "t", "2"), KEY):
        register = source.register(key)
        with target.storage.transaction() as transaction:
            put_register(transaction, key.to_store(), register, origin=None)
    with target.storage.transaction() as transaction:
        put_clock(transaction, target.clock(), target.clock().join(source.clock()))


def agree(here: Replica, there: Replica) -> bool:
    return here.digest() == there.digest()


@pytest.mark.parametrize(
    "change",
    [
        Update(key=KEY, title="u"),
        Update(key=KEY, title="t"),
        Update(key=KEY, add_tags=("y",)),
        Update(key=KEY, remove_tags=("x",)),
        Remember(key=KEY, ttl=Millis(10_001)),
        Forget(key=KEY),
        Forget(key=KEY, lapse=True),
        Remember(key=EntryKey("b", "t", "3")),
        Remember(key=EntryKey("c", "t", "1"), ttl=Millis(1)),
    ],
)
def test_whatever_is_live_makes_a_difference(
    pair: tuple[Replica, Replica], change: Remember | Update | Forget
) -> None:
    here, there = pair
    there.do(change)
    assert not agree(here, there)
    assert here.digest("a") == there.digest("a")
    assert (here.digest("b") == there.digest("b")) == (change.key.repo_id != "b")


def test_what_is_not_live_makes_none(pair: tuple[Replica, Replica]) -> None:
    """One replica has purged what the other has not."""
    here, there = pair
    gone, short = EntryKey("b", "t", "gone"), EntryKey("z", "t", "short")
    here.remember(Remember(key=gone))
    here.forget(Forget(key=gone))
    here.remember(Remember(key=short, ttl=Millis(1)))
    here.now = there.now = Millis(START + 1)
    assert agree(here, there)
    here.now = there.now = Millis(START + 10_000)
    with there.storage.transaction() as transaction:
        delete_register(transaction, KEY.to_store())
    assert agree(here, there)
    assert here.digest(at=START) != there.digest(at=START)


def test_a_sibling_that_was_dead_already_makes_no_difference(pair: tuple[Replica, Replica]) -> None:
    here, there = pair
    living = sibling("eu", fields={"title": "living"}, written_at=START)
    unread = sibling("us", payload=b"\xc1", written_at=START)
    dead = sibling("ap", fields={"title": "dead"}, expires_at=START, written_at=START - 5)
    for at, value in enumerate((living, unread)):
        key = EntryKey("x", "t", str(at))
        here.arrive(value, dead, key=key)
        there.arrive(value, key=key)
    assert here.digest().live == 6
    assert agree(here, there)


def test_an_expiry_alone_makes_a_difference(pair: tuple[Replica, Replica]) -> None:
    for replica, expires_at in zip(pair, (START + 5, START + 6), strict=True):
        replica.arrive(sibling("eu", payload=b"\xc1", expires_at=expires_at), key=EntryKey("x", "t", "1"))
    assert not agree(*pair)


def test_what_cannot_be_read_makes_a_difference(pair: tuple[Replica, Replica]) -> None:
    here, there = pair
    here.arrive(sibling("eu", payload=b"\xc1"))
    assert not agree(here, there)
    there.arrive(sibling("eu", payload=b"\xc1other"))
    assert not agree(here, there)


def test_a_damaged_row_agrees_with_no_healthy_one(pair: tuple[Replica, Replica]) -> None:
    here, there = pair
    there.damage(EntryKey("b", "t", "2"))
    digest = there.digest()
    assert (digest.damaged, digest.live) == (1, here.digest().live - 1)
    assert digest.digest != here.digest().digest
    assert [repo.repo_id for repo in digest.repos if repo not in here.digest().repos] == ["b"]


def test_a_digest_says_its_moment_and_its_repositories(replica: Replica) -> None:
    empty = replica.digest()
    assert (empty.live, empty.repos, empty.at, len(empty.digest)) == (0, (), START, 32)
    fill(replica, "a/t/1", "b/t/1", "b/t/2")
    digest = replica.digest()
    assert [(repo.repo_id, repo.live) for repo in digest.repos] == [("a", 1), ("b", 2)]
    only = replica.digest("b")
    assert only.repos == digest.repos[1:]
    assert (only.live, len(only.digest), only.digest == digest.digest) == (2, 32, False)
    replica.refuses(Code.INVALID_ARGUMENT, "repo_id", lambda: replica.digest(""))
