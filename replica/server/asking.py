"""Connections to peers, and what is asked of them beside the streams (DESIGN section 8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc

from replica.core.messages import Answer, Fetched, ProtocolError, Question
from replica.server.listener import REPLICATION_MESSAGE_MAX
from replica.wire import replication_pb2 as pb
from replica.wire.replication_pb2_grpc import ReplicationStub
from replica.wire.sessions import question_message, read_answer, read_fetched

if TYPE_CHECKING:
    from replica.wire.replication_pb2_grpc import ReplicationAsyncStub

__all__ = ["ask", "connection", "fetch"]

_AGAIN = 0.05
"""Seconds between two questions to one peer."""

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", REPLICATION_MESSAGE_MAX),
    # A half-open connection goes unnoticed without pings. The first timeout is for data that no machine
    # takes, the second for pings that a machine takes and no program answers.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A fresh channel is a fresh connection, not one that another channel has given up on.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.enable_http_proxy", 0),
)


@asynccontextmanager
async def connection(address: str) -> AsyncIterator[ReplicationAsyncStub]:
    """A connection of its own to a peer's replication listener."""
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        yield ReplicationStub(channel)


async def ask(peers: Mapping[str, str], question: Question, seconds: float) -> Mapping[str, Answer]:
    """Put the question to every peer; the answers of those that answer in time, by cluster.

    A peer that says it is connected to the very store that asks is asked again while there is time: the last
    connection of a replica that was killed takes a moment to end.
    """
    clock = asyncio.get_running_loop().time
    ends = clock() + seconds

    async def ask_one(cluster: str, address: str) -> Answer | None:
        answer: Answer | None = None
        async with connection(address) as stub:
            while answer is None or (answer.connected and clock() + _AGAIN < ends):
                if answer is not None:
                    await asyncio.sleep(_AGAIN)
                try:
                    message = await stub.Ask(
                        question_message(question), timeout=ends - clock(), wait_for_ready=True
                    )
                    answer = read_answer(message)
                except (grpc.aio.AioRpcError, ProtocolError):
                    break
        return answer if answer is not None and answer.cluster == cluster else None

    answers = await asyncio.gather(*(ask_one(cluster, address) for cluster, address in peers.items()))
    return {answer.cluster: answer for answer in answers if answer is not None}


async def fetch(address: str, keys: Iterable[bytes], seconds: float) -> list[Fetched] | None:
    """What a peer has at some keys; none when it cannot be asked."""
    async with connection(address) as stub:
        try:
            message = await stub.Fetch(pb.FetchRequest(keys=keys), timeout=seconds)
            return [read_fetched(one) for one in message.fetched]
        except (grpc.aio.AioRpcError, ProtocolError):
            return None
