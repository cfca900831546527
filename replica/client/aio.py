"""The asyncio client: the calls of `Memory` and `Admin` over one channel."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import grpc
from google.protobuf.message import Message

from crdt.dot import Millis
from replica.client import admin, memory
from replica.client.call import Call, Feed, Pages, present
from replica.client.channel import DEFAULT_ADDRESS, OPTIONS
from replica.client.following import Following
from replica.client.retry import Exchange, Retry

__all__ = ["AsyncClient"]

Given = ParamSpec("Given")
Request = TypeVar("Request", bound=Message)
Result = TypeVar("Result")
Item = TypeVar("Item")


def _method(
    build: Callable[Given, Call[Request, Result]],
) -> Callable[Concatenate[AsyncClient, Given], Coroutine[Any, Any, Result]]:
    """A coroutine method that runs the call of these arguments."""

    async def method(self: AsyncClient, /, *given: Given.args, **named: Given.kwargs) -> Result:
        return await self.run(build(*given, **named))

    return present(method, build, "AsyncClient")


def _iterator(
    build: Callable[Given, Pages[Request, Item]],
) -> Callable[Concatenate[AsyncClient, Given], AsyncIterator[Item]]:
    """A method that yields the items of every page."""

    async def method(self: AsyncClient, /, *given: Given.args, **named: Given.kwargs) -> AsyncIterator[Item]:
        pages = build(*given, **named)
        page = await self.run(pages.page(""))
        while True:
            for item in page.items:
                yield item
            if not page.next_page_token:
                return
            page = await self.run(pages.page(page.next_page_token))

    return present(method, build, "AsyncClient", AsyncIterator)


def _feed(
    build: Callable[Given, Feed[Request, Item]],
) -> Callable[Concatenate[AsyncClient, Given], AsyncGenerator[Item, None]]:
    """A method that yields the items of a feed as they come."""

    def method(self: AsyncClient, /, *given: Given.args, **named: Given.kwargs) -> AsyncGenerator[Item, None]:
        return self.follow(build(*given, **named))

    return present(method, build, "AsyncClient", AsyncGenerator)


class AsyncClient:
    """An asyncio client of one replica. Make it and use it in one event loop; tasks may share it. Close it,
    or use it as an asynchronous context manager.

    Every method raises a :class:`replica.client.RicordoError` where its call fails; and TypeError or
    ValueError, before anything is sent, for an argument of a type or range that no request can carry. A task
    that is cancelled in a write cannot know whether it was made.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        retry: Retry | None = None,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        """`address` is `host:port`. The first call connects: in plain text, without `credentials`."""
        self._retry = retry or Retry()
        self._random = random.SystemRandom()
        self._channel = (
            grpc.aio.insecure_channel(address, OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(address, credentials, OPTIONS)
        )

    remember = _method(memory.remember)
    remember_many = _method(memory.remember_many)
    update = _method(memory.update)
    recall = _method(memory.recall)
    recall_many = _method(memory.recall_many)
    history = _method(memory.history)
    scan = _iterator(memory.scan)
    list_topics = _iterator(memory.list_topics)
    list_repos = _iterator(memory.list_repos)
    forget = _method(memory.forget)
    watch = _feed(memory.watch)

    get_status = _method(admin.get_status)
    get_digest = _method(admin.get_digest)
    get_range_digests = _method(admin.get_range_digests)
    add_peer = _method(admin.add_peer)
    remove_peer = _method(admin.remove_peer)
    retire_member = _method(admin.retire_member)
    compact = _method(admin.compact)

    async def run(self, call: Call[Request, Result], *, retry: Retry | None = None) -> Result:
        """Run a call that a function of `replica.client.memory` or `.admin` built; with `retry`, under
        that instead of the client's own.
        """
        exchange = Exchange(
            call,
            retry or self._retry,
            now=time.monotonic(),
            wall=Millis(time.time_ns() // 1_000_000),
            random=self._random,
        )
        send: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(call.method)
        while True:
            try:
                response = await send(exchange.request, timeout=exchange.timeout(time.monotonic()))
            except grpc.RpcError as error:
                await asyncio.sleep(exchange.failed(error, time.monotonic()))
            else:
                return exchange.answered(response)

    async def follow(
        self, feed: Feed[Request, Item], *, retry: Retry | None = None
    ) -> AsyncGenerator[Item, None]:
        """Follow a feed, as :meth:`run` runs a call. To stop, close the iterator (`aclose`) or cancel the
        task that waits for it.
        """
        following = Following(feed, retry or self._retry, self._random)
        send: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(following.method)
        while True:
            responses = send(following.request)
            try:
                async for response in responses:
                    for item in following.received(response):
                        yield item
                pause = following.ended(time.monotonic())
            except grpc.RpcError as error:
                pause = following.failed(error, time.monotonic())
            finally:
                responses.cancel()
            await asyncio.sleep(pause)

    async def close(self) -> None:
        """Close the connection; calls in flight fail."""
        await self._channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
