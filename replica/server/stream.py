"""Driving one end of a replication stream: the session decides, this hands it messages and the time.

One message at a time is taken from the peer, and the next only when the last one's work is on disk: a peer
that is faster than the disk is slowed down by its own stream, and memory stays bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from crdt.dot import Millis
from replica.core.errors import Refused
from replica.core.messages import ProtocolError
from replica.core.session import Ended, Outcome, Work
from replica.core.storage import Snapshot, StorageError
from replica.server.runtime import Runtime

__all__ = ["Session", "StreamBroken", "drive"]

_In = TypeVar("_In")
_Out = TypeVar("_Out")
_In_contra = TypeVar("_In_contra", contravariant=True)
_Out_co = TypeVar("_Out_co", covariant=True)

_LONGEST_SLEEP = 1.0
"""Seconds after which the clock is looked at again: it may have been set."""
_SHORTEST_SLEEP = 0.001


class StreamBroken(Exception):
    """The peer has gone, or never came. The text says why."""


class Session(Protocol[_In_contra, _Out_co]):
    """What the two sessions of the core have in common."""

    ended: Ended | None

    def deadline(self) -> Millis: ...
    def fail(self, reason: str) -> None: ...
    def receive(self, message: _In_contra, now: Millis) -> Work | None: ...
    def due(self, now: Millis) -> Work | None: ...
    def committed(self, outcome: Outcome, now: Millis) -> None: ...
    def poll(self, snapshot: Snapshot, now: Millis) -> tuple[_Out_co, ...]: ...


async def drive(
    session: Session[_In, _Out],
    runtime: Runtime,
    messages: AsyncIterator[_In],
    send: Callable[[_Out], Awaitable[None]],
    watch: Callable[[Outcome | None], None],
    patience: float,
) -> bool:
    """Drive an open session until it is over, as it then says; false: the peer has gone and cannot be told.

    ``messages`` and ``send`` raise StreamBroken when the peer has gone; that, a message that cannot be sent
    for ``patience`` seconds, and a full store end the session. A ProtocolError or Refused out of ``messages``
    ends it and travels on. ``watch`` is told when something may have moved, and what a piece of work did.
    """
    stir = asyncio.Event()
    inbox = _Inbox(messages, stir)
    runtime.stirred.add(stir)
    try:
        while not runtime.stopping:
            stir.clear()
            work = None
            now = runtime.clock()
            if inbox.full():
                work = session.receive(inbox.take(), now)
            elif now >= session.deadline():
                work = session.due(now)
            outcome = None if work is None else await runtime.write(work)
            if outcome is not None:
                session.committed(outcome, runtime.clock())
            with runtime.snapshot() as snapshot:
                outgoing = session.poll(snapshot, runtime.clock())
            watch(outcome)
            for message in outgoing:
                async with asyncio.timeout(patience):
                    await send(message)
            if session.ended is not None:
                return True
            if not inbox.full():
                sleep = (session.deadline() - runtime.clock()) / 1000
                with suppress(TimeoutError):
                    # Not wait_for: in Python 3.11 it can swallow a cancellation.
                    async with asyncio.timeout(min(max(sleep, _SHORTEST_SLEEP), _LONGEST_SLEEP)):
                        await stir.wait()
        session.fail("this replica is stopping")
        return True
    except StreamBroken as broken:
        session.fail(str(broken))
    except TimeoutError:
        session.fail(f"the peer has taken nothing for {patience:g} s")
    except StorageError as error:
        session.fail(f"the store refuses: {error}")
        return True
    except (ProtocolError, Refused) as error:
        session.fail(error.reason)
        raise
    finally:
        session.fail("the stream was closed")
        runtime.stirred.discard(stir)
        await inbox.close()
    return False


class _Inbox(Generic[_In]):
    """Room for one message that has arrived."""

    def __init__(self, messages: AsyncIterator[_In], stir: asyncio.Event) -> None:
        self._stir = stir
        self._slot: asyncio.Queue[_In | Exception] = asyncio.Queue(1)
        self._reader = asyncio.create_task(self._read(messages))

    async def _read(self, messages: AsyncIterator[_In]) -> None:
        try:
            async for message in messages:
                await self._put(message)
            await self._put(StreamBroken("the peer ended the stream"))
        except Exception as error:  # noqa: BLE001 - it is raised where the messages are taken
            await self._put(error)

    async def _put(self, message: _In | Exception) -> None:
        await self._slot.put(message)
        self._stir.set()

    def full(self) -> bool:
        """Whether there is a message, or an error, to take."""
        return self._slot.full()

    def take(self) -> _In:
        """The message. Raises what the stream raised."""
        message = self._slot.get_nowait()
        if isinstance(message, Exception):
            raise message
        return message

    async def close(self) -> None:
        """Read no more."""
        self._reader.cancel()
        await asyncio.wait([self._reader])
