"""The peers that this replica pulls from: a task for each, which tries again when a stream ends.

Between attempts it waits, longer with every failure. A peer that comes to pull from here is evidently there:
then the wait is over.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from crdt.dot import Millis
from replica.core.session import retry_delay
from replica.logs import fault, logger
from replica.server.peer_book import Origin, Peer, PeerBook
from replica.server.runtime import Clock

__all__ = ["Backoff", "Peers", "PullEnded"]

_log = logger()


class PullEnded(Exception):
    """A stream ended, or was never made. The text says why."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused
        """By the peer's verdict: it will be the same next time, unless an operator does something."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait between attempts."""

    first: Millis
    """The bound of the first wait."""
    most: Millis
    """The bound of any."""


@dataclass(slots=True)
class _Pulling:
    task: asyncio.Task[None]
    wake: asyncio.Event


class Peers:
    """The tasks that pull. It belongs to one event loop."""

    def __init__(
        self,
        book: PeerBook,
        attempt: Callable[[Peer], Awaitable[None]],
        backoff: Backoff,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        """``attempt`` pulls from a peer over one stream until that ends, and raises PullEnded."""
        self._book = book
        self._attempt = attempt
        self._backoff = backoff
        self._clock = clock
        self._chance = chance
        self._pulling: dict[str, _Pulling] = {}
        self._ended: set[asyncio.Task[None]] = set()

    def add(self, cluster: str, address: str, origin: Origin) -> None:
        """Pull from a peer from now on."""
        if cluster in self._pulling:
            return
        peer = self._book.supplier(cluster, address, origin)
        wake = asyncio.Event()
        task = asyncio.create_task(self._pull(peer, wake), name=f"pull from {cluster}")
        self._pulling[cluster] = _Pulling(task, wake)

    def remove(self, cluster: str) -> None:
        """Pull from a peer no more."""
        pulling = self._pulling.pop(cluster, None)
        self._book.drop(cluster)
        if pulling is not None:
            pulling.task.cancel()
            self._ended.add(pulling.task)
            pulling.task.add_done_callback(self._ended.discard)

    def wake(self, cluster: str) -> None:
        """The peer is there: try again now, if a wait is under way."""
        if cluster in self._pulling:
            self._pulling[cluster].wake.set()

    async def close(self) -> None:
        """End every task."""
        tasks = {pulling.task for pulling in self._pulling.values()} | self._ended
        self._pulling.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _pull(self, peer: Peer, wake: asyncio.Event) -> None:
        failures = 0
        while True:
            wake.clear()
            try:
                await self._attempt(peer)
                reason, refused = "the peer ended the stream", False
            except PullEnded as ended:
                reason, refused = str(ended), ended.refused
            except Exception as error:  # noqa: BLE001 - logged; one peer must not take the others down
                _log.error("pulling failed", peer=peer.cluster, **fault(error))
                reason, refused = "this replica failed to apply what came; its log says more", False
            failures = 1 if peer.connected and not refused else failures + 1
            told = peer.last_error
            peer.connected = False
            peer.failed(self._clock(), reason)
            if failures == 1 or reason != told:
                _log.warning("not pulling", peer=peer.cluster, address=peer.address, reason=reason)
            # A refusal does not pass by itself when the peer shows up.
            chance = self._chance.random()
            seconds = retry_delay(failures, self._backoff.first, self._backoff.most, chance) / 1000
            if refused:
                await asyncio.sleep(seconds)
            else:
                with suppress(TimeoutError):
                    # Not wait_for: in Python 3.11 it can swallow a cancellation.
                    async with asyncio.timeout(seconds):
                        await wake.wait()
