"""Digests by ranges: parts that make up the whole, and that say the same on replicas that hold the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import Forget, Remember
from replica.core.errors import Code
from replica.core.range_digest import KeyRange, PartDigest, digest_ranges
from replica.core.rows import put_register, registers
from replica.core.scope import check_scope, scope_bounds
from tests.core.one_replica import START, Replica

WHOLE = KeyRange(b"", None)


def digests(
    replica: Replica, *ranges: KeyRange, parts: int = 1, most_names: int = 0, at: Millis | None = None
) -> tuple[PartDigest, ...]:
    with replica.storage.snapshot() as snapshot:
        return digest_ranges(snapshot, replica.now if at is None else at, ranges, parts, most_names)


def filled(*ids: int, title: str = "t") -> Replica:
    replica = Replica()
    for id in ids:
        replica.remember(Remember(key=key(id), title=title))
    return replica


def key(id: int) -> EntryKey:
    return EntryKey("r", "t", f"{id:04}")


def copy(source: Replica) -> Replica:
    target = Replica()
    with source.storage.snapshot() as snapshot, target.storage.transaction() as transaction:
        for raw, register in registers(snapshot):
            assert isinstance(register, tuple)
            put_register(transaction, raw, register, origin=None)
    return target


@settings(deadline=None)
@given(st.sets(st.integers(0, 300), max_size=60), st.integers(1, 20), st.integers(0, 5))
def test_parts_make_up_the_range(ids: set[int], parts: int, most_names: int) -> None:
    replica = filled(*ids)
    found = digests(replica, WHOLE, parts=parts, most_names=most_names)
    assert 1 <= len(found) <= parts
    assert len(found) >= min(parts / 2, len(ids))
    assert (found[0].range.start, found[-1].range.stop) == (b"", None)
    for part, following in pairwise(found):
        assert part.range.stop == following.range.start
        assert part.live >= following.live
    assert sum(part.live for part in found) == len(ids)
    for part in found:
        (alone,) = digests(replica, part.range, most_names=most_names)
        assert alone == part
        assert (part.entries is not None) == (0 < most_names >= part.live)
        if part.entries is not None:
            assert len(part.entries) == part.live
            assert all(
                entry.key >= part.range.start and (part.range.stop is None or entry.key < part.range.stop)
                for entry in part.entries
            )


@settings(deadline=None)
@given(st.sets(st.integers(0, 50), min_size=1), st.data())
def test_whatever_is_live_makes_a_difference_in_its_range_only(ids: set[int], data: st.DataObject) -> None:
    here = filled(*ids)
    there = copy(here)
    ranges = [part.range for part in digests(here, WHOLE, parts=8)]
    assert digests(here, *ranges, most_names=9) == digests(there, *ranges, most_names=9)
    changed = data.draw(st.integers(0, 50))
    if changed in ids and data.draw(st.booleans()):
        there.forget(Forget(key=key(changed)))
    else:
        there.remember(Remember(key=key(changed), title="other"))
    raw = key(changed).to_store()
    for mine, theirs in zip(digests(here, *ranges), digests(there, *ranges), strict=True):
        inside = mine.range.start <= raw and (mine.range.stop is None or raw < mine.range.stop)
        assert (mine == theirs) != inside


def test_what_is_dead_as_of_the_moment_makes_none(replica: Replica) -> None:
    empty = digests(replica, WHOLE)
    replica.remember(Remember(key=key(1), ttl=Millis(10)))
    replica.remember(Remember(key=key(2)))
    replica.forget(Forget(key=key(2)))
    assert digests(replica, WHOLE, at=Millis(START + 9)) != empty
    assert digests(replica, WHOLE, at=Millis(START + 10)) == empty


def test_a_damaged_row_is_covered_as_such() -> None:
    here = filled(1, 2)
    there = copy(here)
    there.damage(key(2))
    (mine,), (theirs,) = (digests(each, WHOLE, most_names=2) for each in (here, there))
    assert (theirs.live, theirs.damaged) == (1, 1)
    assert mine.entries is not None
    assert theirs.entries is not None
    assert [entry.damaged for entry in theirs.entries] == [False, True]
    assert [one == other for one, other in zip(mine.entries, theirs.entries, strict=True)] == [True, False]


def test_a_scope_ends_at_its_component() -> None:
    replica = Replica()
    for topic in ("svc", "svc-api"):
        replica.remember(Remember(key=EntryKey("r", topic, "1")))
    (part,) = digests(replica, KeyRange(*scope_bounds(check_scope("r", "svc"))))
    assert part.live == 1


def test_what_no_answer_can_hold_is_refused(replica: Replica) -> None:
    a, b, c = b"a", b"b", b"c"
    one = KeyRange(a, b)
    refused = [
        ("ranges[1]", lambda: digests(replica, one, one)),
        ("ranges[1]", lambda: digests(replica, KeyRange(b, c), one)),
        ("ranges[0]", lambda: digests(replica, KeyRange(b, a))),
        ("ranges[1]", lambda: digests(replica, WHOLE, one)),
        ("ranges", lambda: digests(replica, *([one] * 1001))),
        ("parts", lambda: digests(replica, one, parts=0)),
        ("parts", lambda: digests(replica, one, parts=4097)),
        ("parts", lambda: digests(replica, *([one] * 2), parts=4000)),
        ("name_up_to", lambda: digests(replica, one, parts=4096, most_names=9)),
    ]
    for field, call in refused:
        replica.refuses(Code.INVALID_ARGUMENT, field, call)
    found = digests(replica, one, replace(one, start=b, stop=b), KeyRange(b, None))
    assert [part.live for part in found] == [0, 0, 0]


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_ranges_come_in_their_order(parts: int) -> None:
    replica = filled(*range(20))
    ranges = [KeyRange(key(0).to_store(), key(5).to_store()), KeyRange(key(10).to_store(), None)]
    found = digests(replica, *ranges, parts=parts)
    assert sum(part.live for part in found) == 15
    assert [part.range.start for part in found] == sorted(part.range.start for part in found)
