"""A repeated call is the same write."""

from __future__ import annotations

import pytest

from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import Forget, Kind, Links, Remember, Update
from replica.core.errors import Code
from replica.core.requests import KEPT, PRUNED_PER_WRITE
from replica.core.storage import DamagedRow, Table
from tests.core.one_replica import KEY, START, Replica, sibling

FULL = Remember(
    key=KEY,
    kind=Kind.MEMORY,
    title="t",
    tags=("a", "b"),
    add_links=(Links("x", ("1", "2")),),
    ttl=Millis(5000),
    request_id="one",
)


def test_a_repeat_returns_the_first_result_and_writes_nothing(replica: Replica) -> None:
    commands = [
        FULL,
        Remember(key=KEY, kind=Kind.NOTE, durable=True, created_at=Millis(7), request_id="two"),
        Update(key=KEY, body="b", add_tags=("c",), remove_tags=("a",), request_id="three"),
        Forget(key=KEY, lapse=True, lapse_for=Millis(10**6), request_id="four"),
        Forget(key=KEY, request_id="five"),
        Forget(key=KEY, request_id="six"),
        Forget(key=KEY, lapse=True, request_id="seven"),
    ]
    first = [replica.do(command) for command in commands]
    replica.remember(Remember(key=KEY, title="something else meanwhile"))
    before = replica.dump()
    replica.now = Millis(START + KEPT - 1)
    assert [replica.do(command) for command in commands] == first
    assert replica.dump() == before


def test_a_retried_forget_does_not_remove_what_came_after(replica: Replica) -> None:
    missed = Forget(key=KEY, request_id="one")
    assert not replica.forget(missed).existed
    replica.remember(Remember(key=KEY, title="made since"))
    assert not replica.forget(missed).existed
    assert replica.recall().title == "made since"


def test_the_order_of_sets_makes_no_other_call(replica: Replica) -> None:
    first = replica.remember(FULL)
    again = Remember(
        key=KEY,
        kind=Kind.MEMORY,
        title="t",
        tags=("b", "a", "a"),
        add_links=(Links("x", ("2",)), Links("x", ("1", "2"))),
        ttl=Millis(5000),
        request_id="one",
    )
    assert replica.remember(again) == first


@pytest.mark.parametrize(
    "other",
    [
        Remember(key=KEY, request_id="one"),
        Remember(key=EntryKey("repo", "topic", "other"), title="t", request_id="one"),
        Remember(key=KEY, title="", request_id="one"),
        Remember(key=KEY, title="t", body="b", request_id="one"),
        Remember(key=KEY, title="t", create_only=True, request_id="one"),
        Remember(key=KEY, title="t", if_version="", request_id="one"),
        Remember(key=KEY, title="t", created_at=START, request_id="one"),
        Remember(key=KEY, title="t", durable=True, request_id="one"),
        Remember(key=KEY, title="t", tags=("a",), request_id="one"),
        Remember(key=KEY, title="t", ttl=Millis(1), request_id="one"),
        Remember(key=KEY, title="t", kind=Kind.NOTE, request_id="one"),
        Update(key=KEY, title="t", request_id="one"),
        Forget(key=KEY, request_id="one"),
    ],
)
def test_an_id_stands_for_one_call(replica: Replica, other: Remember | Update | Forget) -> None:
    replica.remember(Remember(key=KEY, title="t", request_id="one"))
    replica.refuses(Code.INVALID_ARGUMENT, "request_id", lambda: replica.do(other))


def test_an_update_that_names_links_to_remove_is_not_one_that_adds_them(replica: Replica) -> None:
    replica.remember(Remember(key=KEY))
    link = (Links("a", ("b",)),)
    replica.update(Update(key=KEY, add_links=link, request_id="one"))
    replica.refuses(
        Code.INVALID_ARGUMENT,
        "request_id",
        lambda: replica.update(Update(key=KEY, remove_links=link, request_id="one")),
    )


