"""The blocking client: the calls of `Memory` and `Admin` over one channel."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

import grpc
from google.protobuf.message import Message

from crdt.dot import Millis
from replica.client import admin, memory
from replica.client.call import Call, Feed, Pages, present
from replica.client.channel import DEFAULT_ADDRESS, OPTIONS
from replica.client.following import Following
from replica.client.retry import Exchange, Retry

__all__ = ["Client"]

Given = ParamSpec("Given")
Request = TypeVar("Request", bound=Message)
Result = TypeVar("Result")
Item = TypeVar("Item")


def _method(
    build: Callable[Given, Call[Request, Result]],
) -> Callable[Concatenate[Client, Given], Result]:
    """A method that runs the call of these arguments."""

    def method(self: Client, /, *given: Given.args, **named: Given.kwargs) -> Result:
        return self.run(build(*given, **named))

    return present(method, build, "Client")


def _iterator(
    build: Callable[Given, Pages[Request, Item]],
) -> Callable[Concatenate[Client, Given], Iterator[Item]]:
    """A method that yields the items of every page."""

    def method(self: Client, /, *given: Given.args, **named: Given.kwargs) -> Iterator[Item]:
        pages = build(*given, **named)
        page = self.run(pages.page(""))
        yield from page.items
        while page.next_page_token:
            page = self.run(pages.page(page.next_page_token))
            yield from page.items

    return present(method, build, "Client", Iterator)


def _feed(
    build: Callable[Given, Feed[Request, Item]],
) -> Callable[Concatenate[Client, Given], Iterator[Item]]:
    """A method that yields the items of a feed as they come."""

    def method(self: Client, /, *given: Given.args, **named: Given.kwargs) -> Iterator[Item]:
        return self.follow(build(*given, **named))

    return present(method, build, "Client", Iterator)


class Client:
    """A blocking client of one replica. Threads may share it; close it, or use it as a context manager.

    Every method raises a :class:`replica.client.RicordoError` where its call fails; and TypeError or
    ValueError, before anything is sent, for an argument of a type or range that no request can carry.
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
            grpc.insecure_channel(address, OPTIONS)
            if credentials is None
            else grpc.secure_channel(address, credentials, OPTIONS)
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

    def run(self, call: Call[Request, Result], *, retry: Retry | None = None) -> Result:
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
        send: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(call.method)
        while True:
            try:
                response = send(exchange.request, timeout=exchange.timeout(time.monotonic()))
            except grpc.RpcError as error:
                time.sleep(exchange.failed(error, time.monotonic()))
            else:
                return exchange.answered(response)

    def follow(self, feed: Feed[Request, Item], *, retry: Retry | None = None) -> Iterator[Item]:
        """Follow a feed, as :meth:`run` runs a call. To stop, close the iterator or leave it."""
        following = Following(feed, retry or self._retry, self._random)
        send: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(following.method)
        while True:
            responses = send(following.request)
            try:
                for response in responses:
                    yield from following.received(response)
                pause = following.ended(time.monotonic())
            except grpc.RpcError as error:
                pause = following.failed(error, time.monotonic())
            finally:
                responses.cancel()
            time.sleep(pause)

    def close(self) -> None:
        """Close the connection; calls in flight fail."""
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
