"""What a local write makes of what it reads: docs/decisions/0002, row by row."""

from dataclasses import replace

import pytest

from crdt.clock import Clock
from crdt.codec import RECORD_FORMAT, decode_record, encode_record
from crdt.dot import Actor, Dot, Millis
from crdt.fold import fold
from crdt.record import REVISIONS_MAX, Edit, Link, Record, RevisionKey, Scalar, Value, concurrent, shown
from crdt.register import Register, Sibling, context_over, make_register
from crdt.write import Basis, basis, bury, lapse, rewrite, saying_again
from tests.crdt.values import AP, EU, NOW, US, value

LATER = Millis(NOW + 1000)

READABLE = encode_record(Record())
NEWER = bytes([READABLE[0], RECORD_FORMAT + 1]) + READABLE[2:]
"""A payload of a format that is not known here."""


def remember(
    register: Register, dot: Dot, *, at: int = NOW, expires_at: int | None = None, **fields: Scalar
) -> Register:
    """A remember or update that names these fields; at a creation, of a note."""
    now = Millis(at)
    found = basis(register, now)
    edit = Edit(fields=fields)
    if found.life is None:
        edit = Edit(fields={"kind": "Note", "created_at": at, **fields})
    expiry = None if expires_at is None else Millis(expires_at)
    return rewrite(found, saying_again(found, edit), dot, now, expiry)


def meet(*registers: Register) -> Register:
    """The siblings of replicas that wrote concurrently."""
    return make_register(sibling for register in registers for sibling in register)


def read(register: Register, at: int = NOW) -> Record:
    """The record that a reader sees."""
    folded = fold(register, Millis(at))
    assert folded is not None
    return folded.record


def record_of(sibling: Sibling) -> Record:
    return decode_record(sibling.payload)


def shown_fields(record: Record) -> dict[str, Scalar]:
    return {name: shown(store).value for name, store in record.fields.items()}


def newer(dot: Dot, *, payload: bytes = NEWER, expires_at: int | None = None, at: int = NOW) -> Sibling:
    """A value that cannot be decoded here."""
    return value(dot, payload=payload, expires_at=expires_at, written_at=at)


# --- remember and update of a live entry


def test_over_a_live_entry_every_decodable_value_is_folded() -> None:
    base = remember((), Dot(EU, 1), title="t", body="b")
    register = meet(remember(base, Dot(US, 1), title="us"), remember(base, Dot(AP, 1), body="ap"))
    (sibling,) = remember(register, Dot(EU, 2), author="me")
    fields = shown_fields(record_of(sibling))
    assert fields == {"kind": "Note", "created_at": NOW, "title": "us", "body": "ap", "author": "me"}
    assert record_of(sibling).context == Clock.of([Dot(EU, 1), Dot(US, 1), Dot(AP, 1), Dot(EU, 2)])


def test_over_a_live_entry_tombstones_are_folded() -> None:
    base = remember((), Dot(EU, 1), title="t", body="b")
    register = meet(bury(base, Dot(US, 1), NOW), remember(base, Dot(AP, 1), title="ap"))
    (sibling,) = remember(register, Dot(EU, 2))
    assert shown_fields(record_of(sibling)) == {"kind": "Note", "created_at": NOW, "title": "ap"}
    assert record_of(sibling).context.has(Dot(US, 1))


def test_over_a_live_entry_what_cannot_be_decoded_is_carried_along() -> None:
    register = meet(remember((), Dot(US, 1), title="t"), (newer(Dot(AP, 1)),))
    own, carried = remember(register, Dot(EU, 1), at=LATER, expires_at=LATER + 5, title="u")
    assert (own.dot, carried.dot) == (Dot(EU, 1), Dot(EU, 2))
    assert carried.payload == NEWER
    assert own.context == carried.context == {US: 1, AP: 1}
    assert (carried.expires_at, carried.written_at) == (own.expires_at, own.written_at) == (LATER + 5, LATER)
    assert not carried.tombstone


