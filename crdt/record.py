"""The memory record inside a payload: a causal CRDT (DESIGN section 3).

A record is four maps of *dot stores* under one causal context. A dot store holds one element (the value of a
field, a tag, a link target, a revision) and says which writes put it there. The join of two records keeps a
dot that both have, or that the side lacking it has never seen: an element that one side lacks and has seen
was removed there (Almeida, Shoker, Baquero, "Delta state replicated data types", 2018). There are no
tombstones inside, and adds win over concurrent removes.

A record is immutable; an edit gives a new one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple, TypeVar

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.dot import Dot, Millis

__all__ = [
    "EMPTY_RECORD",
    "REVISIONS_MAX",
    "REVISION_BYTES_MAX",
    "DotStore",
    "Edit",
    "Link",
    "Record",
    "RevisionKey",
    "Scalar",
    "Value",
    "concurrent",
    "edited",
    "join_records",
    "shown",
]

REVISIONS_MAX = 32
"""How many revisions a write leaves behind."""

REVISION_BYTES_MAX = 128 * 1024
"""How many bytes of revision values a write leaves behind."""

Scalar = str | int | bytes | None
"""What a field can hold. Fields that this version does not know are kept and merged like any other."""

_Element = TypeVar("_Element", bound=Hashable)


class Value(NamedTuple):
    """What one write put: a field's value (none for a tag or link, whose value is its name), and the writer's
    clock then.
    """

    value: Scalar
    written_at: Millis


DotStore = Mapping[Dot, Value]
"""The writes that put an element there and that no known write has removed. Never empty inside a record."""


class Link(NamedTuple):
    """A link target under its relation."""

    relation: str
    target: str


class RevisionKey(NamedTuple):
    """A losing value's place: its field, and the dot of the write that had put it there."""

    field: str
    dot: Dot


@dataclass(frozen=True, slots=True)
class Record:
    """One memory record."""

    context: Clock = EMPTY_CLOCK
    """The dots of this key that were folded into the record, its own included."""
    fields: Mapping[str, DotStore] = field(default_factory=dict)
    """Several dots in one store: concurrent values."""
    tags: Mapping[str, DotStore] = field(default_factory=dict)
    links: Mapping[Link, DotStore] = field(default_factory=dict)
    revisions: Mapping[RevisionKey, DotStore] = field(default_factory=dict)
    """Values that lost when a field was collapsed: the dots are those of the collapsing writes, ``Value`` is
    the losing one.
    """


EMPTY_RECORD = Record()
"""The record that holds nothing and has seen nothing: the bottom of the lattice."""


@dataclass(frozen=True, slots=True)
class Edit:
    """What one write asks of the record. The sets of what is added and what is removed are disjoint."""

    fields: Mapping[str, Scalar] = field(default_factory=dict)
    add_tags: frozenset[str] = frozenset()
    remove_tags: frozenset[str] = frozenset()
    add_links: frozenset[Link] = frozenset()
    remove_links: frozenset[Link] = frozenset()


def _rank(entry: tuple[Dot, Value]) -> tuple[int, Dot]:
    """Of concurrent values the later ``written_at`` wins, then the greater dot."""
    dot, value = entry
    return (value.written_at, dot)


def shown(store: DotStore) -> Value:
    """The value of a field that a reader sees."""
    if len(store) == 1:
        return next(iter(store.values()))
    return max(store.items(), key=_rank)[1]


def concurrent(store: DotStore) -> tuple[tuple[Dot, Value], ...]:
    """Every concurrent value, the shown one first; empty when all writes put the same value."""
    if len(store) == 1 or len({value.value for value in store.values()}) == 1:
        return ()
    return tuple(sorted(store.items(), key=_rank, reverse=True))


def _weight(value: Value) -> tuple[int, str, str]:
    """A total order over values under one dot, for the case that a broken replica made two."""
    return (value.written_at, type(value.value).__name__, repr(value.value))


def _join_maps(
    a: Mapping[_Element, DotStore], b: Mapping[_Element, DotStore], seen_by_a: Clock, seen_by_b: Clock
) -> dict[_Element, DotStore]:
    out: dict[_Element, DotStore] = {}
    for element in a.keys() | b.keys():
        mine, theirs = a.get(element, {}), b.get(element, {})
        store = {dot: value for dot, value in mine.items() if dot in theirs or not seen_by_b.has(dot)}
        for dot, value in theirs.items():
            if dot in mine:
                if mine[dot] != value:
                    store[dot] = max(mine[dot], value, key=_weight)
            elif not seen_by_a.has(dot):
                store[dot] = value
        if store:
            out[element] = store
    return out


def _join(a: Record, b: Record) -> Record:
    if a == b:
        return a
    return Record(
        context=a.context.join(b.context),
        fields=_join_maps(a.fields, b.fields, a.context, b.context),
        tags=_join_maps(a.tags, b.tags, a.context, b.context),
        links=_join_maps(a.links, b.links, a.context, b.context),
        revisions=_join_maps(a.revisions, b.revisions, a.context, b.context),
    )


def join_records(*records: Record) -> Record:
    """The join of any number of records: commutative, associative, idempotent; of none, the empty record."""
    return reduce(_join, records) if records else EMPTY_RECORD


def edited(record: Record, edit: Edit, dot: Dot, written_at: Millis) -> Record:
    """The record after one write, ``dot`` being the write's own. The caller has put the dot into the record's
    context. An empty edit changes nothing, whatever the number of revisions.
    """
    if edit == Edit():
        return record
    put_fields = {name: {dot: Value(value, written_at)} for name, value in edit.fields.items()}
    put_tags = {tag: {dot: Value(None, written_at)} for tag in edit.add_tags}
    put_links = {link: {dot: Value(None, written_at)} for link in edit.add_links}
    losing = {
        RevisionKey(name, losing_dot): {dot: value}
        for name, new in edit.fields.items()
        for losing_dot, value in concurrent(record.fields.get(name, {dot: Value(new, written_at)}))
        if value.value != new
    }
    return Record(
        context=record.context,
        fields={**record.fields, **put_fields},
        tags={
            **{tag: store for tag, store in record.tags.items() if tag not in edit.remove_tags},
            **put_tags,
        },
        links={
            **{link: store for link, store in record.links.items() if link not in edit.remove_links},
            **put_links,
        },
        revisions=_newest({**record.revisions, **losing}),
    )


def _newest(revisions: Mapping[RevisionKey, DotStore]) -> Mapping[RevisionKey, DotStore]:
    """The newest revisions, within both bounds. Only a write may cut: inside the join a cut would not be
    associative.
    """
    newest = sorted(
        revisions.items(),
        key=lambda entry: (shown(entry[1]).written_at, entry[0].dot, entry[0].field),
        reverse=True,
    )
    room = REVISION_BYTES_MAX
    out: dict[RevisionKey, DotStore] = {}
    for key, store in newest[:REVISIONS_MAX]:
        value = shown(store).value
        room -= (
            len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else 8
        )
        if room < 0:
            break
        out[key] = store
    return out
