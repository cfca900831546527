"""What an operator sees of a replica, put together from the store and from what this process knows.

What was not measured, or never happened, is left out; it is never 0.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from crdt.dot import Millis
from replica import __version__
from replica.core.counts import Counting, Counts, get_counts
from replica.core.damage import damaged_keys
from replica.core.member_rows import Member, members
from replica.core.membership import is_lapsed
from replica.core.purge import Purged, oldest_expired, oldest_tombstone, waiting
from replica.core.rows import Cursor, get_cursor, get_sequence
from replica.core.storage import Snapshot
from replica.server.compaction import Compactor
from replica.server.healing import Healer
from replica.server.peer_book import Origin, Peer, PeerBook
from replica.server.runtime import Runtime
from replica.storage.lmdb_directory import STORAGE_FORMAT
from replica.wire import admin_pb2 as pb
from replica.wire.answers import key_text

__all__ = ["held_messages", "status_message"]

_DAMAGED_MOST = 100
"""Damaged keys that a status names."""

_ORIGINS: Mapping[Origin, pb.PeerOrigin.ValueType] = {
    Origin.CONFIGURED: pb.PEER_ORIGIN_CONFIGURED,
    Origin.ADDED: pb.PEER_ORIGIN_ADDED,
    Origin.CONSUMER_ONLY: pb.PEER_ORIGIN_CONSUMER_ONLY,
}


@dataclass(frozen=True, slots=True)
class _Stored:
    """What one state of the store says."""

    sequence: int
    counts: Counts
    damaged: tuple[bytes, ...]
    members: tuple[Member, ...]
    cursors: Mapping[str, Cursor | None]
    oldest_tombstone: Millis | None
    oldest_expired: Millis | None
    waiting: int


def _read(snapshot: Snapshot, now: Millis, grace: Millis, clusters: Iterable[str]) -> _Stored:
    return _Stored(
        sequence=get_sequence(snapshot),
        counts=get_counts(snapshot, now),
        damaged=damaged_keys(snapshot),
        members=tuple(members(snapshot)),
        cursors={cluster: get_cursor(snapshot, cluster) for cluster in clusters},
        oldest_tombstone=oldest_tombstone(snapshot),
        oldest_expired=oldest_expired(snapshot, now),
        waiting=waiting(snapshot, now, grace),
    )


async def status_message(
    runtime: Runtime, book: PeerBook, compactor: Compactor, healer: Healer, *, full: bool
) -> pb.GetStatusResponse:
    """The status now, but for the addresses. With ``full`` every row is read, and damage is passed on."""
    walked = Counting(runtime.clock()) if full else None
    if walked is not None:
        await runtime.walk_aside(walked)
        healer.found(walked.damaged)
    now, compaction = runtime.clock(), runtime.config.compaction
    clusters = [peer.cluster for peer in book]
    stored = await runtime.read_at_once(lambda snapshot: _read(snapshot, now, compaction.grace, clusters))
    if walked is not None:
        stored = replace(stored, counts=walked.counts, damaged=tuple(walked.damaged))
    stats = await asyncio.to_thread(runtime.storage.stats)
    disk = await asyncio.to_thread(shutil.disk_usage, runtime.config.data_dir)
    identity, counts, looked = runtime.identity, stored.counts, compactor.looked
    return pb.GetStatusResponse(
        cluster=identity.cluster,
        incarnation=identity.incarnation,
        store_id=identity.store_id,
        version=__version__,
        data_dir=str(runtime.config.data_dir.absolute()),
        started_at_ms=runtime.started_at,
        now_ms=now,
        sequence=stored.sequence,
        counts=pb.Counts(
            live=counts.live,
            expired=counts.expired,
            tombstones=counts.tombstones,
            registers=counts.registers,
            concurrent=counts.concurrent,
            damaged=counts.damaged,
            siblings=counts.siblings,
            undecodable=counts.undecodable,
        ),
        storage=pb.Storage(
            engine="lmdb",
            format_version=STORAGE_FORMAT,
            used_bytes=stats.used_bytes,
            map_bytes=stats.map_bytes,
            disk_free_bytes=disk.free,
            commits=runtime.commits.transactions,
            writes=runtime.commits.writes,
        ),
        peers=[_peer_message(peer, stored.cursors.get(peer.cluster), now) for peer in book],
        purging=pb.Purging(
            oldest_tombstone_ms=stored.oldest_tombstone,
            oldest_expired_ms=stored.oldest_expired,
            waiting=stored.waiting,
            looked_at_ms=None if looked is None else looked.at,
            held_by=() if looked is None else held_messages(looked.purged),
        ),
        members=[_member_message(member, now, compaction.max_silence) for member in stored.members],
        damaged_keys=map(key_text, stored.damaged[:_DAMAGED_MOST]),
    )


def held_messages(purged: Purged) -> list[pb.HeldBy]:
    """For whom a purge waits, and why, by member."""
    held = sorted(purged.held.items(), key=lambda each: (each[0][0], each[0][1].name))
    return [pb.HeldBy(cluster=cluster, reason=hold.value, waiting=count) for (cluster, hold), count in held]


def _member_message(member: Member, now: Millis, max_silence: Millis) -> pb.MemberStatus:
    if member.retired:
        state = pb.MEMBER_STATE_RETIRED
    else:
        state = pb.MEMBER_STATE_LAPSED if is_lapsed(member, now, max_silence) else pb.MEMBER_STATE_ACTIVE
    return pb.MemberStatus(
        cluster=member.cluster,
        state=state,
        heard_ms=None if member.said_at is None else member.heard,
        skew_ms=member.skew,
        incarnation=None if member.known is None else member.known.incarnation,
        must_reconcile=member.listed > 0,
    )


def _peer_message(peer: Peer, cursor: Cursor | None, now: Millis) -> pb.PeerStatus:
    return pb.PeerStatus(
        cluster=peer.cluster,
        address=peer.address,
        origin=_ORIGINS[peer.origin],
        connected=peer.connected,
        verdict=peer.verdict,
        reason=peer.reason,
        cursor=None if cursor is None else cursor.sequence,
        lag=peer.lag,
        lag_ms=peer.lag_time(now),
        last_contact_ms=peer.last_contact,
        skew_ms=peer.skew,
        last_error=peer.last_error,
        last_error_at_ms=peer.last_error_at,
        received_bytes=peer.received_bytes,
        sent_bytes=peer.sent_bytes,
        acknowledged=peer.acknowledged,
        received_changes=peer.received_changes,
        applied_changes=peer.applied_changes,
        consuming=peer.consuming,
        faults=peer.faults,
        last_fault=peer.last_fault,
    )