def test_a_tombstone_that_cannot_be_decoded_is_carried_along() -> None:
    """It alone says what it had removed; without it a late edit would bring the forgotten text back."""
    base = remember((), Dot(US, 1), body="secret")
    (buried,) = bury(base, Dot(US, 2), NOW)
    unreadable = replace(buried, payload=NEWER)
    own, carried = remember((unreadable,), Dot(EU, 1), expires_at=LATER, title="anew")
    assert (own.tombstone, carried.tombstone) == (False, True)
    assert (carried.dot, carried.payload, carried.expires_at) == (Dot(EU, 2), NEWER, None)
    late = remember(base, Dot(AP, 1), author="late")
    upgraded = replace(carried, payload=buried.payload)
    assert "body" not in read(meet((own, upgraded), late)).fields


def test_what_cannot_be_decoded_is_not_claimed_by_the_record() -> None:
    register = meet(remember((), Dot(US, 1), title="t"), (newer(Dot(AP, 1)),))
    own, _ = remember(register, Dot(EU, 1))
    assert record_of(own).context == Clock.of([Dot(US, 1), Dot(EU, 1)])
    assert own.context == {US: 1, AP: 1}, "though the write replaces it"


def test_the_same_bytes_are_carried_once() -> None:
    register = meet(
        remember((), Dot(EU, 1)), (newer(Dot(US, 1)), newer(Dot(AP, 1)), newer(Dot(AP, 2), payload=b"other"))
    )
    after = remember(register, Dot(EU, 2))
    assert [sibling.payload for sibling in after[1:]] == sorted([NEWER, b"other"])
    again = remember(after, Dot(EU, 5))
    assert [sibling.payload for sibling in again[1:]] == sorted([NEWER, b"other"])
    assert [sibling.dot for sibling in again] == [Dot(EU, 5), Dot(EU, 6), Dot(EU, 7)]


def test_no_sibling_of_a_write_is_covered_by_its_context() -> None:
    register = meet(remember((), Dot(EU, 1)), (newer(Dot(US, 1)), newer(Dot(AP, 2), payload=b"other")))
    after = remember(register, Dot(EU, 2))
    assert len({tuple(sorted(sibling.context.items())) for sibling in after}) == 1
    assert after[0].context == context_over(register)
    assert after[0].context[EU] < after[0].dot.counter


def test_over_an_entry_where_nothing_decodes_a_write_stands_beside_it() -> None:
    own, carried = remember((newer(Dot(US, 1)),), Dot(EU, 1), title="t")
    assert shown_fields(record_of(own)) == {"title": "t"}
    assert carried.payload == NEWER


def test_a_value_that_the_refinement_excludes_is_replaced_but_not_folded() -> None:
    dead = remember((), Dot(US, 1), at=NOW - 100, expires_at=NOW - 50, title="dead", body="dead")
    register = meet(dead, remember((), Dot(AP, 1), title="alive"))
    (sibling,) = remember(register, Dot(EU, 1))
    record = record_of(sibling)
    assert shown_fields(record)["title"] == "alive"
    assert "body" not in record.fields
    assert not record.context.has(Dot(US, 1))
    assert sibling.context == {US: 1, AP: 1}


def test_an_undecodable_value_that_the_refinement_excludes_is_not_carried() -> None:
    dead = newer(Dot(US, 1), at=NOW - 100, expires_at=NOW - 50)
    assert len(remember(meet((dead,), remember((), Dot(AP, 1))), Dot(EU, 1))) == 1


# --- remember of an absent entry


