"""The record as a causal CRDT: what an edit does, and what a join keeps. Its laws over records that real
writes bring about are in test_fleet.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.dot import Dot, Millis
from crdt.record import (
    EMPTY_RECORD,
    REVISION_BYTES_MAX,
    REVISIONS_MAX,
    DotStore,
    Edit,
    Link,
    Record,
    RevisionKey,
    Scalar,
    Value,
    concurrent,
    edited,
    join_records,
    shown,
)
from tests.crdt.values import AP, EU, NOW, US, records, scalars, stores

A, B, C, D = Dot(EU, 1), Dot(US, 1), Dot(AP, 1), Dot(EU, 2)


def wrote(record: Record, dot: Dot, edit: Edit | None = None, *, at: int = NOW, **fields: Scalar) -> Record:
    """The record after a write: these fields, or an edit."""
    seen = Record(record.context.with_dots([dot]), record.fields, record.tags, record.links, record.revisions)
    return edited(seen, edit or Edit(fields=fields), dot, Millis(at))


def tagging(*tags: str) -> Edit:
    return Edit(add_tags=frozenset(tags))


def untagging(*tags: str) -> Edit:
    return Edit(remove_tags=frozenset(tags))


def values(store: DotStore) -> set[Scalar]:
    return {value.value for value in store.values()}


# --- joins of any records


def test_the_join_of_none_is_the_record_that_holds_nothing() -> None:
    assert join_records() == EMPTY_RECORD == Record()


@given(records)
def test_the_empty_record_is_the_bottom(record: Record) -> None:
    assert join_records(record) == join_records(record, EMPTY_RECORD) == record
    assert join_records(EMPTY_RECORD, record) == record


@given(records)
def test_join_is_idempotent(record: Record) -> None:
    copy = Record(record.context, record.fields, record.tags, record.links, record.revisions)
    assert join_records(record, copy) == record


@given(records, records)
def test_join_is_commutative_whatever_a_broken_writer_made(a: Record, b: Record) -> None:
    """Also where one dot stands for two values: the greater is kept."""
    assert join_records(a, b) == join_records(b, a)


@given(stores(scalars), stores(scalars), stores(scalars))
def test_two_values_under_one_dot_are_joined_by_a_total_order(a: DotStore, b: DotStore, c: DotStore) -> None:
    x, y, z = (
        Record(Clock.of(store), fields={"title": {A: next(iter(store.values()))}}) for store in (a, b, c)
    )
    both = join_records(x, y).fields["title"][A]
    assert both in (x.fields["title"][A], y.fields["title"][A])
    assert both.written_at >= max(x.fields["title"][A].written_at, y.fields["title"][A].written_at)
    assert join_records(join_records(x, y), z) == join_records(x, join_records(y, z))


@given(records, records)
@settings(max_examples=40)
def test_a_join_keeps_no_empty_store(a: Record, b: Record) -> None:
    both = join_records(a, b)
    for stores_of in (both.fields, both.tags, both.links, both.revisions):
        assert all(stores_of.values())


@given(records, records)
@settings(max_examples=40)
def test_a_join_leaves_its_records_as_they_were(a: Record, b: Record) -> None:
    def as_text(record: Record) -> str:
        return repr((record.context, record.fields, record.tags, record.links, record.revisions))

    before = as_text(a), as_text(b)
    join_records(a, b)
    assert (as_text(a), as_text(b)) == before


# --- tags and links


def test_what_one_side_added_is_kept() -> None:
    a, b = wrote(EMPTY_RECORD, A, tagging("x")), wrote(EMPTY_RECORD, B, tagging("y"))
    assert join_records(a, b).tags.keys() == {"x", "y"}


def test_what_one_side_has_seen_and_lacks_was_removed() -> None:
    a = wrote(EMPTY_RECORD, A, tagging("x", "y"))
    b = wrote(a, B, untagging("x"))
    assert join_records(a, b).tags.keys() == {"y"}


def test_adds_win_over_concurrent_removes() -> None:
    base = wrote(EMPTY_RECORD, A, tagging("x"))
    removed, added = wrote(base, B, untagging("x")), wrote(base, C, tagging("x"))
    joined = join_records(removed, added)
    assert joined.tags == {"x": {C: Value(None, NOW)}}


def test_a_tag_added_again_has_the_new_dot_alone() -> None:
    base = wrote(EMPTY_RECORD, A, tagging("x"))
    again = wrote(base, B, tagging("x"))
    assert again.tags["x"].keys() == {B}
    removed = wrote(base, C, untagging("x"))
    assert join_records(again, removed).tags["x"].keys() == {B}
    assert join_records(base, again).tags["x"].keys() == {B}


def test_a_tag_removed_and_added_by_later_writes_is_there() -> None:
    record = wrote(wrote(wrote(EMPTY_RECORD, A, tagging("x")), B, untagging("x")), C, tagging("x"))
    assert record.tags["x"].keys() == {C}


def test_concurrent_adds_of_one_tag_are_removed_by_one_who_saw_both_only() -> None:
    a, b = wrote(EMPTY_RECORD, A, tagging("x")), wrote(EMPTY_RECORD, B, tagging("x"))
    both = join_records(a, b)
    assert both.tags["x"].keys() == {A, B}
    assert join_records(both, wrote(both, C, untagging("x"))).tags == {}
    assert join_records(both, wrote(a, C, untagging("x"))).tags["x"].keys() == {B}


def test_links_are_pairs_of_relation_and_target() -> None:
    one, two, other = Link("touches", "x"), Link("touches", "y"), Link("about", "x")
    base = wrote(EMPTY_RECORD, A, Edit(add_links=frozenset({one, two, other})))
    record = wrote(base, B, Edit(remove_links=frozenset({one})))
    assert record.links.keys() == {two, other}
    assert join_records(base, record).links.keys() == {two, other}
    again = wrote(base, C, Edit(add_links=frozenset({one})))
    assert join_records(record, again).links[one].keys() == {C}


def test_removing_what_is_not_there_changes_nothing() -> None:
    base = wrote(EMPTY_RECORD, A, tagging("x"))
    edit = Edit(remove_tags=frozenset({"y"}), remove_links=frozenset({Link("about", "x")}))
    record = wrote(base, B, edit)
    assert (record.tags, record.links) == (base.tags, base.links)


# --- fields


@pytest.mark.parametrize("at", [NOW - 10**15, NOW, NOW + 10**15])
def test_an_edit_that_had_seen_the_earlier_value_replaces_it_whatever_the_clocks_say(at: int) -> None:
    base = wrote(EMPTY_RECORD, A, title="old")
    later = wrote(base, B, title="new", at=at)
    for joined in (later, join_records(base, later), join_records(later, base)):
        assert values(joined.fields["title"]) == {"new"}
        assert shown(joined.fields["title"]).value == "new"
        assert concurrent(joined.fields["title"]) == ()


def test_a_wild_clock_wins_a_tie_but_suppresses_no_later_edit() -> None:
    wild, sane = wrote(EMPTY_RECORD, A, title="wild", at=10**15), wrote(EMPTY_RECORD, B, title="sane")
    tie = join_records(wild, sane)
    assert shown(tie.fields["title"]).value == "wild"
    assert shown(wrote(tie, C, title="after").fields["title"]).value == "after"
    assert shown(join_records(tie, wrote(tie, C, title="after")).fields["title"]).value == "after"


def test_of_concurrent_edits_the_later_wins_then_the_greater_dot() -> None:
    a, b = wrote(EMPTY_RECORD, A, title="a", at=5), wrote(EMPTY_RECORD, B, title="b", at=6)
    assert shown(join_records(a, b).fields["title"]).value == "b"
    assert shown(join_records(wrote(EMPTY_RECORD, A, title="a", at=7), b).fields["title"]).value == "a"
    tied = join_records(wrote(EMPTY_RECORD, A, title="a", at=6), b)
    assert A < B
    assert shown(tied.fields["title"]).value == "b"


def test_concurrent_values_are_all_reported_the_shown_one_first() -> None:
    joined = join_records(
        wrote(EMPTY_RECORD, A, title="a", at=5),
        wrote(EMPTY_RECORD, B, title="b", at=7),
        wrote(EMPTY_RECORD, C, title="c", at=7),
    )
    reported = concurrent(joined.fields["title"])
    assert [value.value for _, value in reported] == ["b", "c", "a"]
    assert [dot for dot, _ in reported] == [B, C, A]
    assert reported[0][1] == shown(joined.fields["title"])


def test_equal_concurrent_values_are_one_value() -> None:
    joined = join_records(
        wrote(EMPTY_RECORD, A, title="same", at=1), wrote(EMPTY_RECORD, B, title="same", at=2)
    )
    assert joined.fields["title"].keys() == {A, B}
    assert concurrent(joined.fields["title"]) == ()
    assert shown(joined.fields["title"]) == Value("same", Millis(2))


@pytest.mark.parametrize("cleared", ["", None])
def test_clearing_is_a_value_like_any_other(cleared: Scalar) -> None:
    base = wrote(EMPTY_RECORD, A, title="old")
    joined = join_records(wrote(base, B, title=cleared), wrote(base, C, title="new"))
    assert {value.value for _, value in concurrent(joined.fields["title"])} == {cleared, "new"}


@given(stores(scalars))
def test_what_is_shown_is_the_greatest_by_time_and_dot(store: DotStore) -> None:
    first = max(store, key=lambda dot: (store[dot].written_at, dot))
    assert shown(store) == store[first]
    reported = concurrent(store)
    assert bool(reported) == (len(values(store)) > 1)
    if reported:
        assert dict(reported) == store
        assert reported[0] == (first, store[first])
        ranks = [(value.written_at, dot) for dot, value in reported]
        assert ranks == sorted(ranks, reverse=True)


def test_an_edit_of_one_field_leaves_the_others() -> None:
    base = wrote(EMPTY_RECORD, A, title="t", body="b")
    record = wrote(base, B, title="u")
    assert record.fields["body"] == base.fields["body"]
    assert record.fields["title"] == {B: Value("u", NOW)}


@pytest.mark.parametrize("unknown", ["text", 7, b"\xff\0", None, -1])
def test_a_field_that_a_newer_version_added_is_kept_and_merged(unknown: Scalar) -> None:
    newer = wrote(EMPTY_RECORD, A, title="t", colour=unknown)
    joined = join_records(wrote(newer, B, title="u"), wrote(newer, C, colour="other"))
    assert values(joined.fields["title"]) == {"u"}
    assert values(joined.fields["colour"]) == {"other"}
    assert values(wrote(newer, D, title="u").fields["colour"]) == {unknown}


# --- what an edit leaves alone


def test_an_empty_edit_keeps_every_dot_and_every_revision() -> None:
    many = {
        RevisionKey("body", Dot(US, counter)): {A: Value("x" * 65_536, NOW)}
        for counter in range(1, REVISIONS_MAX + 9)
    }
    base = Record(Clock.of([A, B]), revisions=many, tags={"x": {B: Value(None, NOW)}})
    assert wrote(base, C, Edit()) == Record(Clock.of([A, B, C]), revisions=many, tags=base.tags)


@given(records)
@settings(max_examples=40)
def test_an_edit_leaves_its_record_as_it_was(record: Record) -> None:
    before = repr((record.fields, record.tags, record.links, record.revisions))
    edit = Edit(fields={"title": "x"}, add_tags=frozenset("a"), remove_tags=frozenset("b"))
    wrote(record, Dot(EU, 99), edit)
    assert repr((record.fields, record.tags, record.links, record.revisions)) == before


# --- revisions


def conflict(field: str = "title", a: Scalar = "a", b: Scalar = "b") -> Record:
    """A record with two concurrent values."""
    return join_records(
        wrote(EMPTY_RECORD, A, Edit(fields={field: a}), at=5),
        wrote(EMPTY_RECORD, B, Edit(fields={field: b}), at=6),
    )


def test_a_join_collapses_nothing() -> None:
    assert conflict().revisions == {}


def test_a_write_that_collapses_keeps_every_losing_value_as_a_revision() -> None:
    record = wrote(conflict(), C, title="c")
    assert record.fields["title"] == {C: Value("c", NOW)}
    assert record.revisions == {
        RevisionKey("title", A): {C: Value("a", Millis(5))},
        RevisionKey("title", B): {C: Value("b", Millis(6))},
    }


def test_the_value_that_is_set_is_no_revision() -> None:
    assert wrote(conflict(), C, title="a").revisions.keys() == {RevisionKey("title", B)}


def test_a_plain_edit_keeps_no_revision() -> None:
    base = wrote(EMPTY_RECORD, A, title="old")
    assert wrote(base, B, title="new").revisions == {}
    assert wrote(conflict(a="same", b="same"), C, title="new").revisions == {}


def test_a_write_that_does_not_set_the_field_collapses_nothing() -> None:
    record = wrote(
        conflict(),
        C,
        body="x",
    )
    assert record.revisions == {}
    assert values(record.fields["title"]) == {"a", "b"}


def test_later_writes_keep_the_revisions() -> None:
    once = wrote(conflict(), C, title="c")
    assert wrote(once, D, title="d").revisions == once.revisions


def test_two_collapsing_writes_keep_one_revision_under_both_dots() -> None:
    both = join_records(wrote(conflict(), C, title="c"), wrote(conflict(), D, title="d"))
    assert both.revisions[RevisionKey("title", A)] == {C: Value("a", Millis(5)), D: Value("a", Millis(5))}


def test_a_collapse_beside_a_third_value_keeps_it_concurrent() -> None:
    other = wrote(EMPTY_RECORD, D, title="other")
    both = join_records(wrote(conflict(), C, title="c"), other)
    assert values(both.fields["title"]) == {"c", "other"}
    assert both.revisions.keys() == {RevisionKey("title", A), RevisionKey("title", B)}


def test_forgotten_revisions_do_not_come_back() -> None:
    """A forget has seen what collapsed; a record made before it brings no revision back."""
    collapsed = wrote(conflict(), C, title="c")
    forgotten = Record(collapsed.context.with_dots([D]))
    assert join_records(forgotten, collapsed) == forgotten
    concurrent_edit = wrote(collapsed, Dot(US, 2), title="after")
    joined = join_records(forgotten, concurrent_edit)
    assert joined.revisions == {}
    assert values(joined.fields["title"]) == {"after"}


def test_a_revision_that_one_write_cut_is_not_brought_back_by_a_record_from_before() -> None:
    base = Record(Clock.of([A, B]), revisions={RevisionKey("body", A): {B: Value("cut", Millis(1))}})
    cut = Record(base.context.with_dots([C]))
    assert join_records(base, cut).revisions == {}


def with_revisions(*rows: tuple[str, Dot, int, Scalar], collapsed_by: Dot = D) -> Record:
    """A record with these revisions: field, dot, time, value; all collapsed by one write."""
    return Record(
        Clock.of([collapsed_by]),
        revisions={
            RevisionKey(field, dot): {collapsed_by: Value(value, Millis(at))}
            for field, dot, at, value in rows
        },
    )


def after_a_write(record: Record) -> list[RevisionKey]:
    """What a write leaves of the revisions, by their dots."""
    return sorted(wrote(record, C, body="any").revisions, key=lambda key: (key.dot, key.field))


def test_a_write_keeps_the_newest_32() -> None:
    rows = [("title", Dot(US, counter), 1000 - counter, "x") for counter in range(1, 41)]
    kept = after_a_write(with_revisions(*rows))
    assert [key.dot.counter for key in kept] == list(range(1, REVISIONS_MAX + 1))


def test_of_revisions_of_one_time_those_with_greater_dots_are_newer_then_those_of_later_fields() -> None:
    rows = [("title", Dot(US, counter), 7, "x") for counter in range(1, 41)]
    assert [key.dot.counter for key in after_a_write(with_revisions(*rows))] == list(range(9, 41))
    rows = [(f"field {number:02}", Dot(US, 1), 7, "x") for number in range(40)]
    assert [key.field for key in after_a_write(with_revisions(*rows))] == [
        f"field {number:02}" for number in range(8, 40)
    ]
    rows = [(f"field {40 - number:02}", Dot(US, number + 1), 7, "x") for number in range(40)]
    assert [key.dot.counter for key in after_a_write(with_revisions(*rows))] == list(range(9, 41))
    one = ("title", Dot(EU, 50), 9, "x")
    assert RevisionKey("title", one[1]) in after_a_write(
        with_revisions(one, *(("title", Dot(US, counter), 8, "x") for counter in range(1, 41)))
    )


@pytest.mark.parametrize("character", ["x", "é", "😀"])
def test_a_write_keeps_the_newest_128_kib_of_values(character: str) -> None:
    size = len(character.encode())
    half = character * (REVISION_BYTES_MAX // 2 // size)
    rows = [("body", Dot(US, counter), counter, half) for counter in range(1, 5)]
    assert [key.dot.counter for key in after_a_write(with_revisions(*rows))] == [3, 4]
    rows[-1] = ("body", Dot(US, 4), 4, half + character)
    assert [key.dot.counter for key in after_a_write(with_revisions(*rows))] == [4]


def test_revisions_of_any_type_have_a_size() -> None:
    rows = [
        ("a", Dot(US, 4), 4, 7),
        ("b", Dot(US, 3), 3, None),
        ("c", Dot(US, 2), 2, b"x" * REVISION_BYTES_MAX),
        ("d", Dot(US, 1), 1, "older"),
    ]
    assert [key.field for key in after_a_write(with_revisions(*rows))] == ["b", "a"]
    assert [key.field for key in after_a_write(with_revisions(*rows[2:]))] == ["c"]


def test_a_join_cuts_nothing() -> None:
    rows = [("title", Dot(US, counter), counter, "x" * 60_000) for counter in range(1, 41)]
    a, b = with_revisions(*rows[:20]), with_revisions(*rows[20:], collapsed_by=B)
    assert len(join_records(a, b).revisions) == 40


def test_a_collapse_counts_the_new_revisions_before_it_cuts() -> None:
    old = [("body", Dot(AP, counter), counter, "x") for counter in range(1, 33)]
    base = join_records(conflict(), with_revisions(*old))
    record = wrote(base, C, title="c")
    assert len(record.revisions) == REVISIONS_MAX
    times = sorted(shown(store).written_at for store in record.revisions.values())
    assert times == sorted([5, 6, *range(3, 33)])


@given(st.sampled_from(["title", "body"]), scalars, scalars, scalars)
def test_a_collapse_loses_no_value(field: str, a: Scalar, b: Scalar, new: Scalar) -> None:
    before = conflict(field, a, b)
    record = wrote(before, C, Edit(fields={field: new}))
    left = {value.value for store in record.revisions.values() for value in store.values()}
    assert left | {new} == ({a, b, new} if a != b else {new})
    assert record.context == before.context.join(Clock.of([C])) != EMPTY_CLOCK
