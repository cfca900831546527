"""The consumer's end of a stream: a connection for each attempt, and the core's session over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc

from replica.core.consumer_session import ConsumerSession
from replica.core.messages import ConsumerMessage, ProtocolError, SupplierMessage
from replica.core.session import Outcome
from replica.logs import logger
from replica.server.asking import connection
from replica.server.fleet import Fleet
from replica.server.peer_book import Peer, told
from replica.server.peers import PullEnded
from replica.server.runtime import Runtime
from replica.server.stream import StreamBroken, drive
from replica.wire import replication_pb2 as pb
from replica.wire.sessions import from_supplier, to_supplier

__all__ = ["Puller"]

_log = logger()


def _words(error: grpc.aio.AioRpcError) -> str:
    """What a broken call means, in one short line."""
    details = told(error.details() or "")
    match error.code():
        case grpc.StatusCode.UNAVAILABLE:
            return f"not available: {details}"
        case grpc.StatusCode.INTERNAL if details == "Internal error from Core":
            # What gRPC says of a message for which there is no connection any more.
            return "the connection broke"
        case grpc.StatusCode.UNIMPLEMENTED:
            return "what answers there is no replica's replication listener"
        case code:
            return f"{code.name}: {details}"


class Puller:
    """Pulls from peers."""

    def __init__(self, runtime: Runtime, fleet: Fleet) -> None:
        self._runtime = runtime
        self._fleet = fleet

    async def pull(self, peer: Peer) -> None:
        """Pull from a peer until the stream ends. Raises PullEnded."""
        async with connection(peer.address) as stub:
            call = stub.Pull()
            try:
                await self._pull(peer, call)
            finally:
                call.cancel()

    async def _pull(
        self, peer: Peer, call: grpc.aio.StreamStreamCall[pb.ConsumerMessage, pb.SupplierMessage]
    ) -> None:
        runtime, fleet = self._runtime, self._fleet
        session = ConsumerSession(peer.cluster, fleet.settings, runtime.entropy, fleet.attendance)

        async def messages() -> AsyncIterator[SupplierMessage]:
            try:
                async for message in call:
                    if message is None:
                        # What gRPC makes of bytes that do not decode.
                        raise ProtocolError("its message cannot be decoded")
                    peer.received(runtime.clock(), message.ByteSize())
                    yield from_supplier(message)
            except grpc.aio.AioRpcError as error:
                raise StreamBroken(_words(error)) from None

        async def send(message: ConsumerMessage) -> None:
            encoded = to_supplier(message)
            try:
                await call.write(encoded)
            except grpc.aio.AioRpcError as error:
                raise StreamBroken(_words(error)) from None
            except asyncio.InvalidStateError:
                raise StreamBroken("the peer ended the stream") from None
            peer.sent(encoded.ByteSize())

        def measure() -> None:
            with runtime.snapshot() as snapshot:
                peer.behind(runtime.clock(), session.lag(snapshot))

        def watch(outcome: Outcome | None) -> None:
            peer.skew = session.skew
            if session.welcomed:
                measure()
            standing = session.standing
            if standing is not None and (session.welcomed, standing.kind.value) != (
                peer.connected,
                peer.verdict,
            ):
                peer.verdict, peer.reason = standing.kind.value, told(standing.reason)
                peer.connected = session.welcomed
                if session.welcomed:
                    _log.info("pulling", peer=peer.cluster, verdict=peer.verdict, reason=peer.reason)
            if outcome is not None:
                fleet.report(peer, outcome)

        session.open(runtime.clock())
        with fleet.pulling(session):
            try:
                await drive(session, runtime, messages(), send, watch, fleet.settings.silence / 1000)
            except ProtocolError as error:
                raise PullEnded(f"it broke the protocol: {error.reason}") from None
        # What came last and could not be applied is missing here, too.
        measure()
        ended = session.ended
        assert ended is not None
        raise PullEnded(ended.reason, refused=ended.cause is not None)
