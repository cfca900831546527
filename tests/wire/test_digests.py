"""Ranges of keys, from requests and to messages."""

from __future__ import annotations

import pytest

from crdt.key import EntryKey
from replica.core.errors import Code, Refused
from replica.core.range_digest import EntryDigest, KeyRange, PartDigest
from replica.core.scope import check_scope
from replica.wire import admin_pb2 as pb
from replica.wire.digests import key_ranges, part_message

KEY = EntryKey("r", "a/b", "50%")
TEXT = "repo/r/mem/a%2Fb/50%25"
TOPIC = check_scope("r", "a/b")


def ranges(scope: bytes, *bounds: tuple[str, str]) -> tuple[KeyRange, ...]:
    asked = [pb.KeyRange(start=start, stop=stop) for start, stop in bounds]
    return key_ranges(pb.GetDigestRequest(ranges=asked), scope)


def test_empty_bounds_are_those_of_the_scope() -> None:
    assert ranges(check_scope(None), ("", "")) == (KeyRange(b"", None),)
    assert ranges(TOPIC, ("", "")) == (KeyRange(TOPIC, TOPIC[:-1] + b"\x01"),)
    assert ranges(TOPIC, (TEXT, "")) == (KeyRange(KEY.to_store(), TOPIC[:-1] + b"\x01"),)


def test_a_range_is_cut_to_its_scope() -> None:
    for bounds in (
        ("repo/a/mem/t/1", "repo/b/mem/t/1"),
        ("repo/s/mem/t/1", ""),
        ("repo/s/mem/t/1", "repo/t/mem/t/1"),
    ):
        (found,) = ranges(TOPIC, bounds)
        assert found.start == found.stop
    (found,) = ranges(TOPIC, ("repo/a/mem/t/1", "repo/z/mem/t/1"))
    assert found == KeyRange(TOPIC, TOPIC[:-1] + b"\x01")


@pytest.mark.parametrize(("start", "stop", "field"), [("r/t", "", "start"), (TEXT, "repo/r/mem/t/", "stop")])
def test_a_bound_that_is_no_key_is_refused(start: str, stop: str, field: str) -> None:
    with pytest.raises(Refused) as caught:
        ranges(b"", ("", ""), (start, stop))
    assert (caught.value.code, caught.value.field) == (Code.INVALID_ARGUMENT, f"ranges[1].{field}")


def test_a_part_says_its_bounds_as_they_are_asked_for() -> None:
    entry = EntryDigest(KEY.to_store(), b"e" * 32, damaged=True)
    part = PartDigest(KeyRange(TOPIC, KEY.to_store()), b"d" * 32, 3, 1, (entry,))
    message = part_message(part, TOPIC)
    assert message == pb.PartDigest(
        range=pb.KeyRange(start="", stop=TEXT),
        digest=b"d" * 32,
        live=3,
        damaged=1,
        entries=[pb.EntryDigest(key=TEXT, digest=b"e" * 32, damaged=True)],
    )
    assert ranges(TOPIC, (message.range.start, message.range.stop)) == (part.range,)
    whole = part_message(PartDigest(KeyRange(b"", None), b"", 0, 0, None), b"")
    assert (whole.range.start, whole.range.stop, len(whole.entries)) == ("", "", 0)
