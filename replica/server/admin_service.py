"""The service `ricordo.v1.Admin`: what an operator asks of one replica."""

from __future__ import annotations

from typing import TypeAlias

from google.protobuf.message import Message
from grpc.aio import ServicerContext

from crdt.dot import Millis
from replica.config.addresses import InvalidAddress, check_address, same_listener
from replica.core.digest import Digesting
from replica.core.errors import Code, Refused
from replica.core.membership import configure, retire
from replica.core.peers import add_peer, remove_peer
from replica.core.range_digest import digest_ranges
from replica.core.scope import check_scope
from replica.core.storage import Transaction
from replica.logs import logger
from replica.server.compaction import Compactor
from replica.server.healing import Healer
from replica.server.peer_book import Origin, PeerBook
from replica.server.peers import Peers
from replica.server.runtime import Runtime
from replica.server.status import held_messages, status_message
from replica.wire import admin_pb2 as pb
from replica.wire.admin_pb2_grpc import AdminServicer
from replica.wire.digests import key_ranges, part_message

__all__ = ["AdminService"]

Context: TypeAlias = ServicerContext[Message, Message]

_log = logger()


class AdminService(AdminServicer):
    """How the replica is, and its peers."""

    def __init__(
        self, runtime: Runtime, book: PeerBook, peers: Peers, compactor: Compactor, healer: Healer
    ) -> None:
        self._runtime = runtime
        self._book = book
        self._peers = peers
        self._compactor = compactor
        self._healer = healer
        self.listen_address = ""
        """As bound; set before the service answers."""
        self.replication_address = ""
        """Likewise."""

    async def GetStatus(self, request: pb.GetStatusRequest, context: Context) -> pb.GetStatusResponse:
        status = await status_message(
            self._runtime, self._book, self._compactor, self._healer, full=request.full
        )
        status.listen_address = self.listen_address
        status.replication_address = self.replication_address
        return status

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
        if same_listener(address, self.replication_address):
            raise Refused(
                Code.INVALID_ARGUMENT,
                "is this replica's own replication listener; give the peer's",
                field="address",
            )
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

    async def RetireMember(
        self, request: pb.RetireMemberRequest, context: Context
    ) -> pb.RetireMemberResponse:
        runtime, cluster = self._runtime, request.cluster
        if self._book.is_connected(cluster):
            raise Refused(
                Code.FAILED_PRECONDITION,
                "is connected to this replica; stop it first, for retiring is for good",
                field="cluster",
            )
        retired = await runtime.write(lambda transaction: retire(transaction, runtime.identity, cluster))
        if retired:
            _log.warning("retired a member", member=cluster)
        return pb.RetireMemberResponse(retired=retired)

    async def Compact(self, request: pb.CompactRequest, context: Context) -> pb.CompactResponse:
        purged = await self._compactor.compact()
        return pb.CompactResponse(
            purged_tombstones=purged.tombstones,
            purged_expired=purged.expired,
            waiting=purged.waiting,
            held_by=held_messages(purged),
        )
