"""The service `ricordo.v1.Admin`: what an operator asks of one replica."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from typing import TypeAlias

from google.protobuf.message import Message
from grpc.aio import ServicerContext

from crdt.dot import Millis
from replica import __version__
from replica.config.addresses import InvalidAddress, check_address
from replica.core.counts import Counting
from replica.core.digest import Digesting
from replica.core.errors import Code, Refused
from replica.core.membership import configure
from replica.core.peers import add_peer, remove_peer
from replica.core.purge import explain
from replica.core.range_digest import digest_ranges
from replica.core.rows import Cursor, get_cursor, get_sequence
from replica.core.scope import check_scope
from replica.core.storage import Transaction
from replica.logs import logger
from replica.server.compaction import Compactor
from replica.server.peer_book import Origin, Peer, PeerBook
from replica.server.peers import Peers
from replica.server.runtime import Runtime
from replica.storage.lmdb_directory import STORAGE_FORMAT
from replica.wire import admin_pb2 as pb
from replica.wire.admin_pb2_grpc import AdminServicer
from replica.wire.digests import key_ranges, part_message

__all__ = ["AdminService"]

Context: TypeAlias = ServicerContext[Message, Message]

_ORIGINS: Mapping[Origin, pb.PeerOrigin.ValueType] = {
    Origin.CONFIGURED: pb.PEER_ORIGIN_CONFIGURED,
    Origin.ADDED: pb.PEER_ORIGIN_ADDED,
    Origin.CONSUMER_ONLY: pb.PEER_ORIGIN_CONSUMER_ONLY,
}

_log = logger()


class AdminService(AdminServicer):
    """How the replica is, and its peers."""

    def __init__(self, runtime: Runtime, book: PeerBook, peers: Peers, compactor: Compactor) -> None:
        self._runtime = runtime
        self._book = book
        self._peers = peers
        self._compactor = compactor
        self.listen_address = ""
        """As bound; set before the service answers."""
        self.replication_address = ""
        """Likewise."""

    async def GetStatus(self, request: pb.GetStatusRequest, context: Context) -> pb.GetStatusResponse:
        runtime = self._runtime
        now = runtime.clock()
        counting = Counting(now)
        await runtime.walk_at_once(counting)
        counts = counting.counts
        stats = await asyncio.to_thread(runtime.storage.stats)
        disk = await asyncio.to_thread(shutil.disk_usage, runtime.config.data_dir)
        with runtime.snapshot() as snapshot:
            sequence = get_sequence(snapshot)
            peers = [_peer_message(peer, get_cursor(snapshot, peer.cluster)) for peer in self._book]
        identity = runtime.identity
        return pb.GetStatusResponse(
            cluster=identity.cluster,
            incarnation=identity.incarnation,
            store_id=identity.store_id,
            version=__version__,
            data_dir=str(runtime.config.data_dir.absolute()),
            started_at_ms=runtime.started_at,
            now_ms=now,
            listen_address=self.listen_address,
            replication_address=self.replication_address,
            sequence=sequence,
            counts=pb.Counts(
                live=counts.live,
                expired=counts.expired,
                tombstones=counts.tombstones,
                registers=counts.registers,
                concurrent=counts.concurrent,
                damaged=counts.damaged,
            ),
            storage=pb.Storage(
                engine="lmdb",
                format_version=STORAGE_FORMAT,
                used_bytes=stats.used_bytes,
                map_bytes=stats.map_bytes,
                disk_free_bytes=disk.free,
                commits=runtime.committed,
            ),
            peers=peers,
        )

    async def GetDigest(self, request: pb.GetDigestRequest, context: Context) -> pb.GetDigestResponse:
        runtime = self._runtime
        at = Millis(request.at_ms) if request.HasField("at_ms") else runtime.clock()
        cluster = runtime.identity.cluster
        repo_id = request.repo_id if request.HasField("repo_id") else None
        topic = request.topic if request.HasField("topic") else None
        if request.ranges:
            scope = check_scope(repo_id, topic)
            ranges, parts = key_ranges(request, scope), max(1, request.parts)
            found = await runtime.read_at_once(
                lambda snapshot: digest_ranges(snapshot, at, ranges, parts, request.name_up_to)
            )
            return pb.GetDigestResponse(
                live=sum(part.live for part in found),
                at_ms=at,
                cluster=cluster,
                parts=[part_message(part, scope) for part in found],
            )
        digesting = Digesting(at, repo_id, topic)
        await runtime.walk_at_once(digesting)
        digest = digesting.digest()
        if digest.damaged:
            _log.error("the digest covers damaged rows as such", damaged=digest.damaged)
        return pb.GetDigestResponse(digest=digest.digest, live=digest.live, at_ms=at, cluster=cluster)

    async def AddPeer(self, request: pb.AddPeerRequest, context: Context) -> pb.AddPeerResponse:
        runtime, cluster = self._runtime, request.cluster
        try:
            address = check_address(request.address)
        except InvalidAddress as error:
            raise Refused(Code.INVALID_ARGUMENT, str(error), field="address") from None
        configured = runtime.config.peers
        now = runtime.clock()

        def add(transaction: Transaction) -> bool:
            added = add_peer(transaction, runtime.identity, configured, cluster, address)
            if added:
                configure(transaction, runtime.identity, (cluster,), now)
            return added

        added = await runtime.write(add)
        if added:
            self._peers.add(cluster, address, Origin.ADDED)
        return pb.AddPeerResponse(added=added)

    async def RemovePeer(self, request: pb.RemovePeerRequest, context: Context) -> pb.RemovePeerResponse:
        configured, cluster = self._runtime.config.peers, request.cluster
        removed = await self._runtime.write(lambda transaction: remove_peer(transaction, configured, cluster))
        if removed:
            self._peers.remove(cluster)
        return pb.RemovePeerResponse(removed=removed)

    async def Compact(self, request: pb.CompactRequest, context: Context) -> pb.CompactResponse:
        own = self._runtime.identity.cluster
        purged = await self._compactor.compact()
        return pb.CompactResponse(
            purged_tombstones=purged.tombstones,
            purged_expired=purged.expired,
            waiting=purged.waiting,
            held_by=[
                pb.HeldBy(cluster=cluster, reason=explain(cluster, hold, own), waiting=waiting)
                for (cluster, hold), waiting in sorted(
                    purged.held.items(), key=lambda held: (held[0][0], held[0][1].name)
                )
            ],
        )


def _peer_message(peer: Peer, cursor: Cursor | None) -> pb.PeerStatus:
    lag = None
    if peer.sequence is not None and cursor is not None:
        lag = max(0, peer.sequence - cursor.sequence)
    return pb.PeerStatus(
        cluster=peer.cluster,
        address=peer.address,
        origin=_ORIGINS[peer.origin],
        connected=peer.connected,
        verdict=peer.verdict,
        reason=peer.reason,
        cursor=None if cursor is None else cursor.sequence,
        lag=lag,
        last_contact_ms=peer.last_contact,
        skew_ms=peer.skew,
        last_error=peer.last_error,
        last_error_at_ms=peer.last_error_at,
        received_bytes=peer.received_bytes,
        sent_bytes=peer.sent_bytes,
        acknowledged=peer.acknowledged,
        received_changes=peer.received_changes,
        applied_changes=peer.applied_changes,
    )