def test_an_id_that_was_generated_here_is_no_part_of_the_call(replica: Replica) -> None:
    def call(id: str) -> Remember:
        return Remember(key=EntryKey("repo", "topic", id), generated_id=True, body="b", request_id="one")

    first = replica.remember(call("generated-1"))
    assert replica.remember(call("generated-2")) == first
    assert first.key.id == "generated-1"
    assert not replica.recall(EntryKey("repo", "topic", "generated-2")).exists


def test_a_refused_call_leaves_its_id_free(replica: Replica) -> None:
    command = Update(key=KEY, title="t", request_id="one")
    replica.refuses(Code.NOT_FOUND, "key", lambda: replica.update(command))
    replica.remember(Remember(key=KEY))
    assert replica.update(command).fields_updated == 1


def test_after_ten_minutes_it_is_another_write(replica: Replica) -> None:
    command = Remember(key=KEY, tags=("a",), request_id="one")
    assert replica.remember(command).tags_added == 1
    replica.now = Millis(START + KEPT)
    assert replica.remember(command).tags_added == 0
    replica.now = Millis(START + 2 * KEPT - 1)
    before = replica.dump()
    replica.remember(command)
    assert replica.dump() == before


def test_old_results_are_cleared_away_a_few_at_a_time(replica: Replica) -> None:
    many = 3 * PRUNED_PER_WRITE
    for at in range(many):
        replica.now = Millis(START + at)
        replica.remember(Remember(key=KEY, request_id=f"id-{at}"))
    replica.now = Millis(START + KEPT + many - 2)

    def stored() -> int:
        with replica.storage.snapshot() as snapshot:
            assert snapshot.count(Table.REQUESTS) == snapshot.count(Table.REQUEST_TIMES)
            return snapshot.count(Table.REQUESTS)

    counts = []
    for _ in range(4):
        replica.remember(Remember(key=KEY))
        counts.append(stored())
    assert counts == [many - PRUNED_PER_WRITE, many - 2 * PRUNED_PER_WRITE, 1, 1]
    last = Remember(key=KEY, request_id=f"id-{many - 1}")
    before = replica.dump()
    replica.remember(last)
    assert replica.dump() == before, "the one that is kept still answers"


def test_an_id_that_is_used_again_is_cleared_away_by_its_last_use(replica: Replica) -> None:
    many = PRUNED_PER_WRITE + 2
    for at in range(many):
        replica.remember(Remember(key=KEY, request_id=f"id-{at}"))
    replica.now = Millis(START + KEPT)
    last = Remember(key=KEY, request_id=f"id-{many - 1}")
    again = replica.remember(last)
    for _ in range(2):
        replica.remember(Remember(key=KEY))
    assert replica.remember(last) == again
    with replica.storage.snapshot() as snapshot:
        assert (snapshot.count(Table.REQUESTS), snapshot.count(Table.REQUEST_TIMES)) == (1, 1)


def test_results_survive_what_the_clock_does(replica: Replica) -> None:
    first = replica.remember(Remember(key=KEY, request_id="one"))
    replica.now = Millis(START - 10**9)
    assert replica.remember(Remember(key=KEY, request_id="one")) == first


def test_a_damaged_result_is_not_taken_for_none(replica: Replica) -> None:
    command = Remember(key=KEY, request_id="one")
    replica.remember(command)
    with replica.storage.transaction() as transaction:
        transaction.put(Table.REQUESTS, b"one", b"\0\0\0\0garbage")
    before = replica.dump()
    with pytest.raises(DamagedRow):
        replica.remember(command)
    assert replica.dump() == before


def test_the_result_of_a_carrying_write_comes_back_whole(replica: Replica) -> None:
    replica.arrive(sibling("eu", payload=b"\xc1"), sibling("us"))
    command = Update(key=KEY, title="t", request_id="one")
    first = replica.update(command)
    assert first.undecodable == 1
    assert replica.update(command) == first
