"""The consumer's end of a stream: a connection for each attempt, and the core's session over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc

from replica.core.consumer_session import ConsumerSession
from replica.core.messages import Answer, ConsumerMessage, Fetched, ProtocolError, Question, SupplierMessage
from replica.core.session import Outcome
from replica.logs import logger
from replica.server.fleet import Fleet
from replica.server.listener import REPLICATION_MESSAGE_MAX
from replica.server.peer_book import Peer
from replica.server.peers import PullEnded
from replica.server.runtime import Runtime
from replica.server.stream import StreamBroken, drive
from replica.wire import replication_pb2 as pb
from replica.wire.replication_pb2_grpc import ReplicationStub
from replica.wire.sessions import (
    from_supplier,
    question_message,
    read_answer,
    read_fetched,
    to_supplier,
)

if TYPE_CHECKING:
    from replica.wire.replication_pb2_grpc import ReplicationAsyncStub

__all__ = ["Puller", "ask", "fetch"]

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", REPLICATION_MESSAGE_MAX),
    # A half-open connection goes unnoticed without pings.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A fresh channel is a fresh connection, not one that another channel has given up on.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.enable_http_proxy", 0),
)

_log = logger()


@asynccontextmanager
async def _connection(address: str) -> AsyncIterator[ReplicationAsyncStub]:
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        yield ReplicationStub(channel)


def _words(error: grpc.aio.AioRpcError) -> str:
    """What a broken call means, in one short line."""
    details = " ".join((error.details() or "").split())[:300]
    match error.code():
        case grpc.StatusCode.UNAVAILABLE:
            return f"not available: {details}"
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
        async with _connection(peer.address) as stub:
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

        def watch(outcome: Outcome | None) -> None:
            peer.skew = session.skew
            peer.sequence = session.supplier_sequence
            if session.verdict is not None and (session.welcomed, session.verdict.kind.value) != (
                peer.connected,
                peer.verdict,
            ):
                peer.verdict, peer.reason = session.verdict.kind.value, session.verdict.reason
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
        ended = session.ended
        assert ended is not None
        raise PullEnded(ended.reason, refused=ended.cause is not None)


async def ask(peers: Mapping[str, str], question: Question, seconds: float) -> Mapping[str, Answer]:
    """Put the question to every peer; the answers of those that answer in time, by cluster."""

    async def ask_one(cluster: str, address: str) -> Answer | None:
        async with _connection(address) as stub:
            try:
                message = await stub.Ask(question_message(question), timeout=seconds, wait_for_ready=True)
                answer = read_answer(message)
            except (grpc.aio.AioRpcError, ProtocolError):
                return None
        return answer if answer.cluster == cluster else None

    answers = await asyncio.gather(*(ask_one(cluster, address) for cluster, address in peers.items()))
    return {answer.cluster: answer for answer in answers if answer is not None}


async def fetch(address: str, keys: Iterable[bytes], seconds: float) -> list[Fetched] | None:
    """What a peer has at some keys; none when it cannot be asked."""
    async with _connection(address) as stub:
        try:
            message = await stub.Fetch(pb.FetchRequest(keys=keys), timeout=seconds)
            return [read_fetched(one) for one in message.fetched]
        except (grpc.aio.AioRpcError, ProtocolError):
            return None
