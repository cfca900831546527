"""What a replica does by itself from time to time.

It says that it runs, so that its own downtime is nobody's silence; and where nothing is written, it notices
all the same that its clock was set, so that nobody's silence is misjudged for long (DESIGN section 6).
"""

from __future__ import annotations

import asyncio

from crdt.dot import Millis
from replica.core.membership import grain, keep_alive
from replica.core.storage import StorageError, Transaction
from replica.logs import logger
from replica.server.runtime import Runtime

__all__ = ["keep_house"]

_EVERY = 1.0
"""Seconds."""

_log = logger()


async def keep_house(runtime: Runtime) -> None:
    """Do it until cancelled."""
    max_silence = runtime.config.compaction.max_silence
    alive_at = Millis(0)
    while True:
        await asyncio.sleep(_EVERY)
        now = runtime.clock()
        if not runtime.was_set() and abs(now - alive_at) < grain(max_silence):
            continue

        def note(transaction: Transaction, *, now: Millis = now) -> None:
            keep_alive(transaction, now, max_silence)

        try:
            await runtime.write(note)
            alive_at = now
        except StorageError as error:
            _log.error("the store refuses", reason=str(error))
