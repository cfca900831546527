"""What people see of entries and their histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from replica.cli.sheet import Column, Fields, Listing, Part, Prose, Sheet
from replica.cli.times import format_span, format_time
from replica.client import Entry, FieldValue, History

__all__ = ["NOTHING", "SCAN_COLUMNS", "entry_sheet", "expiry", "history_sheet", "scan_row"]

NOTHING = "—"
"""What stands for a value that is not there."""

SCAN_COLUMNS = (
    Column("topic", 12, whole=True, style="cyan"),
    Column("id", 20, whole=True, style="cyan"),
    Column("kind", least=8),
    Column("title", 26, least=10),
    Column("tags", 13, least=4, style="dim"),
    Column("expires", least=9),
)

_VALUE_COLUMNS = (
    Column("cluster", style="cyan"),
    Column("written at"),
    Column("value", whole=True),
)


def expiry(expires_at_ms: int | None, remaining_seconds: int | None = None) -> str:
    """When an entry lapses, and how long that is."""
    if expires_at_ms is None:
        return "durable"
    left = "" if remaining_seconds is None else f" (in {format_span(remaining_seconds * 1000)})"
    return format_time(expires_at_ms) + left


def scan_row(entry: Entry) -> tuple[str, ...]:
    """A line for one entry, under :data:`SCAN_COLUMNS`."""
    remaining = entry.remaining_seconds
    return (
        entry.topic,
        entry.id,
        entry.kind or NOTHING,
        entry.title + (" (concurrent values)" if entry.concurrent else ""),
        " ".join(entry.tags),
        "durable" if remaining is None else f"in {format_span(remaining * 1000)}",
    )


def entry_sheet(entry: Entry) -> Sheet:
    """An entry with everything that is known of it."""
    rows = [
        ("kind", entry.kind or NOTHING),
        ("title", entry.title or NOTHING),
        ("author", entry.author or NOTHING),
        ("provenance", entry.provenance or NOTHING),
        ("created", NOTHING if entry.created_at_ms is None else format_time(entry.created_at_ms)),
        ("expires", expiry(entry.expires_at_ms, entry.remaining_seconds)),
        ("tags", ", ".join(entry.tags) or NOTHING),
        ("version", entry.version),
    ]
    if entry.sibling_count > 1:
        rows.append(("siblings", f"{entry.sibling_count}, written at the same time"))
    if entry.undecodable:
        rows.append(("undecodable", f"{entry.undecodable}, of a newer version or damaged: kept, not shown"))
    parts: list[Part] = [Fields(tuple(rows))]
    if entry.links:
        parts.append(Listing(*_links(entry.links), title="links"))
    if entry.body:
        parts.append(Prose(entry.body, "body"))
    if entry.concurrent:
        parts.append(Listing(*_concurrent(entry.concurrent), title="concurrent values"))
    return Sheet(entry.key, tuple(parts))


def history_sheet(history: History) -> Sheet:
    """Every value of every field that the replica still knows."""
    values = []
    for name, field in history.fields.items():
        values += [] if field.shown is None else [(name, "shown", field.shown)]
        values += [(name, "concurrent", value) for value in field.concurrent]
        values += [(name, "revision", value) for value in field.revisions]
    about = [("version", history.version)]
    if history.undecodable:
        about.append(("undecodable", str(history.undecodable)))
    columns = (Column("field"), Column(""), *_VALUE_COLUMNS)
    rows = tuple((name, state, *_value_cells(value)) for name, state, value in values)
    return Sheet(history.key, (Fields(tuple(about)), Listing(columns, rows, "values")))


def _links(links: Mapping[str, Sequence[str]]) -> tuple[tuple[Column, ...], tuple[tuple[str, ...], ...]]:
    columns = (Column("relation", style="cyan"), Column("target", whole=True))
    return columns, tuple((relation, target) for relation in links for target in links[relation])


def _concurrent(
    fields: Mapping[str, Sequence[FieldValue]],
) -> tuple[tuple[Column, ...], tuple[tuple[str, ...], ...]]:
    rows = tuple(
        (f"{name} (shown)" if number == 0 else name, *_value_cells(value))
        for name, values in fields.items()
        for number, value in enumerate(values)
    )
    return (Column("field"), *_VALUE_COLUMNS), rows


def _value_cells(value: FieldValue) -> tuple[str, str, str]:
    text = format_time(value.value) if isinstance(value.value, int) else value.value or "(empty)"
    return value.cluster, format_time(value.written_at_ms), text
