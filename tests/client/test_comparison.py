"""Comparing replicas: every difference is named, nothing else, and in few calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from crdt.dot import Millis
from crdt.key import EntryKey
from replica.client import Call, Difference, RangeDigests, compare
from replica.core.range_digest import digest_ranges
from replica.core.rows import put_register
from replica.core.scope import check_scope
from replica.core.storage import Storage, Table
from replica.storage.memory import MemoryStorage
from replica.wire import admin_pb2 as pb
from replica.wire.digests import key_ranges, part_message
from tests.core.one_replica import sibling

AT = 2**40


class Fleet:
    """Replicas that answer for their digests, and how much was asked and answered."""

    def __init__(self, stores: Mapping[str, Storage]) -> None:
        self.stores = stores
        self.rounds = 0
        self.parts = 0
        self.named = 0
        self.meanwhile: Callable[[], None] = lambda: None
        """Happens after every round."""

    def ask(self, calls: Mapping[str, Call[pb.GetDigestRequest, RangeDigests]]) -> dict[str, RangeDigests]:
        self.rounds += 1
        answers = {}
        for name, call in calls.items():
            request = call.request
            assert request.at_ms == AT
            scope = check_scope(
                request.repo_id if request.HasField("repo_id") else None,
                request.topic if request.HasField("topic") else None,
            )
            with self.stores[name].snapshot() as snapshot:
                ranges = key_ranges(request, scope)
                found = digest_ranges(snapshot, Millis(AT), ranges, request.parts, request.name_up_to)
            self.parts += len(found)
            self.named += sum(len(part.entries or ()) for part in found)
            message = pb.GetDigestResponse(
                cluster=name, at_ms=AT, parts=[part_message(part, scope) for part in found]
            )
            answers[name] = call.read(message.SerializeToString())
        self.meanwhile()
        return answers

    def sizes(self) -> dict[str, int]:
        found = {}
        for name, store in self.stores.items():
            with store.snapshot() as snapshot:
                found[name] = snapshot.count(Table.REGISTERS)
        return found

    def differences(self, repo_id: str | None = None, topic: str | None = None) -> list[Difference]:
        return list(compare(self.ask, self.sizes(), at_ms=AT, repo_id=repo_id, topic=topic))


def key(number: int, topic: str = "t") -> EntryKey:
    return EntryKey("r", topic, f"{number:06}")


def store(contents: Mapping[int, int]) -> MemoryStorage:
    """A store of numbered entries; equal values are equal entries."""
    made = MemoryStorage()
    fill(made, contents)
    return made


def fill(store: Storage, contents: Mapping[int, int]) -> None:
    with store.transaction() as transaction:
        for number, value in contents.items():
            register = (sibling("eu", value + 1, fields={"title": f"{value}"}),)
            put_register(transaction, key(number).to_store(), register, origin=None)


def named(differences: list[Difference]) -> dict[str, set[frozenset[str]]]:
    """For each key the replicas that hold the same."""
    found = {}
    for each in differences:
        groups: dict[bytes | None, set[str]] = {}
        for name, digest in each.digests.items():
            groups.setdefault(digest, set()).add(name)
        found[each.key] = {frozenset(group) for group in groups.values()}
    return found


CONTENTS = st.dictionaries(st.integers(0, 400), st.integers(0, 1), max_size=200)


@settings(deadline=None, max_examples=60)
@given(CONTENTS, st.lists(st.dictionaries(st.integers(0, 400), st.integers(0, 2) | st.none()), max_size=2))
def test_exactly_the_differences_are_named_in_the_order_of_keys(
    common: dict[int, int], changes: list[dict[int, int | None]]
) -> None:
    contents = [common]
    for changed in changes:
        mine = {number: changed.get(number, value) for number, value in {**common, **changed}.items()}
        contents.append({number: value for number, value in mine.items() if value is not None})
    fleet = Fleet({f"c{at}": store(each) for at, each in enumerate(contents)})
    expected = {}
    for number in sorted({number for each in contents for number in each}):
        groups: dict[int | None, set[str]] = {}
        for at, each in enumerate(contents):
            groups.setdefault(each.get(number), set()).add(f"c{at}")
        if len(groups) > 1:
            expected[str(key(number))] = {frozenset(group) for group in groups.values()}
    found = fleet.differences()
    assert named(found) == expected
    assert [each.key for each in found] == list(expected)


def test_few_differences_among_many_entries_take_few_calls_and_names() -> None:
    many = store(dict.fromkeys(range(6000), 0))
    for differing in ((), (17,), (3, 4_000, 4_001, 5_999)):
        other = many.copy()
        fill(other, dict.fromkeys(differing, 1))
        fleet = Fleet({"eu": many, "us": other})
        assert [each.key for each in fleet.differences()] == [str(key(number)) for number in differing]
        assert fleet.rounds <= 2 + 2 + 1
        assert fleet.named <= 64 * 2 * len(differing)
        assert fleet.parts <= 2 * (1000 + 64 * len(differing))


def test_an_empty_replica_lacks_everything() -> None:
    fleet = Fleet({"eu": store({}), "us": store(dict.fromkeys(range(3000), 0))})
    found = fleet.differences()
    assert len(found) == 3000
    assert all(each.digests["eu"] is None for each in found)


def test_a_scope_is_compared_alone_and_keys_come_as_they_are_written() -> None:
    strange = EntryKey("r", "a/b%", "ü")
    stores = {"eu": MemoryStorage(), "us": MemoryStorage()}
    with stores["us"].transaction() as transaction:
        for one in (strange, key(1), EntryKey("r2", "t", "x")):
            put_register(transaction, one.to_store(), (sibling("us"),), origin=None)
    fleet = Fleet(stores)
    assert [each.key for each in fleet.differences("r", "a/b%")] == ["repo/r/mem/a%2Fb%25/ü"]
    assert len(fleet.differences("r")) == 2
    assert len(fleet.differences()) == 3


def test_a_row_that_cannot_be_read_is_a_difference_and_said() -> None:
    stores = {name: store({1: 0, 2: 0}) for name in ("eu", "us")}
    with stores["us"].transaction() as transaction:
        raw = key(2).to_store()
        frame = transaction.get(Table.REGISTERS, raw)
        assert frame is not None
        transaction.put(Table.REGISTERS, raw, frame[:-1] + bytes([frame[-1] ^ 1]))
    (difference,) = Fleet(stores).differences()
    assert (difference.key, difference.damaged) == (str(key(2)), ("us",))


def test_a_part_that_grows_while_it_is_compared_is_cut_again() -> None:
    stores = {"eu": store(dict.fromkeys(range(100), 0)), "us": store(dict.fromkeys(range(99), 0))}
    fleet = Fleet(stores)

    def grow() -> None:
        fleet.meanwhile = lambda: None
        with stores["us"].transaction() as transaction:
            for number in range(1000, 1500):
                put_register(transaction, key(number).to_store(), (sibling("us", number),), origin=None)

    fleet.meanwhile = grow
    assert len(fleet.differences()) in (1, 501)
    assert fleet.rounds < 10
