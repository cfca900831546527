"""What remember, update and forget do, and what they refuse."""

from __future__ import annotations

import pytest

from crdt.clock import Clock
from crdt.dot import Dot, Incarnation, Millis
from crdt.key import EntryKey
from replica.core.commands import Forget, Kind, Links, Remember, Update
from replica.core.errors import Code
from replica.core.identity import Identity
from replica.core.rows import get_sequence, last_change
from replica.core.storage import Table
from tests.core.one_replica import HOME, KEY, START, Replica, links, sibling

UNREADABLE = b"\xc1 made by a newer version"


# --- remember


def test_a_first_remember_makes_an_entry(replica: Replica) -> None:
    made = replica.remember(
        Remember(
            key=KEY,
            kind=Kind.DECISION,
            title="t",
            body="b",
            author="a",
            provenance="p",
            tags=("y", "x"),
            add_links=(Links("to", ("2", "1")), Links("from", ("0",))),
            created_at=Millis(5),
        )
    )
    assert (made.created, made.kind, made.expires_at) == (True, "Decision", None)
    assert (made.fields_updated, made.tags_added, made.links_added) == (4, 2, 3)
    assert [made.kind_ignored, made.durable_ignored, made.created_at_ignored] == [False, False, False]
    entry = replica.recall()
    assert (entry.exists, entry.kind, entry.created_at) == (True, "Decision", 5)
    assert (entry.title, entry.body, entry.author, entry.provenance) == ("t", "b", "a", "p")
    assert entry.tags == ("x", "y")
    assert entry.links == (Links("from", ("0",)), Links("to", ("1", "2")))
    assert (entry.version, entry.sibling_count) == (made.version, 1)
    assert (entry.concurrent, entry.undecodable, entry.remaining_seconds) == ((), 0, None)


def test_unless_told_an_entry_is_a_note_made_now(replica: Replica) -> None:
    assert replica.remember(Remember(key=KEY)).kind == "Note"
    assert replica.recall().created_at == START


def test_a_second_remember_writes_over_the_live_entry(replica: Replica) -> None:
    replica.remember(Remember(key=KEY, title="t", body="b", tags=("x",), add_links=links(a=("1", "2"))))
    replica.now = Millis(START + 1)
    again = replica.remember(
        Remember(key=KEY, title="", tags=("x", "y"), add_links=links(b="1"), remove_links=links(a=("2", "3")))
    )
    assert not again.created
    assert (again.fields_updated, again.tags_added, again.links_added, again.links_removed) == (1, 1, 1, 1)
    entry = replica.recall()
    assert (entry.title, entry.body, entry.created_at) == ("", "b", START)
    assert entry.tags == ("x", "y")
    assert entry.links == (Links("a", ("1",)), Links("b", ("1",)))


def test_what_the_live_entry_has_otherwise_is_ignored_and_reported(replica: Replica) -> None:
    replica.remember(Remember(key=KEY, ttl=Millis(5000)))
    same = replica.remember(Remember(key=KEY, kind=Kind.NOTE, created_at=START))
    assert (same.kind_ignored, same.created_at_ignored) == (False, False)
    other = replica.remember(Remember(key=KEY, kind=Kind.MEMORY, created_at=Millis(1), durable=True))
    assert (other.kind, other.kind_ignored) == ("Note", True)
    assert (other.created_at_ignored, other.durable_ignored) == (True, True)
    assert other.expires_at == START + 5000
    entry = replica.recall()
    assert (entry.kind, entry.created_at) == ("Note", START)


def test_durable_is_not_ignored_where_the_entry_is(replica: Replica) -> None:
    replica.remember(Remember(key=KEY))
    assert not replica.remember(Remember(key=KEY, durable=True)).durable_ignored


def test_naming_the_kind_that_is_shown_settles_which_it_is(replica: Replica) -> None:
    replica.arrive(sibling("eu", fields={"kind": "Memory"}, written_at=START - 1))
    replica.arrive(sibling("us", fields={"kind": "Decision"}))
    carried = replica.remember(Remember(key=KEY, kind=Kind.MEMORY))
    assert (carried.kind, carried.kind_ignored) == ("Decision", True)
    assert [field.field for field in replica.recall().concurrent] == ["kind"]
    settled = replica.remember(Remember(key=KEY, kind=Kind.DECISION))
    assert (settled.kind, settled.kind_ignored) == ("Decision", False)
    assert not replica.recall().concurrent