def test_a_creation_carries_nothing_of_a_hidden_value() -> None:
    hidden = remember((), Dot(US, 1), expires_at=LATER, title="old", body="old")
    register = meet(hidden, (newer(Dot(AP, 1), expires_at=LATER),))
    (sibling,) = remember(register, Dot(EU, 1), at=LATER, title="new")
    assert shown_fields(record_of(sibling)) == {"kind": "Note", "created_at": LATER, "title": "new"}
    assert record_of(sibling).context == Clock.of([Dot(EU, 1)])
    assert sibling.context == {US: 1, AP: 1}


def test_a_creation_folds_tombstones() -> None:
    base = remember((), Dot(US, 1), title="old")
    forgotten = bury(base, Dot(US, 2), NOW)
    (sibling,) = remember(forgotten, Dot(EU, 1), title="new")
    assert record_of(sibling).context == Clock.of([Dot(US, 1), Dot(US, 2), Dot(EU, 1)])
    late = remember(base, Dot(AP, 1), body="late")
    assert shown_fields(read(meet((sibling,), late)))["title"] == "new"
    assert concurrent(read(meet((sibling,), late)).fields["title"]) == ()


def test_a_creation_at_an_unknown_key_has_seen_nothing() -> None:
    (sibling,) = remember((), Dot(EU, 7), title="new")
    assert sibling.context == {}
    assert record_of(sibling).context == Clock({EU: (7, 7)})


# --- forget


def test_forget_folds_every_decodable_sibling_hidden_or_not() -> None:
    hidden = remember((), Dot(US, 1), at=NOW - 100, expires_at=NOW - 50, title="dead")
    buried = bury(remember((), Dot(AP, 1)), Dot(AP, 2), NOW)
    register = meet(hidden, remember((), Dot(EU, 1)), buried, (newer(Dot(US, 5)),))
    (sibling,) = bury(register, Dot(EU, 2), LATER)
    assert sibling.tombstone
    assert (sibling.expires_at, sibling.written_at) == (None, LATER)
    assert sibling.context == {US: 5, AP: 2, EU: 1}
    expected = Clock.of([Dot(US, 1), Dot(EU, 1), Dot(AP, 1), Dot(AP, 2), Dot(EU, 2)])
    assert record_of(sibling) == Record(expected)


def test_after_a_forget_there_is_nothing_to_read() -> None:
    register = meet(remember((), Dot(US, 1)), (newer(Dot(AP, 1)),))
    assert fold(bury(register, Dot(EU, 1), NOW), NOW) is None


def test_a_remember_concurrent_with_a_forget_survives_it_with_its_kind_and_time_of_creation() -> None:
    base = remember((), Dot(EU, 1), title="t", body="b")
    edit = remember(base, Dot(US, 1), at=LATER, title="u")
    survived = read(meet(bury(base, Dot(AP, 1), LATER), edit), LATER)
    assert shown_fields(survived) == {"kind": "Note", "created_at": NOW, "title": "u"}


def test_what_was_forgotten_does_not_come_back_with_a_concurrent_edit() -> None:
    base = rewrite(
        basis((), NOW),
        Edit(fields={"body": "secret"}, add_tags=frozenset({"x"}), add_links=frozenset({Link("about", "x")})),
        Dot(EU, 1),
        NOW,
        None,
    )
    survived = read(meet(bury(base, Dot(AP, 1), NOW), remember(base, Dot(US, 1), title="u")))
    assert survived.fields.keys() == {"title"}
    assert (survived.tags, survived.links) == ({}, {})


def test_a_removal_on_behalf_covers_exactly_what_it_names() -> None:
    old = remember((), Dot(US, 1), title="old")
    news = remember((), Dot(AP, 1), title="news")
    register = meet(old, news)
    after = bury(register, Dot(EU, 1), LATER, covering=old)
    buried = next(sibling for sibling in after if sibling.tombstone)
    assert after == make_register((buried, *news))
    assert buried.context == {US: 1}
    assert record_of(buried) == Record(Clock.of([Dot(US, 1), Dot(EU, 1)]))
    assert shown_fields(read(after)) == {"kind": "Note", "created_at": NOW, "title": "news"}


