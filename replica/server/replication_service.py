"""The service `ricordo.v1.Replication`: the supplier's end of a stream, and what is asked beside streams."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import TypeAlias

import grpc

from replica.core.damage import fetch
from replica.core.errors import Code, Refused
from replica.core.messages import ConsumerMessage, Kind, SupplierMessage, Verdict
from replica.core.session import Outcome
from replica.core.supplier import answer
from replica.core.supplier_session import SupplierSession
from replica.core.verdict import Present
from replica.logs import logger
from replica.server.fleet import Fleet
from replica.server.peer_book import Peer, PeerBook
from replica.server.peers import Peers
from replica.server.runtime import Runtime
from replica.server.stream import StreamBroken, drive
from replica.wire import replication_pb2 as pb
from replica.wire.replication_pb2_grpc import ReplicationServicer
from replica.wire.sessions import (
    answer_message,
    fetched_message,
    from_consumer,
    read_keys,
    read_question,
    to_consumer,
)

__all__ = ["ReplicationService"]

_FETCH_MAX = 100

Context: TypeAlias = "grpc.aio.ServicerContext[pb.ConsumerMessage, pb.SupplierMessage]"

_log = logger()


class ReplicationService(ReplicationServicer):
    """The supplier."""

    def __init__(self, runtime: Runtime, fleet: Fleet, book: PeerBook, peers: Peers) -> None:
        self._runtime = runtime
        self._fleet = fleet
        self._book = book
        self._peers = peers
        self._ready = False

    def begin(self) -> None:
        """Serve streams from now on: this replica knows that its past is not in doubt."""
        self._ready = True

    async def Pull(  # type: ignore[override]  # it writes, where the stubs know only generators
        self, request_iterator: AsyncIterable[pb.ConsumerMessage], context: Context
    ) -> None:
        if not self._ready:
            raise Refused(Code.UNAVAILABLE, "the replica is starting; try again")
        await _Serving(self._runtime, self._fleet, self._book, self._peers).run(request_iterator, context)

    async def Ask(self, request: pb.AskRequest, context: Context) -> pb.AskResponse:
        question = read_question(request)
        claimed = Present(question.incarnation, question.store_id)
        connected = self._fleet.attendance.is_present(question.cluster, claimed)
        with self._runtime.snapshot() as snapshot:
            return answer_message(answer(snapshot, self._runtime.identity, question, connected=connected))

    async def Fetch(self, request: pb.FetchRequest, context: Context) -> pb.FetchResponse:
        if len(request.keys) > _FETCH_MAX:
            raise Refused(
                Code.INVALID_ARGUMENT,
                f"are {len(request.keys)}; at most {_FETCH_MAX} are allowed",
                field="keys",
            )
        with self._runtime.snapshot() as snapshot:
            fetched = fetch(snapshot, read_keys(request))
        return pb.FetchResponse(fetched=map(fetched_message, fetched))


class _Serving:
    """One stream on which a consumer pulls from this replica."""

    def __init__(self, runtime: Runtime, fleet: Fleet, book: PeerBook, peers: Peers) -> None:
        self._runtime = runtime
        self._fleet = fleet
        self._book = book
        self._peers = peers
        self._session = SupplierSession(fleet.settings, runtime.entropy, fleet.attendance)
        self._peer: Peer | None = None
        self._verdict: Verdict | None = None
        self._served = False

    async def run(self, requests: AsyncIterable[pb.ConsumerMessage], context: Context) -> None:
        """Serve the consumer until the stream ends."""

        async def send(message: SupplierMessage) -> None:
            encoded = to_consumer(message)
            try:
                await context.write(encoded)
            except grpc.aio.BaseError:
                raise StreamBroken("the consumer has gone") from None
            if self._peer is not None:
                self._peer.sent(encoded.ByteSize())

        with self._runtime.snapshot() as snapshot:
            self._session.open(snapshot, self._runtime.clock())
        patience = self._fleet.settings.silence / 1000
        try:
            there = await drive(
                self._session, self._runtime, self._messages(requests), send, self._watch, patience
            )
        finally:
            ended = self._session.ended
            if self._peer is not None and self._served and ended is not None:
                self._peer.consuming = False
                _log.info("a consumer pulls no more", peer=self._peer.cluster, reason=ended.reason)
        if there and ended is not None and ended.cause is None:
            code = Code.UNAVAILABLE if self._runtime.stopping else Code.FAILED_PRECONDITION
            raise Refused(code, ended.reason)

    async def _messages(self, requests: AsyncIterable[pb.ConsumerMessage]) -> AsyncIterator[ConsumerMessage]:
        async for message in requests:
            if self._peer is not None:
                self._peer.received(self._runtime.clock(), message.ByteSize())
            yield from_consumer(message)

    def _watch(self, outcome: Outcome | None) -> None:
        session, verdict = self._session, self._session.verdict
        if session.asker is None or verdict is None:
            return
        peer = self._peer = self._peer or self._book.consumer(session.asker.cluster)
        if verdict != self._verdict:
            self._verdict = verdict
            if verdict.kind is Kind.REFUSED:
                if peer.refused(self._runtime.clock(), verdict.reason):
                    _log.warning("refused a consumer", peer=peer.cluster, reason=verdict.reason)
            else:
                self._served = peer.consuming = True
                _log.info(
                    "a consumer pulls", peer=peer.cluster, verdict=verdict.kind.value, reason=verdict.reason
                )
                self._peers.wake(peer.cluster)
        if session.acknowledged is not None:
            peer.acknowledged = session.acknowledged
        if peer.skew is None or session.skew is not None:
            peer.skew = session.skew
        if outcome is not None:
            self._fleet.report(peer, outcome)
