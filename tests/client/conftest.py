"""A scripted replica on loopback, and both clients behind one face: every statement is made of both."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, NoReturn

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from grpc_status.rpc_status import to_status

from replica.client import AsyncClient, Client, Retry
from replica.wire import admin_pb2, admin_pb2_grpc, memory_pb2, memory_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]
Fault = Callable[[Context], Awaitable[None]]

SERVER_OPTIONS = (("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 64 * 1024 * 1024))


def ending_with(code: grpc.StatusCode, message: str = "") -> Fault:
    """A fault: the call ends with this code once the write is made."""

    async def fault(context: Context) -> None:
        await context.abort(code, message)

    return fault


def refusing(status: Status) -> Fault:
    """A fault: the call ends with this status and its details."""

    async def fault(context: Context) -> None:
        await context.abort_with_status(to_status(status))

    return fault


async def silence(context: Context) -> None:
    """A fault: the write is made and no answer comes."""
    await asyncio.Event().wait()


class ScriptedReplica(memory_pb2_grpc.MemoryServicer, admin_pb2_grpc.AdminServicer):
    """Answers as `answers` says by method, remembers what came, makes each request id's write once, and
    has the next fault of `faults` befall each call after that. A call that streams its answer gets the next
    of `streams`: messages and faults in their order.
    """

    def __init__(self) -> None:
        self.address = ""
        self.received: list[Any] = []
        self.made: dict[str, memory_pb2.RememberResponse] = {}
        self.faults: deque[Fault] = deque()
        self.answers: dict[str, Callable[[Any], Message]] = {}
        self.streams: deque[Sequence[Message | Fault]] = deque()
        self.left = asyncio.Event()
        """Set when a call that streamed its answer has ended."""
        self.silenced = asyncio.Event()
        """Set when a call has come and waits in a fault."""

    async def start(self, address: str = "127.0.0.1:0") -> grpc.aio.Server:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        memory_pb2_grpc.add_MemoryServicer_to_server(self, server)
        admin_pb2_grpc.add_AdminServicer_to_server(self, server)
        port = server.add_insecure_port(address)
        await server.start()
        self.address = f"127.0.0.1:{port}"
        return server

    def make(self, request: memory_pb2.RememberRequest) -> memory_pb2.RememberResponse:
        if request.request_id not in self.made:
            key = f"repo/{request.repo_id}/mem/{request.topic}/{request.id}"
            version = f"v{len(self.made)}"
            self.made[request.request_id] = memory_pb2.RememberResponse(
                key=key, id=request.id, version=version, created=True
            )
        return self.made[request.request_id]

    async def answer(self, method: str, request: Message, context: Context) -> Message:
        self.received.append(request)
        response = self.answers[method](request)
        if self.faults:
            self.silenced.set()
            await self.faults.popleft()(context)
        return response


def _handler(method: str) -> Callable[..., Awaitable[Message]]:
    async def handle(self: ScriptedReplica, request: Message, context: Context) -> Message:
        return await self.answer(method, request, context)

    return handle


async def _stream(self: ScriptedReplica, request: Message, context: Context) -> AsyncIterator[Message]:
    self.received.append(request)
    try:
        for step in self.streams.popleft():
            if isinstance(step, Message):
                yield step
            else:
                await step(context)
    finally:
        self.left.set()


for _service in (
    memory_pb2.DESCRIPTOR.services_by_name["Memory"],
    admin_pb2.DESCRIPTOR.services_by_name["Admin"],
):
    for _method in _service.methods:
        _streams = _method.server_streaming
        setattr(ScriptedReplica, _method.name, _stream if _streams else _handler(_method.name))


class Face:
    """One client, blocking or asyncio, under the names of its methods."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.client = client

    async def ask(self, method: str, *given: object, **named: object) -> Any:  # noqa: ANN401 - as the method
        if isinstance(self.client, AsyncClient):
            return await getattr(self.client, method)(*given, **named)
        return await asyncio.to_thread(getattr(self.client, method), *given, **named)

    async def walk(self, method: str, *given: object, **named: object) -> list[Any]:
        items = getattr(self.client, method)(*given, **named)
        if isinstance(self.client, AsyncClient):
            return [item async for item in items]
        return await asyncio.to_thread(list, items)

    async def take(self, count: int, method: str, *given: object, **named: object) -> list[Any]:
        """The first items of those that the method yields; then it is left."""
        items = getattr(self.client, method)(*given, **named)
        if isinstance(self.client, AsyncClient):
            try:
                return [await anext(items) for _ in range(count)]
            finally:
                await items.aclose()

        def take() -> list[Any]:
            try:
                return list(islice(items, count))
            finally:
                items.close()

        return await asyncio.to_thread(take)


Faces = Callable[..., Face]


@pytest.fixture
async def replica() -> AsyncIterator[ScriptedReplica]:
    scripted = ScriptedReplica()
    scripted.answers["Remember"] = scripted.make
    scripted.answers["RememberMany"] = lambda request: memory_pb2.RememberManyResponse(
        results=[memory_pb2.RememberResult(remembered=scripted.make(entry)) for entry in request.entries]
    )
    server = await scripted.start()
    yield scripted
    await server.stop(None)


@pytest.fixture(params=["blocking", "asyncio"])
async def faces(request: pytest.FixtureRequest) -> AsyncIterator[Faces]:
    """Makes a client of the kind under test: `faces(address, retry)`."""
    made: list[Client | AsyncClient] = []

    def face(address: str, retry: Retry | None = None) -> Face:
        made.append(
            Client(address, retry=retry) if request.param == "blocking" else AsyncClient(address, retry=retry)
        )
        return Face(made[-1])

    yield face
    for client in made:
        if isinstance(client, AsyncClient):
            await client.close()
        else:
            client.close()


@pytest.fixture
def client(replica: ScriptedReplica, faces: Faces) -> Face:
    """A client of the scripted replica that does not pause long before it asks again."""
    return faces(replica.address, Retry(first_delay=0.001, max_delay=0.01))


def unexpected(request: Message) -> NoReturn:
    """An answer where no call may come."""
    raise AssertionError("this call must not be made")