def test_any_write_settles_which_of_two_creation_times_it_is(replica: Replica) -> None:
    replica.arrive(sibling("eu", fields={"kind": "Note", "created_at": 5}, written_at=START - 1))
    replica.arrive(sibling("us", fields={"kind": "Note", "created_at": 7}))
    assert [field.field for field in replica.recall().concurrent] == ["created_at"]
    replica.remember(Remember(key=KEY, title="one"))
    entry = replica.recall()
    assert (entry.created_at, entry.concurrent) == (7, ())


def test_a_field_that_is_named_settles_its_concurrent_values(replica: Replica) -> None:
    replica.arrive(sibling("eu", fields={"title": "a", "body": "same"}))
    replica.arrive(sibling("us", fields={"title": "b", "body": "same"}))
    replica.update(Update(key=KEY, body="new"))
    assert [value.value for value in replica.recall().concurrent[0].values] == ["b", "a"]
    replica.update(Update(key=KEY, title="b"))
    entry = replica.recall()
    assert (entry.title, entry.concurrent, entry.sibling_count) == ("b", (), 1)
    (title,) = (field for field in replica.history().fields if field.field == "title")
    assert [(value.value, value.cluster) for value in title.revisions] == [("a", "eu")]


def test_create_only_refuses_over_a_live_entry_only(replica: Replica) -> None:
    replica.remember(Remember(key=KEY, create_only=True, ttl=Millis(1000)))
    again = Remember(key=KEY, create_only=True, title="x")
    replica.refuses(Code.ALREADY_EXISTS, "key", lambda: replica.remember(again))
    replica.now = Millis(START + 1000)
    assert replica.remember(again).created
    replica.forget(Forget(key=KEY))
    assert replica.remember(again).created


def test_if_version_refuses_what_was_decided_on_an_older_state(replica: Replica) -> None:
    with_version = [
        lambda version: replica.remember(Remember(key=KEY, body="x", if_version=version)),
        lambda version: replica.update(Update(key=KEY, body="x", if_version=version)),
    ]
    replica.refuses(Code.ABORTED, "if_version", lambda: with_version[0](""))
    made = replica.remember(Remember(key=KEY))
    for write in with_version:
        version = replica.recall().version
        replica.refuses(Code.ABORTED, "if_version", lambda write=write: write("other"))
        replica.refuses(Code.ABORTED, "if_version", lambda write=write: write(""))
        assert write(version).version == replica.recall().version != version
        replica.refuses(Code.ABORTED, "if_version", lambda write=write, old=version: write(old))
    version = replica.recall().version
    replica.arrive(sibling("eu"))
    assert replica.recall().version != version
    replica.refuses(Code.ABORTED, "if_version", lambda: with_version[0](version))
    replica.forget(Forget(key=KEY))
    replica.refuses(Code.ABORTED, "if_version", lambda: with_version[0](made.version))
    replica.refuses(Code.NOT_FOUND, "key", lambda: with_version[1](made.version))


def test_after_a_forget_nothing_of_the_old_entry_is_left(replica: Replica) -> None:
    replica.remember(Remember(key=KEY, kind=Kind.DECISION, title="old", body="b", tags=("x",)))
    replica.forget(Forget(key=KEY))
    assert replica.remember(Remember(key=KEY, title="new")).created
    entry = replica.recall()
    assert (entry.kind, entry.title, entry.body, entry.tags) == ("Note", "new", "", ())


# --- update


