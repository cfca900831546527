"""Keys: two forms of one thing, in one order, and nothing that breaks the rules."""

import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crdt.key import COMPONENT_MAX_BYTES, EntryKey, InvalidKey, check_component, scope_end, scope_start


def _is_component(text: str) -> bool:
    return 0 < len(text.encode()) <= 128 and unicodedata.is_normalized("NFC", text)


# Characters that matter to the two forms come up often; anything else that is allowed, now and then.
components = st.text(
    st.sampled_from("ab-.%/25F \u00e9\u05d0\U0001f600") | st.characters(exclude_categories=["Cs", "Cc"]),
    min_size=1,
    max_size=8,
).filter(_is_component)
keys = st.builds(EntryKey.make, components, components, components)


@given(keys)
def test_both_forms_give_the_key_back(key: EntryKey) -> None:
    assert EntryKey.parse(str(key)) == key
    assert EntryKey.from_store(key.to_store()) == key


@given(keys, keys)
def test_each_form_names_one_key(a: EntryKey, b: EntryKey) -> None:
    assert (a == b) == (str(a) == str(b)) == (a.to_store() == b.to_store())


@given(st.text(st.sampled_from("a%25Ff/"), max_size=8))
def test_every_key_has_exactly_one_display_form(id: str) -> None:
    text = f"repo/r/mem/t/{id}"
    try:
        key = EntryKey.parse(text)
    except InvalidKey:
        return
    assert str(key) == text


@given(keys, keys)
def test_the_order_of_keys_is_the_byte_order_of_the_store_form(a: EntryKey, b: EntryKey) -> None:
    assert (a < b) == (a.to_store() < b.to_store())


def test_the_escaped_form_sorts_otherwise() -> None:
    dollar, slash = EntryKey.make("r", "t", "a.b"), EntryKey.make("r", "t", "a/b")
    assert dollar.to_store() < slash.to_store()
    assert str(dollar) > str(slash)


@given(keys, components, st.none() | components)
def test_a_scope_holds_exactly_the_keys_of_its_components(
    key: EntryKey, repo_id: str, topic: str | None
) -> None:
    start = scope_start(repo_id, topic)
    inside = start <= key.to_store() < scope_end(start)
    assert inside == (key.repo_id == repo_id and topic in (None, key.topic))


@given(keys)
def test_a_key_lies_in_its_own_scopes(key: EntryKey) -> None:
    for start in (scope_start(key.repo_id), scope_start(key.repo_id, key.topic)):
        assert start <= key.to_store() < scope_end(start)


@pytest.mark.parametrize("neighbour", ["svc-api", "svc ", "svc!", "svcs", "sv", "svb", "svd", "sv\U0001f600"])
def test_a_scope_ends_at_a_component(neighbour: str) -> None:
    start = scope_start("svc")
    assert not start <= EntryKey.make(neighbour, "t", "i").to_store() < scope_end(start)
    start = scope_start("r", "svc")
    assert not start <= EntryKey.make("r", neighbour, "i").to_store() < scope_end(start)


@pytest.mark.parametrize("repo_id", ["", "a\0b", "a\x01"])
def test_a_scope_of_no_component_is_refused(repo_id: str) -> None:
    with pytest.raises(InvalidKey):
        scope_start(repo_id)
    with pytest.raises(InvalidKey):
        scope_start("r", repo_id)


@pytest.mark.parametrize(
    ("id", "shown"),
    [
        ("100%", "100%25"),
        ("a/b", "a%2Fb"),
        ("a%2Fb", "a%252Fb"),
        ("%25", "%2525"),
        ("שלום", "שלום"),
        ("😀 ok", "😀 ok"),
    ],
)
def test_percent_and_slash_are_escaped_for_display_only(id: str, shown: str) -> None:
    key = EntryKey.make("r", "t", id)
    assert str(key) == f"repo/r/mem/t/{shown}"
    assert key.to_store() == f"r\0t\0{id}".encode()


@pytest.mark.parametrize("character", [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))])
def test_no_component_holds_a_control_character(character: str) -> None:
    for text in (character, f"a{character}b", f"é{character}"):
        with pytest.raises(InvalidKey, match="control"):
            check_component("topic", text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("e\u0301", "NFC"),
        ("\u212b", "NFC"),
        ("\ud800", "surrogate"),
        ("a\udfffb", "surrogate"),
        ("a" * 129, "129 bytes"),
        ("é" * 65, "130 bytes"),
        ("😀" * 33, "132 bytes"),
    ],
)
def test_a_component_that_breaks_a_rule_is_refused_and_named_but_not_repeated(text: str, reason: str) -> None:
    for field, parts in (
        ("repo_id", (text, "t", "i")),
        ("topic", ("r", text, "i")),
        ("id", ("r", "t", text)),
    ):
        with pytest.raises(InvalidKey) as refusal:
            EntryKey.make(*parts)
        assert refusal.value.field == field
        assert field in str(refusal.value)
        assert reason in str(refusal.value)
        assert not text or text not in str(refusal.value)


@pytest.mark.parametrize("text", ["a" * 128, "é" * 64, "😀" * 32, " ", "~", "\u00a0", "\u2028", "\u200f"])
def test_up_to_128_bytes_of_anything_else_are_a_component(text: str) -> None:
    assert check_component("id", text) == text


def test_the_longest_key_has_386_bytes_in_the_store() -> None:
    longest = "é" * (COMPONENT_MAX_BYTES // 2)
    assert len(EntryKey.make(longest, longest, longest).to_store()) == 386


@pytest.mark.parametrize(
    "text",
    [
        "",
        "repo/r/mem/t",
        "repo/r/mem/t/i/",
        "repo/r/mem/t/i/j",
        "/repo/r/mem/t/i",
        "repo/r/mem//i",
        "repo//mem/t/i",
        "repo/r/mem/t/",
        "Repo/r/mem/t/i",
        "repo/r/file/t/i",
        "repo/r/mem/t/100%",
        "repo/r/mem/t/%2f",
        "repo/r/mem/t/%41",
        "repo/r/mem/t/%2",
        "repo/r/mem/t/%%25",
        "repo/r/mem/t/a\0b",
    ],
)
def test_what_is_no_display_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidKey):
        EntryKey.parse(text)


@pytest.mark.parametrize(
    "raw", [b"", b"r\0t", b"r\0t\0i\0", b"r\0\0i", b"\xff\0t\0i", b"r\0t\0\xed\xa0\x80", b"r\0t\0a\nb"]
)
def test_what_is_no_store_form_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidKey):
        EntryKey.from_store(raw)


@given(st.binary(max_size=20))
def test_any_bytes_are_a_store_form_or_are_refused(raw: bytes) -> None:
    try:
        key = EntryKey.from_store(raw)
    except InvalidKey:
        return
    assert key.to_store() == raw


@given(st.text(max_size=20))
def test_any_text_is_a_component_or_is_refused(text: str) -> None:
    try:
        check_component("id", text)
    except InvalidKey:
        assume(False)
    assert _is_component(text)
    assert not any(unicodedata.category(character) in ("Cc", "Cs") for character in text)
