"""What stands around every call: undecodable messages, errors, and the count of calls under way.

The one place where an error becomes a gRPC status. A refusal goes out with its details; anything unexpected
goes out as INTERNAL with the name of an incident, under which the log says what happened.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from replica.core.errors import Code, Refused
from replica.core.messages import ProtocolError
from replica.core.storage import StorageError
from replica.logs import fault, logger
from replica.wire.refusals import fault_status, refusal_of, refusal_status

__all__ = ["Guard", "status_of"]

Context: TypeAlias = "grpc.aio.ServicerContext[Message, Message]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Message, Message]"
Continuation = Callable[
    [grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Message, Message] | None"]
]

_log = logger()
_MOMENT = 0.3
"""Seconds that a stream has to end by itself."""
_STOPPING = "the replica is stopping; repeat the call"


@dataclass(frozen=True, slots=True)
class _Undecodable:
    """Stands where a message should, so that its handler can say what was wrong with it."""


def status_of(error: Exception, method: str) -> Status:
    """The status of a call that failed, or of one entry in a batch; what was not foreseen is logged."""
    refused = error if isinstance(error, Refused) else None
    if isinstance(error, ProtocolError):
        refused = Refused(Code.INVALID_ARGUMENT, error.reason)
    if isinstance(error, StorageError):
        refused = refusal_of(error)
        if refused is not None and refused.code is not Code.UNAVAILABLE:
            _log.error("the store refuses", method=method, code=refused.code.value, reason=str(error))
    if refused is not None:
        return refusal_status(refused)
    incident = os.urandom(6).hex()
    _log.error("a call failed", method=method, incident=incident, **fault(error))
    return fault_status(incident)


class Guard(grpc.aio.ServerInterceptor):
    """The interceptor of a listener."""

    def __init__(self) -> None:
        self._active: set[asyncio.Task[object]] = set()
        self._streams: set[asyncio.Task[object]] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._stopping = False

    async def end_streams(self) -> None:
        """Refuse new streams, give those that are open a moment to end by themselves, and cancel the rest.

        Other calls go on.
        """
        self._stopping = True
        if self._streams:
            await asyncio.wait(self._streams, timeout=_MOMENT)
        for task in self._streams:
            task.cancel()

    async def quiet(self) -> None:
        """Return when no handler is running."""
        await self._quiet.wait()

    async def intercept_service(  # type: ignore[override]  # all our messages are protobuf's
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        decode, encode = self._decoder(handler), handler.response_serializer
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._answer(handler.unary_unary, method),  # type: ignore[arg-type]  # stubs: no asyncio here
                decode,  # type: ignore[arg-type]  # it may give a stand-in, which _answer knows
                encode,
            )
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(handler.unary_stream, method),  # type: ignore[arg-type]  # as above
                decode,  # type: ignore[arg-type]  # as above
                encode,
            )
        assert handler.stream_stream is not None, f"no method takes a stream and answers once: {method}"
        return grpc.stream_stream_rpc_method_handler(
            self._stream(handler.stream_stream, method),  # type: ignore[arg-type]  # as above
            decode,  # type: ignore[arg-type]  # as above
            encode,
        )

    @staticmethod
    def _decoder(handler: Handler) -> Callable[[bytes], Message | _Undecodable]:
        plain = handler.request_deserializer
        assert plain is not None

        def decode(data: bytes) -> Message | _Undecodable:
            try:
                return plain(data)
            except (DecodeError, ValueError):
                return _Undecodable()

        return decode

    def _answer(self, plain: Callable[..., object], method: str) -> object:
        async def answer(request: Message | _Undecodable, context: Context) -> object:
            async with self._guarded(method, context):
                answer = plain(_decoded(request), context)
                assert inspect.isawaitable(answer)
                return await answer

        return answer

    def _stream(self, plain: Callable[..., object], method: str) -> object:
        """Of either way to stream: a generator of messages, or a coroutine that writes them."""

        async def relay(request: object, context: Context) -> None:
            async with self._guarded(method, context, streaming=True):
                messages = plain(_requests(request), context)
                assert isinstance(messages, AsyncGenerator)
                async with aclosing(messages):
                    async for message in messages:
                        try:
                            await context.write(message)
                        except grpc.aio.InternalError:
                            # The caller went while it was on its way. That is no fault, and is not logged.
                            raise asyncio.CancelledError from None

        async def write(request: object, context: Context) -> None:
            async with self._guarded(method, context, streaming=True):
                written = plain(_requests(request), context)
                assert inspect.isawaitable(written)
                await written

        return relay if inspect.isasyncgenfunction(plain) else write

    @asynccontextmanager
    async def _guarded(
        self, method: str, context: Context, *, streaming: bool = False
    ) -> AsyncIterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._active.add(task)
        self._quiet.clear()
        if streaming:
            self._streams.add(task)
        try:
            if streaming and self._stopping:
                raise Refused(Code.UNAVAILABLE, _STOPPING)
            yield
            return
        except asyncio.CancelledError:
            if not (streaming and self._stopping):
                raise
            status = refusal_status(Refused(Code.UNAVAILABLE, _STOPPING))
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, its text must not reach the caller
            status = status_of(error, method)
        finally:
            self._streams.discard(task)
            self._active.discard(task)
            if not self._active:
                self._quiet.set()
        try:
            await context.abort_with_status(rpc_status.to_status(status))
        except grpc.aio.InternalError:
            # A message was on its way when the stream was cancelled: then there is no saying why.
            raise asyncio.CancelledError from None


def _decoded(request: Message | _Undecodable) -> Message:
    if isinstance(request, _Undecodable):
        raise Refused(Code.INVALID_ARGUMENT, "the message cannot be decoded as a request of this method")
    return request


def _requests(request: object) -> object:
    """The request of a call that streams its answer: one message, or a stream of them."""
    if isinstance(request, AsyncIterable):
        return _decoded_each(request)
    assert isinstance(request, Message | _Undecodable)
    return _decoded(request)


async def _decoded_each(requests: AsyncIterable[Message | _Undecodable]) -> AsyncIterator[Message]:
    async for request in requests:
        yield _decoded(request)