def test_an_update_changes_what_it_names(replica: Replica) -> None:
    replica.remember(
        Remember(key=KEY, title="t", body="b", tags=("x", "y"), add_links=links(a="1"), ttl=Millis(5000))
    )
    replica.now = Millis(START + 10)
    done = replica.update(
        Update(
            key=KEY,
            title="u",
            author="",
            add_tags=("y", "z"),
            remove_tags=("x", "nowhere"),
            add_links=links(a=("1", "2")),
            remove_links=links(a="9", b="1"),
        )
    )
    assert (done.fields_updated, done.tags_added, done.tags_removed) == (2, 1, 1)
    assert (done.links_added, done.links_removed) == (1, 0)
    entry = replica.recall()
    assert (entry.title, entry.body, entry.tags) == ("u", "b", ("y", "z"))
    assert done.expires_at == entry.expires_at == START + 5000
    assert (done.version, entry.created_at) == (entry.version, START)


def test_an_update_needs_a_live_entry(replica: Replica) -> None:
    command = Update(key=KEY, title="x")
    replica.refuses(Code.NOT_FOUND, "key", lambda: replica.update(command))
    replica.remember(Remember(key=KEY, ttl=Millis(1)))
    replica.now = Millis(START + 1)
    replica.refuses(Code.NOT_FOUND, "key", lambda: replica.update(command))
    replica.remember(Remember(key=KEY))
    replica.forget(Forget(key=KEY))
    replica.refuses(Code.NOT_FOUND, "key", lambda: replica.update(command))


# --- forget


def test_a_forget_removes_the_entry(replica: Replica) -> None:
    replica.remember(Remember(key=KEY, title="t"))
    done = replica.forget(Forget(key=KEY))
    assert (done.lapse, done.existed, done.expires_at) == (False, True, None)
    assert not replica.recall().exists
    assert [sibling.tombstone for sibling in replica.register()] == [True]


def test_a_forget_of_what_is_not_there_writes_nothing(replica: Replica) -> None:
    before = replica.dump()
    assert not replica.forget(Forget(key=KEY)).existed
    assert replica.dump() == before
    replica.remember(Remember(key=KEY))
    replica.forget(Forget(key=KEY))
    before = replica.dump()
    assert not replica.forget(Forget(key=KEY)).existed
    assert not replica.forget(Forget(key=KEY, lapse=True)).existed
    assert replica.dump() == before


def test_a_forget_removes_what_is_hidden_too(replica: Replica) -> None:
    replica.remember(Remember(key=KEY, ttl=Millis(1)))
    replica.now = Millis(START + 1)
    assert not replica.forget(Forget(key=KEY)).existed
    assert [sibling.tombstone for sibling in replica.register()] == [True]


def test_a_forget_removes_what_cannot_be_read(replica: Replica) -> None:
    replica.arrive(sibling("eu", payload=UNREADABLE), sibling("us"))
    done = replica.forget(Forget(key=KEY))
    assert (done.existed, done.undecodable) == (True, 1)
    assert [sibling.tombstone for sibling in replica.register()] == [True]


@pytest.mark.parametrize("write", [Update(key=KEY, body="b"), Remember(key=KEY, body="b")])
def test_an_entry_that_survives_a_concurrent_forget_is_what_it_was(
    replica: Replica, write: Remember | Update
) -> None:
    replica.remember(Remember(key=KEY, kind=Kind.DECISION, title="t", created_at=Millis(5)))
    other = Replica(identity=Identity("other", Incarnation(bytes(16)), b"o" * 16))
    other.arrive(*replica.register())
    other.forget(Forget(key=KEY))
    replica.do(write)
    replica.arrive(*other.register())
    entry = replica.recall()
    assert (entry.exists, entry.kind, entry.created_at) == (True, "Decision", 5)
    assert (entry.title, entry.body, entry.sibling_count) == ("", "b", 2)


# --- payloads that do not decode


def test_a_write_carries_along_what_it_cannot_read(replica: Replica) -> None:
    replica.arrive(sibling("eu", payload=UNREADABLE), sibling("us", fields={"title": "t"}))
    done = replica.remember(Remember(key=KEY, body="b"))
    assert (done.created, done.undecodable) == (False, 1)
    assert [sibling.payload for sibling in replica.register()][1] == UNREADABLE
    entry = replica.recall()
    assert (entry.title, entry.body, entry.undecodable, entry.sibling_count) == ("t", "b", 1, 2)
    assert replica.update(Update(key=KEY, title="u")).undecodable == 1
    assert replica.register()[1].payload == UNREADABLE
    assert [dot.counter for dot in (each.dot for each in replica.register())] == [3, 4]


