"""A line of JSON is one entry, or it is refused with the member at fault; an entry's line reads back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt.key import InvalidKey, check_component
from replica.cli.notes import InvalidLine, note_of, parse_note, write_note
from replica.client import Entry

LINE = {"repo": "r", "topic": "t", "id": "i"}


def line(**members: object) -> bytes:
    return json.dumps(LINE | members).encode()


@pytest.mark.parametrize(
    ("encoded", "field", "words"),
    [
        (b"[]", None, "must be a JSON object"),
        (b"null", None, "must be a JSON object"),
        (b"{", None, "is not JSON at column 2"),
        (b'{"repo": "r"} x', None, "is not JSON at column 15"),
        (b'{"repo": "\xff"}', None, "is not UTF-8 at byte 11"),
        (b'{"a": ' * 100_000, None, "nested too deeply"),
        (b'{"created_at": ' + b"9" * 5000 + b"}", None, "a number too long"),
        (b'{"repo": "r", "repo": "r"}', "repo", "is there twice"),
        (b'{"topic": "t"}', "repo", "is missing"),
        (b'{"repo": "r"}', "topic", "is missing"),
        (line(colour="red"), "colour", "is not known"),
        (line(repo_id="red"), "repo_id", "is not known"),
        (line(**{"\x1b[31m" + "x" * 100: 1}), "�[31m" + "x" * 35 + "…", "is not known"),
        (line(repo=1), "repo", "must be text"),
        (line(repo=""), "repo", "must not be empty"),
        (line(topic="a\nb"), "topic", "must not contain control characters"),
        (line(id="e\u0301"), "id", "NFC"),
        (line(id=None), "id", "must be text"),
        (line(title=None), "title", "must be text"),
        (line(body=["x"]), "body", "must be text"),
        (line(body="\ud800"), "body", "lone surrogate"),
        (line(created_at="2026-01-01"), "created_at", "must be a whole number"),
        (line(created_at=1.5), "created_at", "must be a whole number"),
        (line(created_at=True), "created_at", "must be a whole number"),
        (line(created_at=2**63), "created_at", "must be a whole number"),
        (line(tags="x"), "tags", "must be a list"),
        (line(tags=["a", 1]), "tags[1]", "must be text"),
        (line(links=[]), "links", "must be an object"),
        (line(links={"touches": "x"}), "links.touches", "must be a list"),
        (line(links={"touches": ["x", None]}), "links.touches[1]", "must be text"),
        (line(ttl_seconds=0), "ttl_seconds", "must be a positive"),
        (line(ttl_seconds=-1), "ttl_seconds", "must be a positive"),
        (line(ttl_seconds="60"), "ttl_seconds", "must be a positive"),
        (line(ttl_seconds=True), "ttl_seconds", "must be a positive"),
        (line(ttl_seconds=None), "ttl_seconds", "must be a positive"),
        (line(ttl_seconds=10**400), "ttl_seconds", "must be a positive"),
        (b'{"ttl_seconds": Infinity}', None, "Infinity is no number"),
        (b'{"ttl_seconds": NaN}', None, "NaN is no number"),
    ],
)
def test_what_is_no_entry_is_refused(encoded: bytes, field: str | None, words: str) -> None:
    with pytest.raises(InvalidLine) as caught:
        parse_note(encoded)
    assert caught.value.field == field
    assert words in caught.value.reason


def test_a_refusal_repeats_nothing_of_a_text() -> None:
    with pytest.raises(InvalidLine) as caught:
        parse_note(line(body=["sesame"]))
    assert "sesame" not in str(caught.value)


def test_what_a_line_leaves_out_is_not_given() -> None:
    note = parse_note(b'{"repo": "r", "topic": "t", "id": "i"}')
    assert (note.kind, note.title, note.body, note.author, note.provenance) == (None,) * 5
    assert (note.created_at_ms, note.tags, note.links, note.ttl_seconds) == (None, (), {}, None)


def test_a_relation_without_targets_is_no_link() -> None:
    assert parse_note(line(links={"touches": []})).links == {}


def test_a_line_without_an_id_is_always_the_same_entry() -> None:
    first = parse_note(b'{"repo": "r", "topic": "t", "title": "x"}')
    again = parse_note(b' {"topic":"t","title":"x","repo":"r"} ')
    other = parse_note(b'{"repo": "r", "topic": "t", "title": "y"}')
    assert first.key == again.key != other.key


def _component(text: str) -> bool:
    try:
        check_component("id", text)
    except InvalidKey:
        return False
    return True


components = st.text(max_size=40).filter(_component)
texts = st.text(max_size=40)


@given(
    st.builds(
        Entry,
        key=st.just(""),
        exists=st.just(True),
        repo_id=components,
        topic=components,
        id=components,
        kind=st.sampled_from(["Decision", "Note", "Memory"]),
        title=texts,
        body=texts,
        author=texts,
        provenance=texts,
        created_at_ms=st.integers(-(2**63), 2**63 - 1),
        tags=st.lists(texts, unique=True).map(tuple),
        links=st.dictionaries(texts, st.lists(texts, min_size=1, unique=True).map(tuple), max_size=3),
        expires_at_ms=st.none(),
        remaining_seconds=st.none() | st.integers(1, 2**40),
        version=st.just("v"),
        sibling_count=st.just(1),
        concurrent=st.just({}),
        undecodable=st.just(0),
    )
)
def test_the_line_of_an_entry_reads_back(entry: Entry) -> None:
    written = write_note(entry)
    assert written.count(b"\n") == 1
    assert json.loads(written) == note_of(entry)
    note = parse_note(written)
    assert (note.key.repo_id, note.key.topic, note.key.id) == (entry.repo_id, entry.topic, entry.id)
    assert note.ttl_seconds == entry.remaining_seconds
    assert note.created_at_ms == entry.created_at_ms
    held = entry if note.ttl_seconds is None else None
    assert held is None or note.is_in(held)
