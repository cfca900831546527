"""An entry as a reader sees it (DESIGN sections 3 and 10).

Everything here is a function of a register and ``now``, so replicas with the same siblings answer the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crdt.dot import Dot, Millis
from crdt.expiry import remaining_seconds
from crdt.fold import fold, version
from crdt.key import EntryKey
from crdt.record import DotStore, Link, Record, Value, concurrent, shown
from crdt.register import Register
from replica.core.commands import TEXT_FIELDS, Links

__all__ = [
    "FIELDS",
    "ConcurrentField",
    "Entry",
    "FieldHistory",
    "FieldValue",
    "History",
    "grouped_links",
    "read_entry",
    "read_history",
    "shown_text",
    "shown_time",
    "size_bound",
]

FIELDS = ("kind", *TEXT_FIELDS, "created_at")
"""The fields of an entry, in the order in which they are reported."""


@dataclass(frozen=True, slots=True)
class FieldValue:
    """One value of one field, and the write that put it there."""

    value: str | int
    """An integer, milliseconds since the Unix epoch, for ``created_at``; text for every other field."""
    cluster: str
    """The cluster that wrote it."""
    written_at: Millis
    """By that cluster's clock."""


@dataclass(frozen=True, slots=True)
class ConcurrentField:
    """A field of which concurrent writes hold different values."""

    field: str
    values: tuple[FieldValue, ...]
    """At least two, all different: the one shown, then the others in the order in which they would have won.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry, or (``exists`` false, everything but the key empty) its absence."""

    key: EntryKey
    exists: bool
    kind: str = ""
    """Empty when no payload decodes."""
    title: str = ""
    body: str = ""
    author: str = ""
    provenance: str = ""
    created_at: Millis | None = None
    """None when no payload decodes."""
    tags: tuple[str, ...] = ()
    """In byte order."""
    links: tuple[Links, ...] = ()
    """In byte order of relations, and of targets within one."""
    expires_at: Millis | None = None
    """None: durable."""
    remaining_seconds: int | None = None
    """What remains until then, rounded up: never 0."""
    version: str = ""
    sibling_count: int = 0
    """Writes that no other supersedes, tombstones included."""
    concurrent: tuple[ConcurrentField, ...] = ()
    """In the order of :data:`FIELDS`."""
    undecodable: int = 0
    """Live siblings whose payload does not decode here."""


@dataclass(frozen=True, slots=True)
class FieldHistory:
    """What is known of one field."""

    field: str
    shown: FieldValue | None
    """None when only revisions are left."""
    concurrent: tuple[FieldValue, ...]
    """The values beside the one shown and different from it, in the order in which they would have won."""
    revisions: tuple[FieldValue, ...]
    """Values that lost when a later write settled a difference, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The fields of an entry with everything they hold, or (``exists`` false) its absence."""

    key: EntryKey
    exists: bool
    version: str = ""
    fields: tuple[FieldHistory, ...] = ()
    """Those that hold a value or a revision, in the order of :data:`FIELDS`."""
    undecodable: int = 0


def _fits(field: str, value: Value) -> bool:
    """Whether the value is of the type this version shows. A newer version may put another; it is kept, not
    shown.
    """
    return isinstance(value.value, int if field == "created_at" else str)


def _known(field: str, record: Record) -> DotStore:
    store = record.fields.get(field, {})
    if all(_fits(field, value) for value in store.values()):
        return store
    return {dot: value for dot, value in store.items() if _fits(field, value)}


def shown_text(record: Record, field: str) -> str:
    """The value of a text field or the kind that a reader sees; empty when there is none."""
    store = _known(field, record)
    value = shown(store).value if store else ""
    return value if isinstance(value, str) else ""


def shown_time(record: Record, field: str = "created_at") -> Millis | None:
    """The value of a time field that a reader sees; none when there is none."""
    store = _known(field, record)
    value = shown(store).value if store else None
    return Millis(value) if isinstance(value, int) else None


def _field_value(dot: Dot, value: Value) -> FieldValue:
    assert isinstance(value.value, str | int)
    return FieldValue(value.value, dot.actor.cluster, value.written_at)


