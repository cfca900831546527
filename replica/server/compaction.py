"""Purging, in steps between which others have their turn to write (DESIGN section 6).

With what is dead goes what else a store needs no more: results of requests that are kept no longer, and the
room of all of it on disk.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from crdt.dot import Millis
from replica.core.purge import Place, Purged, purge
from replica.core.requests import prune_results
from replica.core.storage import StorageError
from replica.logs import logger
from replica.server.runtime import Runtime

__all__ = ["Compactor", "Looked"]

_BUDGET = 200
"""Registers that one transaction looks at, or results that it clears away."""

_log = logger()


@dataclass(frozen=True, slots=True)
class Looked:
    """A walk over everything that is dead."""

    at: Millis
    """When it began."""
    purged: Purged


class Compactor:
    """Drops what can be dropped without anything rising from the dead; one walk at a time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._turn = asyncio.Lock()
        self.looked: Looked | None = None
        """The last walk; none: not since the start."""

    async def compact(self) -> Purged:
        """Walk over everything that is dead, once. Raises StorageError."""
        async with self._turn:
            now = self._runtime.clock()
            done = await self._step(None)
            while done.position is not None:
                done = done.plus(await self._step(done.position))
            self.looked = Looked(now, done)
            while await self._prune() == _BUDGET:
                pass
            await self._shrink()
        if done.tombstones or done.expired or done.superseded:
            _log.info(
                "purged",
                tombstones=done.tombstones,
                expired=done.expired,
                superseded=done.superseded,
                waiting=done.waiting,
            )
        if done.listed:
            _log.warning("purged without waiting for silent members", members=", ".join(done.listed))
        for actor in done.closed:
            _log.info("closed the gaps of a lost incarnation", cluster=actor.cluster)
        return done

    async def _step(self, place: Place | None) -> Purged:
        now, config = self._runtime.clock(), self._runtime.config
        compaction, patience = config.compaction, config.reconcile.timeout
        return await self._runtime.write(
            lambda transaction: purge(
                transaction, now, compaction.max_silence, compaction.grace, place, _BUDGET, patience
            )
        )

    async def _prune(self) -> int:
        now = self._runtime.clock()
        return await self._runtime.write(lambda transaction: prune_results(transaction, now, _BUDGET))

    async def _shrink(self) -> None:
        """Give room back to the disk. That this fails is no failure of the purge: what is dead is gone."""
        try:
            if await asyncio.to_thread(self._runtime.storage.shrink):
                _log.info("gave room back to the disk", file_bytes=self._runtime.storage.stats().file_bytes)
        except StorageError as error:
            _log.error("the store refuses", reason=str(error))

    async def run(self) -> None:
        """Do it from time to time, until cancelled."""
        while True:
            await asyncio.sleep(self._runtime.config.compaction.interval / 1000)
            try:
                await self.compact()
            except StorageError as error:
                _log.error("the store refuses", reason=str(error))
