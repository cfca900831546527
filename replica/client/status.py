"""What the calls of `Admin` answer, as values. Times are milliseconds since the Unix epoch, UTC.

None means: not measured, or it never happened. It is never written as 0. The comments in
`proto/ricordo/v1/admin.proto` say more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from replica.wire import admin_pb2 as pb

__all__ = [
    "Compacted",
    "Counts",
    "HeldBy",
    "MemberState",
    "MemberStatus",
    "PeerOrigin",
    "PeerStatus",
    "Purging",
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
    """Those with more than one sibling."""
    damaged: int | None
    """Rows whose checksum fails; unless the status is a full one, those that somebody came upon."""
    siblings: int | None
    """Writes that no other supersedes: one for each key, and more where they are concurrent."""
    undecodable: int | None
    """Siblings that the replica cannot decode; counted for a full status."""

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
            siblings=message.siblings if message.HasField("siblings") else None,
            undecodable=message.undecodable if message.HasField("undecodable") else None,
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
    """What they held: writes of clients, batches of peers, steps of purges."""

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
class Purging:
    """What is dead and cannot be dropped yet."""

    oldest_tombstone_ms: int | None
    """When the oldest removal was made of which the tombstone is still here. None: there is no tombstone."""
    oldest_expired_ms: int | None
    """The oldest expiry of the entries past theirs and still here. None: there is no such entry."""
    waiting: int
    """Tombstones, and entries past their expiry by `compaction.grace`."""
    looked_at_ms: int | None
    """When the replica last looked at everything that is dead. None: not since its start."""
    held_by: tuple[HeldBy, ...]
    """What was waited for then."""

    @classmethod
    def of(cls, message: pb.Purging) -> Purging:
        """What a message says."""
        return cls(
            oldest_tombstone_ms=(
                message.oldest_tombstone_ms if message.HasField("oldest_tombstone_ms") else None
            ),
            oldest_expired_ms=message.oldest_expired_ms if message.HasField("oldest_expired_ms") else None,
            waiting=message.waiting,
            looked_at_ms=message.looked_at_ms if message.HasField("looked_at_ms") else None,
            held_by=tuple(map(HeldBy.of, message.held_by)),
        )


class MemberState(StrEnum):
    """Whether purges wait for a member."""

    UNKNOWN = "unknown"
    """It is one that this client does not know."""
    ACTIVE = "active"
    """They do."""
    LAPSED = "lapsed"
    """Not any more: it has been silent for longer than `compaction.max_silence`."""
    RETIRED = "retired"
    """Never again."""


_STATES = {
    pb.MEMBER_STATE_ACTIVE: MemberState.ACTIVE,
    pb.MEMBER_STATE_LAPSED: MemberState.LAPSED,
    pb.MEMBER_STATE_RETIRED: MemberState.RETIRED,
}


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member of the fleet as the replica knows it, peer or not."""

    cluster: str
    state: MemberState
    """Purges wait for an active one, not for one that is lapsed (silent for too long) or retired."""
    heard_ms: int | None
    """When it was last heard, here or elsewhere; the replica's own downtime does not count."""
    skew_ms: int | None
    """Its clock minus the replica's."""
    incarnation: bytes | None
    """The newest that was heard of."""
    must_reconcile: bool
    """It was not waited for: its store is compared with the replica's when it pulls next."""

    @classmethod
    def of(cls, message: pb.MemberStatus) -> MemberStatus:
        """The status that a message says."""
        return cls(
            cluster=message.cluster,
            state=_STATES.get(message.state, MemberState.UNKNOWN),
            heard_ms=message.heard_ms if message.HasField("heard_ms") else None,
            skew_ms=message.skew_ms if message.HasField("skew_ms") else None,
            incarnation=message.incarnation if message.HasField("incarnation") else None,
            must_reconcile=message.must_reconcile,
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
    """The stream on which the replica pulls is open."""
    consuming: bool
    """A stream on which the peer pulls from the replica is open."""
    verdict: str | None
    """`TAIL`, `EMPTY`, `RECONCILE` or `REFUSED`."""
    reason: str | None
    """Of the verdict, in words."""
    cursor: int | None
    lag: int | None
    """The peer's changes that are not applied here."""
    lag_ms: int | None
    """For how long some change of the peer has been missing here: 0 while none is."""
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
    faults: int | None
    """Registers from it in which one write had other contents than here: some replica is broken."""
    last_fault: str | None

    @classmethod
    def of(cls, message: pb.PeerStatus) -> PeerStatus:
        """The status that a message says."""
        return cls(
            cluster=message.cluster,
            address=message.address,
            origin=_ORIGINS.get(message.origin, PeerOrigin.UNKNOWN),
            connected=message.connected,
            consuming=message.consuming,
            verdict=message.verdict if message.HasField("verdict") else None,
            reason=message.reason if message.HasField("reason") else None,
            cursor=message.cursor if message.HasField("cursor") else None,
            lag=message.lag if message.HasField("lag") else None,
            lag_ms=message.lag_ms if message.HasField("lag_ms") else None,
            last_contact_ms=message.last_contact_ms if message.HasField("last_contact_ms") else None,
            skew_ms=message.skew_ms if message.HasField("skew_ms") else None,
            last_error=message.last_error if message.HasField("last_error") else None,
            last_error_at_ms=message.last_error_at_ms if message.HasField("last_error_at_ms") else None,
            received_bytes=message.received_bytes if message.HasField("received_bytes") else None,
            sent_bytes=message.sent_bytes if message.HasField("sent_bytes") else None,
            acknowledged=message.acknowledged if message.HasField("acknowledged") else None,
            received_changes=message.received_changes if message.HasField("received_changes") else None,
            applied_changes=message.applied_changes if message.HasField("applied_changes") else None,
            faults=message.faults if message.HasField("faults") else None,
            last_fault=message.last_fault if message.HasField("last_fault") else None,
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
    damaged_keys: tuple[str, ...]
    """Keys whose rows are damaged, 100 at most."""
    purging: Purging
    storage: Storage
    peers: tuple[PeerStatus, ...]
    members: tuple[MemberStatus, ...]
    """Every other replica of the fleet that was ever heard of."""

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
            damaged_keys=tuple(message.damaged_keys),
            purging=Purging.of(message.purging),
            storage=Storage.of(message.storage),
            peers=tuple(map(PeerStatus.of, message.peers)),
            members=tuple(map(MemberStatus.of, message.members)),
        )


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
