"""When a feed that broke off is taken up again, and where. No I/O: time and chance are arguments.

Each item carries the token that goes on behind it, so whatever broke the connection, nothing is missed and
nothing comes twice.
"""

from __future__ import annotations

from random import Random
from typing import Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from replica.client.call import Feed
from replica.client.errors import RicordoError, UnavailableError, from_rpc
from replica.client.retry import TRANSIENT, Retry, undecodable

__all__ = ["Following"]

Item = TypeVar("Item")


class Following(Generic[Item]):
    """One feed while it is followed. A client sends :attr:`request` and hands over what it receives; where
    the stream breaks, it waits as :meth:`failed` or :meth:`ended` says and sends the request again, which has
    changed.
    """

    def __init__(self, feed: Feed[Message, Item], retry: Retry, random: Random) -> None:
        self._feed = feed
        self._retry = retry
        self._random = random
        self._token = ""
        self._longest = retry.first_delay
        self._ends: float | None = None

    @property
    def method(self) -> str:
        """The full name of the method."""
        return self._feed.method

    @property
    def request(self) -> bytes:
        """Encoded: for what follows the last item, or for the beginning."""
        return self._feed.request(self._token).SerializeToString()

    def received(self, response: bytes) -> tuple[Item, ...]:
        """The items of a message. Raises InternalError for bytes that are none of this feed."""
        try:
            items = self._feed.read(response)
        except DecodeError as error:
            raise undecodable() from error
        if items:
            self._token = self._feed.token(items[-1])
        self._longest, self._ends = self._retry.first_delay, None
        return items

    def failed(self, error: grpc.RpcError, now: float) -> float:
        """Seconds to wait before the feed is taken up again; `now` is of a monotonic clock.

        Raises the failure as a :class:`replica.client.errors.RicordoError` where it would fail again, and
        where nothing came for as long as the deadline of a call.
        """
        return self._pause(from_rpc(error), now)

    def ended(self, now: float) -> float:
        """Likewise, when the stream ended without an error: half a connection looks so to a reader."""
        return self._pause(UnavailableError(grpc.StatusCode.UNAVAILABLE, "the stream ended"), now)

    def _pause(self, failure: RicordoError, now: float) -> float:
        if self._ends is None:
            self._ends = now + self._retry.deadline
        longest = min(self._longest, self._retry.max_delay)
        delay = self._random.uniform(0, longest)
        self._longest = 2 * longest
        if failure.code not in TRANSIENT or now + delay >= self._ends:
            raise failure
        return delay
