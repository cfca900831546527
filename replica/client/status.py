"""What the calls of `Admin` answer, as values. Times are milliseconds since the Unix epoch, UTC.

None means: not measured, or it never happened. It is never written as 0. The comments in
`proto/ricordo/v1/admin.proto` say more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from replica.wire import admin_pb2 as pb

__all__ = [
    "Compacted",
    "Counts",
    "Digest",
    "EntryDigest",
    "HeldBy",
    "KeyRange",
    "PartDigest",
    "PeerOrigin",
    "PeerStatus",
    "RangeDigests",
    "Status",
    "Storage",
]


@dataclass(frozen=True, slots=True)
class Counts:
    """What the store holds, in keys."""

    live: int | None
    expired: int | None
    """Past their expiry and not yet purged."""
    tombstones: int | None
    registers: int | None
    """All of them."""
    concurrent: int | None
    """Live entries with more than one sibling."""
    damaged: int | None
    """Rows whose checksum fails."""

    @classmethod
    def of(cls, message: pb.Counts) -> Counts:
        """The counts that a message says."""
        return cls(
            live=message.live if message.HasField("live") else None,
            expired=message.expired if message.HasField("expired") else None,
            tombstones=message.tombstones if message.HasField("tombstones") else None,
            registers=message.registers if message.HasField("registers") else None,
            concurrent=message.concurrent if message.HasField("concurrent") else None,
            damaged=message.damaged if message.HasField("damaged") else None,
        )


@dataclass(frozen=True, slots=True)
class Storage:
    """Numbers of the storage engine."""

    engine: str
    """`lmdb` or `memory`."""
    format_version: int
    used_bytes: int | None
    map_bytes: int | None
    disk_free_bytes: int | None
    commits: int | None
    """Durable transactions since the start."""
    writes: int | None
    """The writes they held."""

    @classmethod
    def of(cls, message: pb.Storage) -> Storage:
        """The numbers that a message says."""
        return cls(
            engine=message.engine,
            format_version=message.format_version,
            used_bytes=message.used_bytes if message.HasField("used_bytes") else None,
            map_bytes=message.map_bytes if message.HasField("map_bytes") else None,
            disk_free_bytes=message.disk_free_bytes if message.HasField("disk_free_bytes") else None,
            commits=message.commits if message.HasField("commits") else None,
            writes=message.writes if message.HasField("writes") else None,
        )


class PeerOrigin(StrEnum):
    """How a replica came to know a peer."""

    UNKNOWN = "unknown"
    """In a way that this client does not know."""
    CONFIGURED = "configured"
    ADDED = "added"
    CONSUMER_ONLY = "consumer only"
    """It pulls from the replica and is not pulled from."""


_ORIGINS = {
    pb.PEER_ORIGIN_CONFIGURED: PeerOrigin.CONFIGURED,
    pb.PEER_ORIGIN_ADDED: PeerOrigin.ADDED,
    pb.PEER_ORIGIN_CONSUMER_ONLY: PeerOrigin.CONSUMER_ONLY,
}


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """A peer as the replica sees it."""

    cluster: str
    address: str
    origin: PeerOrigin
    connected: bool
    verdict: str | None
    """`TAIL`, `EMPTY`, `RECONCILE` or `REFUSED`."""
    reason: str | None
    """Of the verdict, in words."""
    cursor: int | None
    lag: int | None
    """The peer's changes beyond the cursor."""
    last_contact_ms: int | None
    skew_ms: int | None
    """The peer's clock minus the replica's."""
    last_error: str | None
    last_error_at_ms: int | None
    received_bytes: int | None
    sent_bytes: int | None
    acknowledged: int | None
    """The replica's sequence up to which the peer has everything."""
    received_changes: int | None
    applied_changes: int | None

    @classmethod
    def of(cls, message: pb.PeerStatus) -> PeerStatus:
        """The status that a message says."""
        return cls(
            cluster=message.cluster,
            address=message.address,
            origin=_ORIGINS.get(message.origin, PeerOrigin.UNKNOWN),
            connected=message.connected,
            verdict=message.verdict if message.HasField("verdict") else None,
            reason=message.reason if message.HasField("reason") else None,
            cursor=message.cursor if message.HasField("cursor") else None,
            lag=message.lag if message.HasField("lag") else None,
            last_contact_ms=message.last_contact_ms if message.HasField("last_contact_ms") else None,
            skew_ms=message.skew_ms if message.HasField("skew_ms") else None,
            last_error=message.last_error if message.HasField("last_error") else None,
            last_error_at_ms=message.last_error_at_ms if message.HasField("last_error_at_ms") else None,
            received_bytes=message.received_bytes if message.HasField("received_bytes") else None,
            sent_bytes=message.sent_bytes if message.HasField("sent_bytes") else None,
            acknowledged=message.acknowledged if message.HasField("acknowledged") else None,
            received_changes=message.received_changes if message.HasField("received_changes") else None,
            applied_changes=message.applied_changes if message.HasField("applied_changes") else None,
        )