def test_a_removal_on_behalf_claims_nothing_of_what_stays() -> None:
    """Also where what stays was written here, just before."""
    old, news = remember((), Dot(US, 1), title="old"), remember((), Dot(EU, 3), title="news")
    after = bury(meet(old, news), Dot(EU, 9), LATER, covering=old)
    buried = next(sibling for sibling in after if sibling.tombstone)
    assert record_of(buried).context == Clock({US: (1, 1), EU: (4, 9)})
    assert shown_fields(read(after))["title"] == "news"


# --- forget with lapse


def test_a_lapse_keeps_every_dot_inside_the_record() -> None:
    one = remember((), Dot(US, 1), title="us", body="b")
    register = meet(one, remember((), Dot(AP, 1), title="ap"))
    before = read(register)
    (sibling,) = lapse(basis(register, LATER), Dot(EU, 1), LATER, Millis(LATER + 60_000))
    after = record_of(sibling)
    assert replace(after, context=before.context) == before
    assert after.context == before.context.with_dots([Dot(EU, 1)])
    assert (sibling.expires_at, sibling.written_at) == (LATER + 60_000, LATER)
    assert sibling.context == {US: 1, AP: 1}


def test_a_lapse_cuts_no_revision() -> None:
    revisions = {
        RevisionKey("body", Dot(US, counter)): {Dot(US, 99): Value("x", NOW)}
        for counter in range(1, REVISIONS_MAX + 2)
    }
    record = Record(Clock.of([Dot(US, 99)]), revisions=revisions)
    register = (value(Dot(US, 99), payload=encode_record(record)),)
    (sibling,) = lapse(basis(register, NOW), Dot(EU, 1), NOW, LATER)
    assert record_of(sibling).revisions == revisions


def test_a_lapse_carries_what_cannot_be_decoded_beside_what_can() -> None:
    register = meet(remember((), Dot(US, 1), title="t"), (newer(Dot(AP, 1)),))
    own, carried = lapse(basis(register, NOW), Dot(EU, 1), NOW, LATER)
    assert shown_fields(record_of(own))["title"] == "t"
    assert carried.payload == NEWER
    assert own.expires_at == carried.expires_at == LATER


def test_where_no_value_decodes_a_lapse_writes_the_payloads_alone() -> None:
    register = (newer(Dot(US, 1)), newer(Dot(AP, 1)), newer(Dot(AP, 2), payload=b"other"))
    after = lapse(basis(make_register(register), NOW), Dot(EU, 5), NOW, LATER)
    assert [sibling.payload for sibling in after] == sorted([NEWER, b"other"])
    assert [sibling.dot for sibling in after] == [Dot(EU, 5), Dot(EU, 6)]
    assert {sibling.expires_at for sibling in after} == {LATER}
    assert all(sibling.context == {US: 1, AP: 2} for sibling in after)


def test_where_no_value_decodes_what_a_tombstone_removed_stays_removed() -> None:
    """The payloads cannot take over what the tombstone had seen; without it, a late edit would bring the
    forgotten text back.
    """
    base = remember((), Dot(US, 1), body="secret")
    register = meet(bury(base, Dot(US, 2), NOW), (newer(Dot(AP, 1)),))
    after = lapse(basis(register, NOW), Dot(EU, 1), NOW, LATER)
    late = remember(base, Dot(EU, 9), title="late")
    assert {sibling.tombstone for sibling in after} == {True, False}
    assert read(meet(after, late)).fields.keys() == {"title", "kind", "created_at"}


# --- carrying, and the two contexts


