"""Pages: in key order, within their bounds, each entry exactly once."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import Forget, Remember
from replica.core.entry import Entry, size_bound
from replica.core.errors import Code
from replica.core.limits import Limits
from replica.core.reading import Page, Scanning, recall_many, scan
from replica.core.results import Forgotten, Remembered
from tests.core.one_replica import KEY, START, Replica


def page_of(
    replica: Replica, topic: str | None = None, size: int = 0, token: str = "", repo_id: str = "repo"
) -> Page:
    with replica.storage.snapshot() as snapshot:
        return scan(snapshot, repo_id, topic, size, token, replica.now, replica.node.limits)


def fill(replica: Replica, *names: str) -> list[EntryKey]:
    """Entries named ``topic/id``, in key order."""
    keys = [EntryKey.make("repo", *name.split("/")) for name in names]
    for key in keys:
        replica.remember(Remember(key=key, body=key.id))
    return sorted(keys)


def keys_of(entries: tuple[Entry, ...] | list[Entry]) -> list[EntryKey]:
    return [entry.key for entry in entries]


def test_a_scan_goes_by_the_byte_order_of_topic_and_id(replica: Replica) -> None:
    names = ["b/1", "a/2", "a/10", "a-b/1", "a b/1", "é/1", "🧠/1", "\uffff/1", "a/\u0301", "Z/1"]
    fill(replica, *names)
    expected = sorted(names, key=lambda name: [part.encode() for part in name.split("/")])
    assert [f"{key.topic}/{key.id}" for key in keys_of(replica.scan_all())] == expected


def test_a_scope_ends_at_its_component(replica: Replica) -> None:
    fill(replica, "svc/1", "svc-api/1", "svc/2", "sv/1", "svc\u00a0/1")
    replica.remember(Remember(key=EntryKey("repo-2", "svc", "3")))
    assert [key.id for key in keys_of(replica.scan_all(topic="svc"))] == ["1", "2"]
    assert keys_of(replica.scan_all(topic="sv")) == [EntryKey("repo", "sv", "1")]
    assert len(replica.scan_all()) == 5
    assert replica.scan_all(topic="none") == []
    assert replica.scan_all(repo_id="rep") == []


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7])
def test_pages_hold_so_many_and_the_last_says_so(replica: Replica, size: int) -> None:
    keys = fill(replica, *(f"t/{at}" for at in range(6)))
    pages = [page_of(replica, size=size)]
    while pages[-1].next_page_token:
        pages.append(page_of(replica, size=size, token=pages[-1].next_page_token))
    assert [key for page in pages for key in keys_of(page.entries)] == keys
    assert [len(page.entries) for page in pages] == [size] * (6 // size) + [6 % size] * (6 % size > 0)


def test_a_page_holds_100_unless_told(replica: Replica) -> None:
    fill(replica, *(f"t/{at:03}" for at in range(101)))
    assert len(page_of(replica).entries) == 100
    assert len(page_of(replica, size=101).entries) == 101


@pytest.mark.parametrize("size", [-1, 501, 2**31 - 1])
def test_a_page_size_beyond_the_limit_is_refused(replica: Replica, size: int) -> None:
    replica.refuses(Code.INVALID_ARGUMENT, "page_size", lambda: page_of(replica, size=size))
    page_of(replica, size=500)


def test_a_smaller_limit_bounds_the_default_too() -> None:
    replica = Replica(limits=Limits(page_entries=2))
    fill(replica, "t/1", "t/2", "t/3")
    assert len(page_of(replica).entries) == 2
    replica.refuses(Code.INVALID_ARGUMENT, "page_size", lambda: page_of(replica, size=3))


def test_a_page_ends_at_its_bytes_and_holds_at_least_one() -> None:
    replica = Replica()
    keys = fill(replica, "t/1", "t/2", "t/3", "t/4")
    one = size_bound(replica.recall(keys[0]))
    for room, lengths in (
        (one - 1, [1, 1, 1, 1]),
        (2 * one, [2, 2]),
        (2 * one + 1, [2, 2]),
        (3 * one, [3, 1]),
    ):
        narrow = Replica(replica.storage, limits=Limits(page_bytes=room))
        pages = [page_of(narrow)]
        while pages[-1].next_page_token:
            pages.append(page_of(narrow, token=pages[-1].next_page_token))
        assert [len(page.entries) for page in pages] == lengths
        assert [key for page in pages for key in keys_of(page.entries)] == keys


def test_large_entries_come_two_mebibytes_at_a_time() -> None:
    replica = Replica()
    for at in range(40):
        replica.remember(Remember(key=EntryKey("repo", "t", f"{at:02}"), body="x" * 65536))
    first = page_of(replica, size=500)
    assert len(first.entries) == 31
    assert sum(size_bound(entry) for entry in first.entries) <= 2 * 1024 * 1024
    assert len(page_of(replica, size=500, token=first.next_page_token).entries) == 9


def test_a_token_is_good_for_its_own_scan_only(replica: Replica) -> None:
    fill(replica, "t/1", "t/2", "u/1")
    token = page_of(replica, size=1).next_page_token
    in_topic = page_of(replica, "t", size=1).next_page_token
    bad = [
        ("u", token),
        ("t", token),
        (None, in_topic),
        ("u", in_topic),
        (None, token + "x"),
        (None, token[:-4]),
        (None, "x"),
        (None, "%%%%"),
        (None, "é"),
        (None, "AAAA"),
        (None, "\ud800"),
        (None, token + "\n"),
    ]
    for topic, wrong in bad:
        replica.refuses(
            Code.INVALID_ARGUMENT,
            "page_token",
            lambda topic=topic, wrong=wrong: page_of(replica, topic, token=wrong),
        )
    replica.refuses(
        Code.INVALID_ARGUMENT, "page_token", lambda: page_of(replica, token=token, repo_id="other")
    )
    assert len(page_of(replica, token=token, size=2).entries) == 2


def test_a_scope_that_is_none_is_refused(replica: Replica) -> None:
    replica.refuses(Code.INVALID_ARGUMENT, "repo_id", lambda: page_of(replica, repo_id=""))
    replica.refuses(Code.INVALID_ARGUMENT, "repo_id", lambda: page_of(replica, repo_id="a\0b"))
    replica.refuses(Code.INVALID_ARGUMENT, "topic", lambda: page_of(replica, ""))


def test_a_damaged_row_is_left_out_and_reported(replica: Replica) -> None:
    keys = fill(replica, "t/1", "t/2", "t/3")
    replica.damage(keys[1])
    page = page_of(replica)
    assert (keys_of(page.entries), page.damaged) == ([keys[0], keys[2]], (keys[1],))


def test_a_scan_may_be_taken_in_steps(replica: Replica) -> None:
    keys = fill(replica, *(f"t/{at}" for at in range(7)))
    replica.forget(Forget(key=keys[0]))
    for rows in (1, 2, 3, 7, 8):
        scanning = Scanning("repo", None, 4, "", replica.now)
        steps = 1
        while True:
            with replica.storage.snapshot() as snapshot:
                if not scanning.step(snapshot, rows):
                    break
            steps += 1
        assert keys_of(scanning.page().entries) == keys[1:5]
        assert steps == -(-6 // rows) if rows < 6 else steps == 1


# --- many by key


def test_many_are_recalled_in_the_order_of_their_keys(replica: Replica) -> None:
    keys = fill(replica, "t/1", "t/2")
    asked = [keys[1], KEY, keys[0], keys[1]]
    with replica.storage.snapshot() as snapshot:
        found = recall_many(snapshot, asked, replica.now)
        assert recall_many(snapshot, [], replica.now) == ()
    assert keys_of(found) == asked
    assert [entry.exists for entry in found] == [True, False, True, True]


def test_more_than_can_be_returned_is_refused() -> None:
    replica = Replica()
    keys = fill(replica, "t/1", "t/2", "t/3")
    one = size_bound(replica.recall(keys[0]))
    with replica.storage.snapshot() as snapshot:
        assert len(recall_many(snapshot, [KEY] * 500, replica.now)) == 500
        assert len(recall_many(snapshot, keys, replica.now, Limits(page_bytes=3 * one))) == 3
        assert len(recall_many(snapshot, keys[:1], replica.now, Limits(page_bytes=1))) == 1
        many = [KEY] * 501
        replica.refuses(Code.INVALID_ARGUMENT, "keys", lambda: recall_many(snapshot, many, replica.now))
        replica.refuses(
            Code.RESOURCE_EXHAUSTED,
            "keys",
            lambda: recall_many(snapshot, keys, replica.now, Limits(page_bytes=3 * one - 1)),
        )
    replica.damage(keys[2])
    with replica.storage.snapshot() as snapshot:
        replica.refuses(Code.DATA_LOSS, "keys[2]", lambda: recall_many(snapshot, keys, replica.now))


# --- stable under concurrent writes


class Interleaved(RuleBasedStateMachine):
    """A scan, page by page and step by step, with writes in between: what is live throughout comes exactly
    once.
    """

    NAMES = st.sampled_from([f"{topic}/{at}" for topic in ("a", "a-", "b") for at in range(4)])

    @initialize(
        names=st.sets(NAMES),
        size=st.integers(1, 3),
        rows=st.integers(1, 3),
        topic=st.sampled_from([None, "a"]),
    )
    def begin(self, names: set[str], size: int, rows: int, topic: str | None) -> None:
        self.replica = Replica()
        self.size, self.rows, self.topic = size, rows, topic
        fill(self.replica, *sorted(names))
        self.begin_scan()

    def begin_scan(self) -> None:
        self.throughout = set(keys_of(self.replica.scan_all(topic=self.topic)))
        self.ever = set(self.throughout)
        self.seen: list[EntryKey] = []
        self.scanning = Scanning("repo", self.topic, self.size, "", self.replica.now)

    def note(self) -> None:
        live = set(keys_of(self.replica.scan_all(topic=self.topic)))
        self.throughout &= live
        self.ever |= live

    @rule(name=NAMES, ttl=st.sampled_from([None, None, 1, 3]))
    def remember(self, name: str, ttl: int | None) -> None:
        key = EntryKey.make("repo", *name.split("/"))
        done = self.replica.do(Remember(key=key, ttl=None if ttl is None else Millis(ttl)))
        assert isinstance(done, Remembered)
        self.note()

    @rule(name=NAMES)
    def forget(self, name: str) -> None:
        done = self.replica.do(Forget(key=EntryKey.make("repo", *name.split("/"))))
        assert isinstance(done, Forgotten)
        self.note()

    @rule()
    def tick(self) -> None:
        self.replica.now = Millis(self.replica.now + 1)
        self.note()

    @rule()
    def step(self) -> None:
        with self.replica.storage.snapshot() as snapshot:
            due = self.scanning.step(snapshot, self.rows)
        if due:
            return
        page = self.scanning.page()
        self.seen += keys_of(page.entries)
        if page.next_page_token:
            assert page.entries
            self.scanning = Scanning("repo", self.topic, self.size, page.next_page_token, self.replica.now)
            return
        assert self.throughout <= set(self.seen) <= self.ever
        self.begin_scan()

    @invariant()
    def in_order_and_once(self) -> None:
        if hasattr(self, "seen"):
            assert self.seen == sorted(set(self.seen))


TestInterleaved = Interleaved.TestCase
TestInterleaved.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_the_clock_of_a_scan_is_the_callers(replica: Replica) -> None:
    replica.remember(Remember(key=KEY, ttl=Millis(10)))
    with replica.storage.snapshot() as snapshot:
        assert scan(snapshot, "repo", None, 0, "", Millis(START + 9)).entries
        assert not scan(snapshot, "repo", None, 0, "", Millis(START + 10)).entries
