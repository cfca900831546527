"""What people see of entries, histories, replicas and peers. A value that was not measured is never shown as
0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from replica.cli.sheet import Column, Fields, Listing, Part, Prose, Sheet
from replica.cli.times import format_span, format_time
from replica.client import Compacted, Entry, FieldValue, History, PeerStatus, Status

__all__ = [
    "PEER_COLUMNS",
    "SCAN_COLUMNS",
    "compaction_sheet",
    "entry_sheet",
    "expiry",
    "history_sheet",
    "peer_row",
    "scan_row",
    "status_sheet",
]

NOTHING = "—"
"""What stands for a value that is not there."""
UNMEASURED = "not measured"

SCAN_COLUMNS = (
    Column("topic", 12, whole=True, style="cyan"),
    Column("id", 20, whole=True, style="cyan"),
    Column("kind", least=8),
    Column("title", 26),
    Column("tags", 13, style="dim"),
    Column("expires", least=9),
)

PEER_COLUMNS = (
    Column("cluster", style="cyan"),
    Column("address"),
    Column("from"),
    Column("state"),
    Column("lag", right=True),
    Column("last contact", right=True),
    Column("clock skew", right=True),
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
        parts.append(_values("concurrent values", _concurrent(entry.concurrent)))
    return Sheet(entry.key, tuple(parts))


def history_sheet(history: History) -> Sheet:
    """Every value of every field that the replica still knows."""
    parts = []
    for name, field in history.fields.items():
        shown = () if field.shown is None else (("shown", field.shown),)
        rest = [("concurrent", value) for value in field.concurrent]
        rest += [("revision", value) for value in field.revisions]
        parts.append(_values(name, (*shown, *rest)))
    about = [("version", history.version)]
    if history.undecodable:
        about.append(("undecodable", str(history.undecodable)))
    return Sheet(history.key, (Fields(tuple(about)), *parts))


def _links(links: Mapping[str, Sequence[str]]) -> tuple[tuple[Column, ...], tuple[tuple[str, ...], ...]]:
    columns = (Column("relation", style="cyan"), Column("target"))
    return columns, tuple((relation, target) for relation in links for target in links[relation])


def _concurrent(fields: Mapping[str, Sequence[FieldValue]]) -> Iterator[tuple[str, FieldValue]]:
    for name, values in fields.items():
        for number, value in enumerate(values):
            yield f"{name} (shown)" if number == 0 else name, value


def _values(title: str, values: Iterable[tuple[str, FieldValue]]) -> Listing:
    columns = (Column(""), Column("cluster", style="cyan"), Column("written at"), Column("value"))
    rows = tuple(
        (label, value.cluster, format_time(value.written_at_ms), _value(value)) for label, value in values
    )
    return Listing(columns, rows, title)


def _value(value: FieldValue) -> str:
    if isinstance(value.value, int):
        return format_time(value.value)
    return value.value or "(empty)"


def status_sheet(status: Status) -> Sheet:
    """How a replica is, and how it sees its peers."""
    counts, storage = status.counts, status.storage
    up = format_span(status.now_ms - status.started_at_ms)
    about = Fields(
        (
            ("cluster", status.cluster),
            ("version", status.version),
            ("listens at", status.listen_address),
            ("replicates at", status.replication_address or "not served"),
            ("data", status.data_dir),
            ("up for", f"{up}, since {format_time(status.started_at_ms)}"),
            ("clock", format_time(status.now_ms)),
            ("incarnation", status.incarnation.hex()),
            ("store id", status.store_id.hex()),
        )
    )
    entries = Fields(
        (
            ("live", _count(counts.live)),
            ("with concurrent writes", _count(counts.concurrent)),
            ("expired, not yet purged", _count(counts.expired)),
            ("tombstones", _count(counts.tombstones)),
            ("keys in all", _count(counts.registers)),
            ("damaged rows", _count(counts.damaged)),
            ("sequence", str(status.sequence)),
        ),
        "entries",
    )
    disk = Fields(
        (
            ("engine", f"{storage.engine}, format {storage.format_version}"),
            ("in use", _size(storage.used_bytes)),
            ("may grow to", _size(storage.map_bytes)),
            ("free on disk", _size(storage.disk_free_bytes)),
            ("writes", _count(storage.writes)),
            ("transactions", _count(storage.commits)),
        ),
        "storage",
    )
    parts: list[Part] = [about, entries, disk]
    if status.peers:
        rows = tuple(peer_row(peer, status.now_ms) for peer in status.peers)
        parts.append(Listing(PEER_COLUMNS, rows, "peers"))
        troubles = tuple(
            (peer.cluster, trouble) for peer in status.peers for trouble in _troubles(peer, status.now_ms)
        )
        if troubles:
            parts.append(Fields(troubles, "what peers say"))
    else:
        parts.append(Prose("none: add one with 'ricordo peers add CLUSTER=HOST:PORT'", "peers"))
    return Sheet(f"Ricordo {status.cluster}", tuple(parts))


def peer_row(peer: PeerStatus, now_ms: int) -> tuple[str, ...]:
    """A line for one peer, under :data:`PEER_COLUMNS`; `now_ms` by the clock of the replica that answered."""
    heard = peer.last_contact_ms
    state = "connected" if peer.connected else "not connected"
    return (
        peer.cluster,
        peer.address or NOTHING,
        peer.origin,
        f"{state}, {peer.verdict}" if peer.verdict is not None else state,
        _count(peer.lag),
        "never" if heard is None else f"{format_span(max(0, now_ms - heard))} ago",
        UNMEASURED if peer.skew_ms is None else f"{peer.skew_ms:+d} ms",
    )


def _troubles(peer: PeerStatus, now_ms: int) -> Iterator[str]:
    if peer.reason is not None and peer.verdict == "REFUSED":
        yield peer.reason
    if peer.last_error is not None and not peer.connected:
        when = peer.last_error_at_ms
        yield peer.last_error + ("" if when is None else f" ({format_span(max(0, now_ms - when))} ago)")


def compaction_sheet(done: Compacted) -> Sheet:
    """What a compaction dropped, and why the rest had to stay."""
    parts: list[Part] = [
        Fields(
            (
                ("tombstones purged", str(done.purged_tombstones)),
                ("expired entries purged", str(done.purged_expired)),
                ("dead and waiting", str(done.waiting)),
            )
        )
    ]
    if done.held_by:
        columns = (Column("waits for", style="cyan"), Column("entries", right=True), Column("because"))
        rows = tuple((held.cluster, _count(held.waiting), held.reason) for held in done.held_by)
        parts.append(Listing(columns, rows, "held back"))
    return Sheet("Compaction", tuple(parts))


def _count(count: int | None) -> str:
    return UNMEASURED if count is None else str(count)


def _size(size: int | None) -> str:
    """About how much: three digits and a unit."""
    if size is None:
        return UNMEASURED
    for name, unit in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= unit:
            return f"{size / unit:.3g} {name}" if size < 999.5 * unit else f"{size / unit:.0f} {name}"
    return f"{size} B"