def test_history_18_a_title_carried_along_unread_is_there_after_the_upgrade() -> None:
    """An old version writes over a title it cannot read and carries it; then it is upgraded.

    The old version is one that holds this sibling for undecodable; the upgraded one decodes it like any
    other.
    """
    theirs = remember((), Dot(AP, 1), title="unreadable for now")
    ours = remember((), Dot(EU, 1), body="ours")
    register = meet(ours, theirs)
    alive = basis(register, NOW).life
    as_an_old_version_sees_it = Basis(register, record_of(ours[0]), alive, theirs)
    edit = Edit(fields={"body": "edited"})
    after = rewrite(as_an_old_version_sees_it, edit, Dot(EU, 2), NOW, None)
    assert after[1].payload == theirs[0].payload
    assert shown_fields(read(after))["title"] == "unreadable for now"
    assert shown_fields(read(after))["body"] == "edited"
    (merged,) = remember(after, Dot(US, 1), author="later")
    assert shown_fields(record_of(merged))["title"] == "unreadable for now"


def test_forget_removes_what_was_carried() -> None:
    after = remember(meet(remember((), Dot(EU, 1)), (newer(Dot(AP, 1)),)), Dot(EU, 2))
    assert bury(after, Dot(EU, 4), NOW)[0].context == {AP: 1, EU: 3}


# --- record contexts


def test_in_ordinary_life_a_record_context_is_one_run_per_actor() -> None:
    """Each writes in turn over what both hold, with writes at other keys in between."""
    register: Register = ()
    counters = {EU: 3, US: 0, AP: 11}
    for turn in range(12):
        actor = (EU, US, AP)[turn % 3]
        counters[actor] += 1 + turn % 4
        dot = Dot(actor, counters[actor])
        if turn == 7:
            register = bury(register, dot, NOW)
        elif turn == 8:
            register = lapse(basis(remember(register, dot), NOW), Dot(actor, dot.counter + 1), NOW, LATER)
            counters[actor] += 1
        else:
            register = remember(register, dot, title=f"turn {turn}")
    (sibling,) = register
    assert {actor: len(runs) for actor, runs in record_of(sibling).context.runs.items()} == {
        EU: 2,
        US: 2,
        AP: 2,
    }
    assert {actor: record_of(sibling).context.top(actor) for actor in counters} == counters


def test_the_run_of_the_own_dot_begins_at_it_where_no_earlier_one_is_known() -> None:
    (sibling,) = remember(remember((), Dot(US, 3)), Dot(EU, 9))
    assert record_of(sibling).context == Clock({US: (3, 3), EU: (9, 9)})


def test_the_run_of_the_own_dot_begins_above_the_last_one_known() -> None:
    (sibling,) = remember(remember((), Dot(EU, 3)), Dot(EU, 9))
    assert record_of(sibling).context == Clock({EU: (3, 9)})


def test_the_run_of_the_own_dot_begins_above_an_earlier_one_that_was_not_folded() -> None:
    """A hidden value of our own is replaced, not folded: its dot is not claimed, nor is one below it."""
    hidden = remember(remember((), Dot(EU, 3), expires_at=LATER), Dot(EU, 5), expires_at=LATER)
    (sibling,) = remember(hidden, Dot(EU, 9), at=LATER)
    assert record_of(sibling).context == Clock({EU: (6, 9)})


def test_the_run_of_the_own_dot_begins_above_one_that_only_a_context_names() -> None:
    theirs = remember(remember((), Dot(EU, 3), expires_at=LATER), Dot(US, 1), expires_at=LATER)
    (sibling,) = remember(theirs, Dot(EU, 9), at=LATER)
    assert record_of(sibling).context == Clock({EU: (4, 9)})


def test_dots_of_carried_payloads_are_not_claimed() -> None:
    after = remember(meet(remember((), Dot(EU, 1)), (newer(Dot(AP, 1)),)), Dot(EU, 2))
    own, _ = remember(after, Dot(EU, 9))
    assert record_of(own).context == Clock({EU: (1, 2, 4, 9)})


# --- what a write says anew


def saying(register: Register, **fields: Scalar) -> dict[str, Scalar]:
    return dict(saying_again(basis(register, NOW), Edit(fields=fields)).fields)