def test_of_an_entry_that_cannot_be_read_the_kind_is_unknown(replica: Replica) -> None:
    replica.arrive(sibling("eu", payload=UNREADABLE))
    entry = replica.recall()
    assert (entry.exists, entry.kind, entry.created_at, entry.undecodable) == (True, "", None, 1)
    done = replica.remember(Remember(key=KEY, title="t"))
    assert (done.created, done.kind, done.kind_ignored) == (False, "", False)
    named = replica.remember(Remember(key=KEY, kind=Kind.MEMORY))
    assert (named.kind, named.kind_ignored, replica.recall().kind) == ("Memory", False, "Memory")


# --- dots, sequences, refusals


def test_dots_run_over_the_whole_store_without_gaps(replica: Replica) -> None:
    other = EntryKey("repo", "topic", "other")
    for at in range(3):
        replica.remember(Remember(key=KEY, body=str(at)))
        replica.remember(Remember(key=other, body=str(at)))
    replica.forget(Forget(key=other))
    assert replica.clock() == Clock.up_to({HOME.actor: 7})
    assert [sibling.dot for sibling in replica.register()] == [Dot(HOME.actor, 5)]
    with replica.storage.snapshot() as snapshot:
        assert get_sequence(snapshot) == last_change(snapshot) == 7
        assert snapshot.count(Table.CHANGES) == 2


def test_a_write_covers_what_it_replaces(replica: Replica) -> None:
    eu, us = sibling("eu", 4), sibling("us", 9)
    replica.arrive(eu, us)
    replica.remember(Remember(key=KEY))
    (only,) = replica.register()
    assert dict(only.context) == {eu.dot.actor: 4, us.dot.actor: 9}


def test_a_damaged_row_is_neither_written_over_nor_forgotten(replica: Replica) -> None:
    replica.remember(Remember(key=KEY, title="t"))
    replica.damage()
    for command in (
        Remember(key=KEY),
        Update(key=KEY, title="x"),
        Forget(key=KEY),
        Forget(key=KEY, lapse=True),
    ):
        replica.refuses(Code.DATA_LOSS, "key", lambda command=command: replica.do(command))
    replica.refuses(Code.DATA_LOSS, "key", replica.recall)
    replica.refuses(Code.DATA_LOSS, "key", replica.history)


def test_a_refused_write_leaves_the_transaction_as_it_was(replica: Replica) -> None:
    """So many calls can share one transaction, and each is answered for itself."""
    good, bad = Remember(key=KEY, title="x"), Update(key=EntryKey("repo", "topic", "none"), title="x")
    alone = Replica()
    alone.remember(good)
    with replica.storage.transaction() as transaction:
        for command in (bad, bad):
            writes = transaction.writes
            with pytest.raises(Exception, match="key"):
                replica.node.update(transaction, command, START, START)
            assert transaction.writes == writes
        replica.node.remember(transaction, good, START, START)
    assert replica.dump() == alone.dump()


@pytest.mark.parametrize(
    "text",
    [
        "%2F/%25/%",
        "עברית ⁧mixed⁩ العربية",
        "🧠👩‍👩‍👧‍👦 𐍈𝄞",
        "line\nline\r\n\ttab\0nul",
        "e\u0301 and é differ",
        "\u2028\ufeff\uffff\U0010ffff",
        "語" * 21845,
    ],
)
def test_text_comes_back_as_it_was_given(replica: Replica, text: str) -> None:
    name = "".join(character for character in text[:15] if character >= " ")
    replica.remember(Remember(key=KEY, body=text, tags=(name,), add_links=links(**{name: text[:100]})))
    entry = replica.recall()
    assert (entry.body, entry.tags, entry.links) == (text, (name,), links(**{name: text[:100]}))
    replica.update(Update(key=KEY, remove_tags=(name,), remove_links=links(**{name: text[:100]})))
    entry = replica.recall()
    assert (entry.body, entry.tags, entry.links) == (text, (), ())
