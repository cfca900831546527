"""A command that makes no sense in itself cannot be built, and the refusal names the field."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import (
    END_OF_TIME,
    Forget,
    Kind,
    Links,
    Remember,
    Update,
    check_repo_id,
    check_topic,
    make_key,
    parse_key,
    parse_kind,
    ttl_millis,
)
from replica.core.errors import Code, Refused
from tests.core.one_replica import KEY

BAD: list[tuple[str, Callable[[], object]]] = [
    ("kind", lambda: parse_kind("note")),
    ("kind", lambda: parse_kind("")),
    ("ttl_seconds", lambda: ttl_millis(0, "ttl_seconds")),
    ("ttl_seconds", lambda: ttl_millis(-0.0, "ttl_seconds")),
    ("ttl_seconds", lambda: ttl_millis(-1, "ttl_seconds")),
    ("ttl_seconds", lambda: ttl_millis(inf, "ttl_seconds")),
    ("ttl_seconds", lambda: ttl_millis(-inf, "ttl_seconds")),
    ("ttl_seconds", lambda: ttl_millis(nan, "ttl_seconds")),
    ("ttl_seconds", lambda: ttl_millis(1e300, "ttl_seconds")),
    ("ttl_seconds", lambda: ttl_millis(10**400, "ttl_seconds")),
    ("ttl_seconds", lambda: ttl_millis(True, "ttl_seconds")),
    ("ttl_seconds", lambda: ttl_millis("60", "ttl_seconds")),  # type: ignore[arg-type]  # what JSON may hold
    ("ttl_seconds", lambda: Remember(key=KEY, ttl=Millis(0))),
    ("ttl_seconds", lambda: Remember(key=KEY, ttl=Millis(-1))),
    ("ttl_seconds", lambda: Remember(key=KEY, ttl=Millis(END_OF_TIME + 1))),
    ("durable", lambda: Remember(key=KEY, ttl=Millis(1), durable=True)),
    ("create_only", lambda: Remember(key=KEY, create_only=True, if_version="1")),
    ("created_at_ms", lambda: Remember(key=KEY, created_at=Millis(END_OF_TIME + 1))),
    ("created_at_ms", lambda: Remember(key=KEY, created_at=Millis(-(2**63)))),
    ("request_id", lambda: Remember(key=KEY, request_id="")),
    ("request_id", lambda: Update(key=KEY, request_id="x" * 129)),
    ("request_id", lambda: Forget(key=KEY, request_id="\udc00")),
    ("title", lambda: Remember(key=KEY, title="\ud800")),
    ("body", lambda: Update(key=KEY, body="a\udfffb")),
    ("tags[1]", lambda: Remember(key=KEY, tags=("a", ""))),
    ("tags[0]", lambda: Remember(key=KEY, tags=("a\nb",))),
    ("tags[0]", lambda: Remember(key=KEY, tags=("\x85",))),
    ("tags[0]", lambda: Remember(key=KEY, tags=("\ud800",))),
    ("add_tags[0]", lambda: Update(key=KEY, add_tags=("",))),
    ("remove_tags[0]", lambda: Update(key=KEY, remove_tags=("\0",))),
    ("remove_tags", lambda: Update(key=KEY, add_tags=("a", "b"), remove_tags=("c", "a"))),
    ("add_links[0].relation", lambda: Remember(key=KEY, add_links=(Links("", ("x",)),))),
    ("add_links[1].relation", lambda: Update(key=KEY, add_links=(Links("a", ("x",)), Links("\t", ("x",))))),
    ("add_links[0].targets", lambda: Remember(key=KEY, add_links=(Links("a", ()),))),
    ("add_links[0].targets[1]", lambda: Remember(key=KEY, add_links=(Links("a", ("x", "")),))),
    ("remove_links[0].targets[0]", lambda: Update(key=KEY, remove_links=(Links("a", ("\udcff",)),))),
    (
        "remove_links",
        lambda: Update(key=KEY, add_links=(Links("a", ("x",)),), remove_links=(Links("a", ("y", "x")),)),
    ),
    ("lapse_seconds", lambda: Forget(key=KEY, lapse_for=Millis(1))),
    ("lapse_seconds", lambda: Forget(key=KEY, lapse=True, lapse_for=Millis(0))),
    ("key", lambda: parse_key("repo/a/mem/b")),
    ("key", lambda: parse_key("repo/a/mem/b/c%2f")),
    ("key", lambda: parse_key("repo//mem/b/c")),
    ("repo_id", lambda: make_key("", "b", "c")),
    ("topic", lambda: make_key("a", "b\0", "c")),
    ("id", lambda: make_key("a", "b", "c" * 129)),
    ("repo_id", lambda: check_repo_id("e\u0301")),
    ("topic", lambda: check_topic("")),
]


@pytest.mark.parametrize(("field", "build"), BAD)
def test_nonsense_is_refused_by_name(field: str, build: Callable[[], object]) -> None:
    with pytest.raises(Refused) as caught:
        build()
    assert (caught.value.code, caught.value.field) == (Code.INVALID_ARGUMENT, field)
    assert caught.value.reason


def test_what_looks_odd_and_makes_sense_is_accepted() -> None:
    Remember(key=KEY, body="line\nline\0 \u202e עברית 🧠", title="")
    Remember(key=KEY, tags=("a", "a", "e\u0301", "%2F", " "))
    Remember(key=KEY, add_links=(Links("a", ("x\ny",)), Links("b", ("x\ny",))), created_at=Millis(-1))
    Update(key=KEY, add_links=(Links("a", ("x",)),), remove_links=(Links("b", ("x",)),))
    Remember(key=KEY, request_id="é" * 64, ttl=END_OF_TIME)


@pytest.mark.parametrize(
    ("seconds", "millis"),
    [(1, 1000), (0.001, 1), (0.0001, 1), (1e-300, 1), (1.1, 1100), (0.0011, 2), (2.0, 2000), (1e9, 10**12)],
)
def test_a_ttl_is_rounded_up_to_a_millisecond(seconds: float, millis: int) -> None:
    assert ttl_millis(seconds, "ttl_seconds") == millis


@given(st.integers(1, END_OF_TIME // 1000 - 1), st.integers(0, 999))
def test_whole_milliseconds_stay_what_they_are(seconds: int, millis: int) -> None:
    assert ttl_millis(float(f"{seconds}.{millis:03}"), "ttl_seconds") == seconds * 1000 + millis


def test_a_refusal_says_the_remedy_and_no_content() -> None:
    with pytest.raises(Refused) as caught:
        Update(key=KEY, body="secret\ud800")
    assert "secret" not in str(caught.value)
    with pytest.raises(Refused) as named:
        parse_kind("secret")
    assert "secret" not in str(named.value)
    assert all(kind.value in str(named.value) for kind in Kind)


def test_a_key_reads_back_from_its_display_form() -> None:
    key = make_key("a/b", "c%d", "é/%2F")
    assert parse_key(str(key)) == key == EntryKey("a/b", "c%d", "é/%2F")
