"""When a failed call is made again, and why that cannot write twice. No I/O: time and chance are arguments.

Every write carries a `request_id` that is chosen before the first attempt and stays the same: the replica
stores it with the result in the write's own transaction and answers a repeat with that result (DESIGN
section 10). A new entry's id is chosen before the first attempt as well. Reads and the calls of `Admin`
are repeatable by nature. So whatever a lost answer was, the same bytes may be sent again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar
from uuid import UUID

import grpc
from google.protobuf.message import DecodeError, Message

from crdt.dot import Millis
from replica.client.call import Call
from replica.client.errors import InternalError, from_rpc
from replica.core.uuid7 import RANDOM_BYTES, uuid7
from replica.wire.memory_pb2 import ForgetRequest, RememberManyRequest, RememberRequest, UpdateRequest

__all__ = ["MAX_DEADLINE", "TRANSIENT", "Exchange", "Retry", "identified", "undecodable"]

MAX_DEADLINE = 600.0
"""Seconds for which a replica remembers a request id: no call may be repeated later."""

TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        # A cancel by the caller ends the exchange itself; one that arrives as a status is a replica stopping.
        grpc.StatusCode.CANCELLED,
    }
)
"""Codes after which the same may be asked again."""

Result = TypeVar("Result")
Write = RememberRequest | UpdateRequest | ForgetRequest


@dataclass(frozen=True, slots=True)
class Retry:
    """How long a call may take and how it is repeated. All values are in seconds, positive and finite.

    Raises ValueError naming the value that is not, or that is beyond its bound.
    """

    deadline: float = 30.0
    """For the whole call with all its attempts; at most :data:`MAX_DEADLINE`."""
    attempt_timeout: float = 10.0
    """For one attempt: a replica that does not answer by then is asked again."""
    first_delay: float = 0.05
    """The longest pause before the second attempt. It doubles with each attempt; the actual one is uniform
    between none and that, so that many clients do not return in step."""
    max_delay: float = 2.0
    """The longest pause at all."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive, finite number of seconds")
        if self.deadline > MAX_DEADLINE:
            raise ValueError(
                f"deadline must be at most {MAX_DEADLINE:g} seconds: requests are forgotten then"
            )


class Exchange(Generic[Result]):
    """One logical call while it is made. A client sends :attr:`request`; on an error it waits as
    :meth:`failed` says and sends it again.
    """

    request: bytes
    """Encoded, the same for every attempt."""

    def __init__(
        self, call: Call[Message, Result], retry: Retry, *, now: float, wall: Millis, random: Random
    ) -> None:
        """`now` is of a monotonic clock, in seconds; `wall` is the time that new ids bear."""
        self.request = identified(call.request, wall, random).SerializeToString()
        self._call = call
        self._retry = retry
        self._random = random
        self._ends = now + retry.deadline
        self._longest = retry.first_delay

    def timeout(self, now: float) -> float:
        """Seconds for the next attempt."""
        return max(0.0, min(self._retry.attempt_timeout, self._ends - now))

    def failed(self, error: grpc.RpcError, now: float) -> float:
        """Seconds to wait before the next attempt.

        Raises the failure as a :class:`replica.client.errors.RicordoError` when there is to be none: it would
        fail again, or the deadline comes first.
        """
        failure = from_rpc(error)
        self._longest = min(self._longest, self._retry.max_delay)
        delay = self._random.uniform(0, self._longest)
        self._longest *= 2
        if failure.code not in TRANSIENT or now + delay >= self._ends:
            raise failure from error
        return delay

    def answered(self, response: bytes) -> Result:
        """The result. Raises InternalError for bytes that are no answer to this call."""
        try:
            return self._call.read(response)
        except DecodeError as error:
            raise undecodable() from error


def undecodable() -> InternalError:
    """The failure of an answer that is none."""
    return InternalError(
        grpc.StatusCode.INTERNAL,
        "the answer could not be decoded",
        remedy="check that the address is that of a Ricordo replica",
    )


def identified(request: Message, wall: Millis, random: Random) -> Message:
    """The request with an id for each write and each new entry that has none yet."""
    made = type(request)()
    made.CopyFrom(request)
    for write in _writes(made):
        if not write.request_id:
            write.request_id = str(UUID(int=random.getrandbits(128), version=4))
        if isinstance(write, RememberRequest) and not write.HasField("id"):
            write.id = str(uuid7(wall, random.randbytes(RANDOM_BYTES)))
    return made


def _writes(request: Message) -> Sequence[Write]:
    if isinstance(request, RememberManyRequest):
        return request.entries
    return (request,) if isinstance(request, Write) else ()