def test_kind_and_time_of_creation_are_said_again_and_nothing_else_is() -> None:
    register = remember((), Dot(EU, 1), title="t", author="a")
    assert saying(register) == {"kind": "Note", "created_at": NOW}
    assert saying(register, body="b") == {"kind": "Note", "created_at": NOW, "body": "b"}
    (sibling,) = remember(register, Dot(US, 1), body="b")
    assert record_of(sibling).fields["kind"].keys() == {Dot(US, 1)}
    assert record_of(sibling).fields["title"].keys() == {Dot(EU, 1)}


def test_what_an_edit_names_is_not_said_again() -> None:
    assert saying(remember((), Dot(EU, 1)), kind="Memory")["kind"] == "Memory"


def test_equal_values_of_concurrent_creations_are_said_again() -> None:
    register = meet(remember((), Dot(EU, 1)), remember((), Dot(US, 1)))
    assert saying(register) == {"kind": "Note", "created_at": NOW}


def test_where_concurrent_creations_disagree_a_write_carries_both_as_they_are() -> None:
    register = meet(remember((), Dot(EU, 1), kind="Note"), remember((), Dot(US, 1), kind="Decision"))
    assert saying(register) == {"created_at": NOW}
    (sibling,) = remember(register, Dot(AP, 1), title="t")
    assert record_of(sibling).fields["kind"] == read(register).fields["kind"]


def test_where_concurrent_creations_disagree_on_their_time_the_next_write_settles_it() -> None:
    earlier, later = remember((), Dot(EU, 1), created_at=5), remember((), Dot(US, 1), created_at=3, at=LATER)
    register = meet(earlier, later)
    assert saying(register) == {"kind": "Note", "created_at": 3}
    (sibling,) = remember(register, Dot(AP, 1), title="t")
    assert record_of(sibling).fields["created_at"] == {Dot(AP, 1): Value(3, NOW)}
    assert record_of(sibling).revisions.keys() == {RevisionKey("created_at", Dot(EU, 1))}


def test_naming_the_shown_kind_collapses_the_others() -> None:
    register = meet(remember((), Dot(EU, 1), kind="Note"), remember((), Dot(US, 1), kind="Decision"))
    assert shown_fields(read(register))["kind"] == "Decision"
    (sibling,) = remember(register, Dot(AP, 1), kind="Decision")
    assert record_of(sibling).fields["kind"].keys() == {Dot(AP, 1)}
    assert record_of(sibling).revisions.keys() == {RevisionKey("kind", Dot(EU, 1))}


def test_what_is_not_there_is_not_said_again() -> None:
    assert saying(()) == {}
    assert saying((newer(Dot(US, 1)),)) == {}


def test_the_rest_of_an_edit_is_left_as_it_was() -> None:
    edit = Edit(
        {"title": "t"},
        frozenset("a"),
        frozenset("b"),
        frozenset({Link("r", "a")}),
        frozenset({Link("r", "b")}),
    )
    again = saying_again(basis(remember((), Dot(EU, 1)), NOW), edit)
    assert replace(again, fields=edit.fields) == edit


# --- whatever is written


@pytest.mark.parametrize("actor", [EU, US])
def test_a_write_has_the_expiry_it_was_given(actor: Actor) -> None:
    for expires_at in (None, Millis(1), LATER):
        for sibling in rewrite(basis((newer(Dot(AP, 1)),), NOW), Edit(), Dot(actor, 1), NOW, expires_at):
            assert sibling.expires_at == expires_at
            assert sibling.written_at == NOW


def test_basis_of_a_register_that_lives_no_more_is_an_absent_entry() -> None:
    register = remember((), Dot(EU, 1), expires_at=LATER)
    assert basis(register, Millis(LATER - 1)).life is not None
    found = basis(register, LATER)
    assert (found.life, found.undecodable, found.record) == (None, (), Record())
    assert found.register == register