@dataclass(frozen=True, slots=True)
class Status:
    """How a replica is."""

    cluster: str
    incarnation: bytes
    store_id: bytes
    version: str
    """Of Ricordo."""
    data_dir: str
    started_at_ms: int
    now_ms: int
    """The replica's clock when it answered."""
    listen_address: str
    replication_address: str | None
    sequence: int
    """The end of its change log."""
    counts: Counts
    storage: Storage
    peers: tuple[PeerStatus, ...]

    @classmethod
    def of(cls, message: pb.GetStatusResponse) -> Status:
        """The status that a message says."""
        return cls(
            cluster=message.cluster,
            incarnation=message.incarnation,
            store_id=message.store_id,
            version=message.version,
            data_dir=message.data_dir,
            started_at_ms=message.started_at_ms,
            now_ms=message.now_ms,
            listen_address=message.listen_address,
            replication_address=(
                message.replication_address if message.HasField("replication_address") else None
            ),
            sequence=message.sequence,
            counts=Counts.of(message.counts),
            storage=Storage.of(message.storage),
            peers=tuple(map(PeerStatus.of, message.peers)),
        )


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest of the entries live at a moment."""

    digest: bytes
    """32 bytes."""
    live: int
    at_ms: int
    cluster: str = field(default="", compare=False)
    """Whose it is. It makes no digest differ."""

    @classmethod
    def of(cls, message: pb.GetDigestResponse) -> Digest:
        """The digest that a message says."""
        return cls(message.digest, message.live, message.at_ms, message.cluster)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys from `start` on and before `stop`, in the byte order of unescaped components."""

    start: str = ""
    """A key. Empty: from the first one on."""
    stop: str = ""
    """A key. Empty: to the last one."""


@dataclass(frozen=True, slots=True)
class EntryDigest:
    """The digest of one entry."""

    key: str
    digest: bytes
    """32 bytes."""
    damaged: bool
    """The row cannot be read."""


@dataclass(frozen=True, slots=True)
class PartDigest:
    """The digest of a part of a range, or of a whole one."""

    range: KeyRange
    digest: bytes
    """32 bytes."""
    live: int
    damaged: int
    """Rows that cannot be read, and are covered as such."""
    entries: tuple[EntryDigest, ...]
    """Every live entry and damaged row by key, if that was asked for and they are not too many."""

    @classmethod
    def of(cls, message: pb.PartDigest) -> PartDigest:
        """The part that a message says."""
        return cls(
            range=KeyRange(message.range.start, message.range.stop),
            digest=message.digest,
            live=message.live,
            damaged=message.damaged,
            entries=tuple(EntryDigest(each.key, each.digest, each.damaged) for each in message.entries),
        )


@dataclass(frozen=True, slots=True)
class RangeDigests:
    """Digests of ranges as of a moment."""

    cluster: str
    """Whose they are."""
    at_ms: int
    parts: tuple[PartDigest, ...]
    """Of each range its parts, in the order of keys."""

    @classmethod
    def of(cls, message: pb.GetDigestResponse) -> RangeDigests:
        """The digests that a message says."""
        return cls(message.cluster, message.at_ms, tuple(map(PartDigest.of, message.parts)))


@dataclass(frozen=True, slots=True)
class HeldBy:
    """A member that a purge waits for."""

    cluster: str
    reason: str
    waiting: int | None
    """Registers that wait for it."""

    @classmethod
    def of(cls, message: pb.HeldBy) -> HeldBy:
        """The member that a message says."""
        return cls(message.cluster, message.reason, message.waiting if message.HasField("waiting") else None)


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction dropped, and what it had to leave."""

    purged_tombstones: int
    purged_expired: int
    waiting: int
    held_by: tuple[HeldBy, ...]

    @classmethod
    def of(cls, message: pb.CompactResponse) -> Compacted:
        """The result that a message says."""
        return cls(
            purged_tombstones=message.purged_tombstones,
            purged_expired=message.purged_expired,
            waiting=message.waiting,
            held_by=tuple(map(HeldBy.of, message.held_by)),
        )
