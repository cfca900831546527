"""What a replica does by itself from time to time.

It says that it runs, so that its own downtime is nobody's silence; and it notices when its clock was set, so
that the silences and clocks of others are not misjudged (DESIGN section 6).
"""

from __future__ import annotations

import asyncio
import time

from crdt.dot import Millis
from replica.core.membership import clock_stepped, grain, keep_alive
from replica.core.storage import StorageError, Transaction
from replica.logs import logger
from replica.server.runtime import Runtime

__all__ = ["keep_house"]

_EVERY = 1.0
"""Seconds."""
_STEP = Millis(1_000)
"""How far a clock may drift in that time before it counts as set."""

_log = logger()


async def keep_house(runtime: Runtime) -> None:
    """Do it until cancelled."""
    max_silence = runtime.config.compaction.max_silence
    seen, elapsed, alive_at = runtime.clock(), time.monotonic(), Millis(0)
    while True:
        await asyncio.sleep(_EVERY)
        now, later = runtime.clock(), time.monotonic()
        step = Millis(now - seen - round((later - elapsed) * 1000))
        seen, elapsed = now, later
        stepped = abs(step) > _STEP
        if not stepped and abs(now - alive_at) < grain(max_silence):
            continue

        def note(
            transaction: Transaction, *, now: Millis = now, step: Millis | None = step if stepped else None
        ) -> None:
            if step is not None:
                clock_stepped(transaction, step)
            keep_alive(transaction, now, max_silence)

        if stepped:
            _log.warning("the clock of this machine was set", by_ms=step)
        try:
            await runtime.write(note)
            alive_at = now
        except StorageError as error:
            _log.error("the store refuses", reason=str(error))
