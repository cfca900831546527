"""What people see of a replica, its peers, the fleet's members, and what waits to be purged.

A value that was not measured is never shown as 0: in a table a dash stands for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replica.cli.sheet import Column, Fields, Listing, Part, Prose, Sheet
from replica.cli.times import format_span, format_time
from replica.cli.views import NOTHING
from replica.client import (
    Compacted,
    Counts,
    HeldBy,
    MemberStatus,
    PeerOrigin,
    PeerStatus,
    Purging,
    Status,
    Storage,
)

__all__ = ["PEER_COLUMNS", "compaction_sheet", "peer_row", "status_sheet"]

UNMEASURED = "not measured"

PEER_COLUMNS = (
    Column("cluster", style="cyan"),
    Column("address", whole=True),
    Column("from"),
    Column("state"),
    Column("lag", right=True),
    Column("behind", right=True),
    Column("skew", right=True),
)

_TRAFFIC_COLUMNS = (
    Column("cluster", style="cyan"),
    Column("last contact", right=True),
    Column("received", right=True),
    Column("sent", right=True),
    Column("changes", right=True),
    Column("new here", right=True),
    Column("it lacks", right=True),
)

_MEMBER_COLUMNS = (
    Column("cluster", style="cyan"),
    Column("state"),
    Column("last heard", right=True),
    Column("skew", right=True),
    Column("remarks", whole=True),
)


def status_sheet(status: Status) -> Sheet:
    """How a replica is, how it sees its peers, and what it knows of the fleet."""
    now = status.now_ms
    parts: list[Part] = [
        _about(status),
        _entries(status.counts, status.sequence),
        *_purging(status.purging, status.cluster, now),
        _disk(status.storage),
    ]
    if status.peers:
        parts.append(Listing(PEER_COLUMNS, tuple(peer_row(peer) for peer in status.peers), "peers"))
        rows = tuple(_traffic_row(peer, status.sequence, now) for peer in status.peers)
        parts.append(Listing(_TRAFFIC_COLUMNS, rows, "traffic with peers"))
    else:
        parts.append(Prose("none: add one with 'ricordo peers add CLUSTER=HOST:PORT'", "peers"))
    if status.members:
        peers = {peer.cluster for peer in status.peers}
        members = tuple(_member_row(member, member.cluster in peers, now) for member in status.members)
        parts.append(Listing(_MEMBER_COLUMNS, members, "members of the fleet"))
    troubles = tuple(_troubles(status))
    if troubles:
        parts.append(Fields(troubles, "what is wrong"))
    return Sheet(f"Ricordo {status.cluster}", tuple(parts))


def _about(status: Status) -> Fields:
    up = format_span(status.now_ms - status.started_at_ms)
    return Fields(
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


def _entries(counts: Counts, sequence: int) -> Fields:
    rows = [
        ("live", _count(counts.live)),
        ("expired, not yet purged", _count(counts.expired)),
        ("tombstones", _count(counts.tombstones)),
        ("keys in all", _count(counts.registers)),
        ("with concurrent writes", _count(counts.concurrent)),
        ("siblings", _count(counts.siblings)),
        ("damaged rows", _count(counts.damaged)),
    ]
    if counts.undecodable is not None:
        rows.append(("undecodable siblings", str(counts.undecodable)))
    return Fields((*rows, ("sequence", str(sequence))), "entries")


def _purging(purging: Purging, own: str, now: int) -> Iterator[Part]:
    yield Fields(
        (
            ("dead and waiting", str(purging.waiting)),
            ("oldest tombstone", _age(purging.oldest_tombstone_ms, now, "there is none")),
            ("oldest expired entry", _age(purging.oldest_expired_ms, now, "there is none")),
            (
                "last look",
                _age(purging.looked_at_ms, now, "not since the start: 'ricordo compact' looks now"),
            ),
        ),
        "purging",
    )
    if purging.held_by:
        yield _held(purging.held_by, own, "held back, by the last look")


def _held(held_by: Sequence[HeldBy], own: str | None, title: str) -> Listing:
    columns = (
        Column("waits for", style="cyan"),
        Column("entries", right=True),
        Column("because", whole=True),
    )
    rows = tuple(
        (
            f"{held.cluster} (this replica)" if held.cluster == own else held.cluster,
            _cell(held.waiting),
            held.reason,
        )
        for held in held_by
    )
    return Listing(columns, rows, title)


def _disk(storage: Storage) -> Fields:
    return Fields(
        (
            ("engine", f"{storage.engine}, format {storage.format_version}"),
            ("in use", _size(storage.used_bytes) or UNMEASURED),
            ("may grow to", _size(storage.map_bytes) or UNMEASURED),
            ("free on disk", _size(storage.disk_free_bytes) or UNMEASURED),
            ("transactions", _count(storage.commits)),
            ("writes in them", _count(storage.writes)),
        ),
        "storage",
    )


def peer_row(peer: PeerStatus) -> tuple[str, ...]:
    """A line for one peer, under :data:`PEER_COLUMNS`."""
    return (
        peer.cluster,
        peer.address or NOTHING,
        NOTHING if peer.origin is PeerOrigin.CONSUMER_ONLY else peer.origin,
        _state(peer),
        _cell(peer.lag),
        NOTHING if peer.lag_ms is None else format_span(peer.lag_ms),
        NOTHING if peer.skew_ms is None else f"{peer.skew_ms:+d} ms",
    )


def _state(peer: PeerStatus) -> str:
    if peer.connected:
        return f"connected, {peer.verdict}"
    if peer.origin is PeerOrigin.CONSUMER_ONLY:
        return "pulls from here" if peer.consuming else "pulled from here"
    return "REFUSED" if peer.verdict == "REFUSED" else "not connected"


def _traffic_row(peer: PeerStatus, sequence: int, now: int) -> tuple[str, ...]:
    return (
        peer.cluster,
        _age(peer.last_contact_ms, now, "never"),
        _size(peer.received_bytes) or NOTHING,
        _size(peer.sent_bytes) or NOTHING,
        _cell(peer.received_changes),
        _cell(peer.applied_changes),
        NOTHING if peer.acknowledged is None else str(max(0, sequence - peer.acknowledged)),
    )


def _member_row(member: MemberStatus, is_peer: bool, now: int) -> tuple[str, ...]:
    remarks = [
        *(() if is_peer else ("no peer of this replica",)),
        *(("must reconcile",) if member.must_reconcile else ()),
    ]
    return (
        member.cluster,
        member.state,
        _age(member.heard_ms, now, "never"),
        NOTHING if member.skew_ms is None else f"{member.skew_ms:+d} ms",
        ", ".join(remarks),
    )


def _troubles(status: Status) -> Iterator[tuple[str, str]]:
    """What somebody should look at."""
    for key in status.damaged_keys:
        yield "damaged row", key
    for peer in status.peers:
        if peer.faults:
            last = "" if peer.last_fault is None else f"; the last: {peer.last_fault}"
            yield peer.cluster, f"{peer.faults} times one write with two contents{last}"
        if peer.reason is not None and peer.verdict == "REFUSED":
            yield peer.cluster, peer.reason
        if peer.last_error is not None and not peer.connected:
            when = (
                ""
                if peer.last_error_at_ms is None
                else f" ({_age(peer.last_error_at_ms, status.now_ms, '')})"
            )
            yield peer.cluster, peer.last_error + when


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
        parts.append(_held(done.held_by, None, "held back"))
    return Sheet("Compaction", tuple(parts))


def _count(count: int | None) -> str:
    return UNMEASURED if count is None else str(count)


def _cell(count: int | None) -> str:
    return NOTHING if count is None else str(count)


def _age(at: int | None, now: int, never: str) -> str:
    return never if at is None else f"{format_span(max(0, now - at))} ago"


def _size(size: int | None) -> str | None:
    """About how much: three digits and a unit."""
    if size is None:
        return None
    for name, unit in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= unit:
            return f"{size / unit:.3g} {name}" if size < 999.5 * unit else f"{size / unit:.0f} {name}"
    return f"{size} B"