def _different(store: DotStore) -> tuple[FieldValue, ...]:
    """Every different value of a field, the shown one first; of several writes of one value, the one that
    would have won.
    """
    values: dict[object, FieldValue] = {}
    for dot, value in concurrent(store) if store else ():
        values.setdefault(value.value, _field_value(dot, value))
    return tuple(values.values())


def grouped_links(links: Iterable[Link]) -> tuple[Links, ...]:
    """Link targets by relation, in byte order."""
    targets: dict[str, list[str]] = {}
    for link in sorted(links):
        targets.setdefault(link.relation, []).append(link.target)
    return tuple(Links(relation, tuple(of_relation)) for relation, of_relation in targets.items())


def read_entry(key: EntryKey, register: Register, now: Millis) -> Entry:
    """The entry that a register holds at ``now``."""
    folded = fold(register, now)
    if folded is None:
        return Entry(key=key, exists=False)
    record, expires_at = folded.record, folded.life.expires_at
    stores = {field: store for field in FIELDS if len(store := _known(field, record)) > 1}
    return Entry(
        key=key,
        exists=True,
        kind=shown_text(record, "kind"),
        title=shown_text(record, "title"),
        body=shown_text(record, "body"),
        author=shown_text(record, "author"),
        provenance=shown_text(record, "provenance"),
        created_at=shown_time(record),
        tags=tuple(sorted(record.tags)),
        links=grouped_links(record.links),
        expires_at=expires_at,
        remaining_seconds=None if expires_at is None else remaining_seconds(expires_at, now),
        version=version(register),
        sibling_count=len(register),
        concurrent=tuple(
            ConcurrentField(field, values) for field, store in stores.items() if (values := _different(store))
        ),
        undecodable=len(folded.undecodable),
    )


def _revisions(record: Record) -> Mapping[str, tuple[FieldValue, ...]]:
    lost: dict[str, list[tuple[Millis, Dot, FieldValue]]] = {}
    for key, store in record.revisions.items():
        value = shown(store)
        if _fits(key.field, value):
            place = (value.written_at, key.dot, _field_value(key.dot, value))
            lost.setdefault(key.field, []).append(place)
    return {
        field: tuple(value for _, _, value in sorted(values, key=lambda place: place[:2], reverse=True))
        for field, values in lost.items()
    }


def read_history(key: EntryKey, register: Register, now: Millis) -> History:
    """Everything that the fields of an entry hold at ``now``."""
    folded = fold(register, now)
    if folded is None:
        return History(key=key, exists=False)
    revisions = _revisions(folded.record)
    fields: list[FieldHistory] = []
    for field in FIELDS:
        store = _known(field, folded.record)
        if store:
            best = shown(store)
            dot = max(dot for dot, value in store.items() if value == best)
            fields.append(
                FieldHistory(field, _field_value(dot, best), _different(store)[1:], revisions.get(field, ()))
            )
        elif field in revisions:
            fields.append(FieldHistory(field, None, (), revisions[field]))
    return History(
        key=key,
        exists=True,
        version=version(register),
        fields=tuple(fields),
        undecodable=len(folded.undecodable),
    )


def size_bound(entry: Entry) -> int:
    """At most how many bytes the entry takes on the wire."""
    texts = [
        str(entry.key),
        *(entry.key.repo_id, entry.key.topic, entry.key.id),
        *(entry.kind, entry.title, entry.body, entry.author, entry.provenance, entry.version),
        *entry.tags,
    ]
    for links in entry.links:
        texts += (links.relation, *links.targets)
    count = len(texts) + len(entry.links)
    for field in entry.concurrent:
        texts.append(field.field)
        for value in field.values:
            texts += (value.cluster, value.value if isinstance(value.value, str) else "")
        count += 4 * len(field.values) + 2
    return sum(len(text.encode()) for text in texts) + _ELEMENT_BYTES * (count + _FIXED_ELEMENTS)


_ELEMENT_BYTES = 12
"""More than the tag of a field and a length or a 64-bit number take on the wire."""

_FIXED_ELEMENTS = 8
"""Numbers and flags that every entry has."""
