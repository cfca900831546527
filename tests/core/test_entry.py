"""What a reader is shown of an entry, and of its past."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import END_OF_TIME, Links, Remember, Update
from replica.core.entry import ConcurrentField, FieldValue, read_entry, size_bound
from replica.wire import memory_pb2
from tests.core.one_replica import HOME, KEY, START, Replica, links, sibling


def values(*rows: tuple[str | int, str, int]) -> tuple[FieldValue, ...]:
    return tuple(FieldValue(value, cluster, Millis(START + at)) for value, cluster, at in rows)


def test_absence_is_no_error(replica: Replica) -> None:
    entry = replica.recall()
    assert (entry.key, entry.exists, entry.version, entry.sibling_count) == (KEY, False, "", 0)
    assert (replica.history().exists, replica.history().fields) == (False, ())


def test_concurrent_values_come_with_who_wrote_them_and_when(replica: Replica) -> None:
    replica.arrive(
        sibling("ap", fields={"title": "a", "body": "b1"}, written_at=START + 1),
        sibling("eu", fields={"title": "e", "body": "b1"}, written_at=START + 3),
        sibling("us", fields={"title": "u", "body": "b2"}, written_at=START + 2),
    )
    entry = replica.recall()
    assert (entry.title, entry.body, entry.sibling_count) == ("e", "b1", 3)
    assert entry.concurrent == (
        ConcurrentField("title", values(("e", "eu", 3), ("u", "us", 2), ("a", "ap", 1))),
        ConcurrentField("body", values(("b1", "eu", 3), ("b2", "us", 2))),
        ConcurrentField(
            "created_at", values((START + 3, "eu", 3), (START + 2, "us", 2), (START + 1, "ap", 1))
        ),
    )


def test_of_writes_at_one_time_the_greater_dot_is_shown(replica: Replica) -> None:
    replica.arrive(sibling("us", fields={"title": "u"}), sibling("eu", fields={"title": "e"}))
    assert replica.recall().title == "u"


def test_a_cleared_field_is_a_value_like_any_other(replica: Replica) -> None:
    replica.arrive(
        sibling("eu", fields={"title": ""}, written_at=START + 1), sibling("us", fields={"title": "u"})
    )
    entry = replica.recall()
    assert entry.title == ""
    assert entry.concurrent[0].values == values(("", "eu", 1), ("u", "us", 0))


def test_equal_values_and_tags_are_no_conflict(replica: Replica) -> None:
    replica.arrive(sibling("eu", fields={"title": "t"}, tags=("a", "b")))
    replica.arrive(sibling("us", fields={"title": "t"}, tags=("b", "c")))
    entry = replica.recall()
    assert (entry.concurrent, entry.tags, entry.sibling_count) == ((), ("a", "b", "c"), 2)


def test_what_this_version_does_not_know_is_kept_and_not_shown(replica: Replica) -> None:
    replica.arrive(sibling("eu", fields={"mood": "sunny", "title": 5, "body": b"bytes", "author": "a"}))
    entry = replica.recall()
    assert (entry.title, entry.body, entry.author, entry.concurrent) == ("", "", "a", ())
    assert [field.field for field in replica.history().fields] == ["kind", "author", "created_at"]
    before = replica.register()
    replica.update(Update(key=KEY, author="b"))
    assert b"sunny" in before[0].payload
    assert b"sunny" in replica.register()[0].payload


def test_order_is_byte_order(replica: Replica) -> None:
    names = ("\U0001f9e0", "z", "é", "\uffff", "Z", "a")
    replica.remember(Remember(key=KEY, tags=names, add_links=tuple(Links(name, names) for name in names)))
    entry = replica.recall()
    expected = tuple(sorted(names, key=str.encode))
    assert entry.tags == expected
    assert entry.links == tuple(Links(name, expected) for name in expected)


def test_history_shows_what_lost_when_a_difference_was_settled(replica: Replica) -> None:
    replica.arrive(
        sibling("eu", fields={"title": "e"}, written_at=START - 3),
        sibling("us", fields={"title": "u"}, written_at=START - 2),
    )
    replica.update(Update(key=KEY, title="settled"))
    replica.arrive(sibling("ap", fields={"title": "p"}, written_at=START + 1))
    history = replica.history()
    assert [field.field for field in history.fields] == ["kind", "title", "created_at"]
    title = history.fields[1]
    assert title.shown == FieldValue("p", "ap", Millis(START + 1))
    assert title.concurrent == (FieldValue("settled", HOME.cluster, START),)
    assert title.revisions == values(("u", "us", -2), ("e", "eu", -3))
    assert history.version == replica.recall().version


def test_a_plain_edit_leaves_no_revision(replica: Replica) -> None:
    replica.remember(Remember(key=KEY, title="a"))
    replica.update(Update(key=KEY, title="b"))
    assert all(not field.revisions for field in replica.history().fields)


def test_an_edit_that_had_seen_the_value_wins_whatever_the_clocks_say(replica: Replica) -> None:
    replica.now = Millis(START + 10**9)
    replica.remember(Remember(key=KEY, title="from the future"))
    replica.now = START
    replica.update(Update(key=KEY, title="later"))
    assert (replica.recall().title, replica.recall().concurrent) == ("later", ())


TEXT = st.text(max_size=30)
NAMES = st.lists(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=9), max_size=4)


@given(TEXT, TEXT, NAMES, NAMES)
def test_the_size_bound_covers_what_goes_over_the_wire(
    title: str, body: str, tags: list[str], targets: list[str]
) -> None:
    replica = Replica()
    replica.arrive(sibling("eu", fields={"title": title}), sibling("us", fields={"title": body}))
    replica.update(
        Update(
            key=KEY,
            body=body,
            add_tags=tuple(tags),
            add_links=links(r=tuple(targets)) if targets else (),
        )
    )
    replica.arrive(sibling("ap", fields={"title": title, "body": title}, expires_at=START + 1))
    entry = read_entry(KEY, replica.register(), replica.now)
    message = memory_pb2.Entry(
        key=str(entry.key),
        exists=True,
        repo_id=entry.key.repo_id,
        topic=entry.key.topic,
        id=entry.key.id,
        kind=entry.kind,
        title=entry.title,
        body=entry.body,
        author=entry.author,
        provenance=entry.provenance,
        created_at_ms=entry.created_at,
        tags=entry.tags,
        links=[memory_pb2.Link(relation=link.relation, targets=link.targets) for link in entry.links],
        expires_at_ms=END_OF_TIME,
        remaining_seconds=2**62,
        version=entry.version,
        sibling_count=entry.sibling_count,
        concurrent=[
            memory_pb2.ConcurrentField(
                field=field.field, values=[field_value(value) for value in field.values]
            )
            for field in entry.concurrent
        ],
        undecodable=2**31,
    )
    in_page = memory_pb2.ScanResponse(entries=[message])
    assert in_page.ByteSize() <= size_bound(entry) <= 2 * in_page.ByteSize() + 1000


def field_value(value: FieldValue) -> memory_pb2.FieldValue:
    out = memory_pb2.FieldValue(cluster=value.cluster, written_at_ms=value.written_at)
    if isinstance(value.value, str):
        out.text = value.value
    else:
        out.time_ms = value.value
    return out


def test_a_key_with_odd_characters_is_an_entry_of_its_own(replica: Replica) -> None:
    keys = [EntryKey.make(*parts) for parts in (("a/b", "c", "d"), ("a", "b/c", "d"), ("a%2Fb", "c", "d"))]
    for at, key in enumerate(keys):
        replica.remember(Remember(key=key, body=str(at)))
    assert [replica.recall(key).body for key in keys] == ["0", "1", "2"]
    assert replica.repos() == {"a": 1, "a%2Fb": 1, "a/b": 1}
