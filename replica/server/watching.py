"""Watches as streams: the core's steps, driven by commits, by the next lapse and by silence.

A watch holds its position and nothing else. While its reader takes no message it takes no step, so what a
slow reader costs is the time until it comes back to the log.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import suppress

from replica.core.errors import Code, Refused
from replica.core.scope import check_scope
from replica.core.watch import advance, begin, read_position
from replica.server.healing import Healer
from replica.server.runtime import Runtime
from replica.wire import memory_pb2 as pb
from replica.wire.answers import progress_message, watch_event_message

__all__ = ["PROGRESS_SECONDS", "watch"]

PROGRESS_SECONDS = 10.0
"""After which silence a reader hears how far the stream is, unless it asks for another time."""

_LEAST_PROGRESS_SECONDS = 0.1
_STEP_ROWS = 100
"""What a step may take of the event loop's time: some milliseconds."""
_LONGEST_SLEEP = 1.0
"""Seconds after which the clock is looked at again: it may have been set."""
_SHORTEST_SLEEP = 0.001


async def watch(
    runtime: Runtime, healer: Healer, request: pb.WatchRequest
) -> AsyncGenerator[pb.WatchResponse, None]:
    """The stream of a watch. Raises Refused; never ends by itself."""
    scope = check_scope(
        request.repo_id if request.HasField("repo_id") else None,
        request.topic if request.HasField("topic") else None,
    )
    patience = _patience(request)
    position = read_position(scope, request.resume_token) if request.resume_token else None
    stir = asyncio.Event()
    runtime.stirred.add(stir)
    try:
        if position is None:
            with runtime.snapshot() as snapshot:
                position = begin(snapshot, scope, runtime.clock(), initial_state=request.initial_state)
        loop = asyncio.get_running_loop()
        said = loop.time()
        introduced = False
        while True:
            stir.clear()
            if runtime.stopping:
                raise Refused(Code.UNAVAILABLE, "the replica is stopping; repeat the call")
            with runtime.snapshot() as snapshot:
                now = runtime.clock()
                step = advance(snapshot, scope, position, now, runtime.limits, _STEP_ROWS)
            healer.found(key.to_store() for key in step.damaged)
            position = step.position
            events = [watch_event_message(scope, event) for event in step.events]
            overdue = loop.time() >= said + patience
            if (step.caught_up and not introduced) or (overdue and not events):
                introduced = introduced or step.caught_up
                events.append(progress_message(scope, position, now, step.caught_up))
            if events:
                yield pb.WatchResponse(events=events)
                said = loop.time()
            if not step.caught_up:
                await asyncio.sleep(0)
                continue
            sleep = min(_LONGEST_SLEEP, said + patience - loop.time())
            if step.deadline is not None:
                sleep = min(sleep, (step.deadline - runtime.clock()) / 1000)
            with suppress(TimeoutError):
                # Not wait_for: in Python 3.11 it can swallow a cancellation.
                async with asyncio.timeout(max(sleep, _SHORTEST_SLEEP)):
                    await stir.wait()
    finally:
        runtime.stirred.discard(stir)


def _patience(request: pb.WatchRequest) -> float:
    """Seconds of silence before a sign of progress."""
    if not request.HasField("progress_seconds"):
        return PROGRESS_SECONDS
    seconds = request.progress_seconds
    if not (math.isfinite(seconds) and seconds >= _LEAST_PROGRESS_SECONDS):
        raise Refused(
            Code.INVALID_ARGUMENT,
            f"must be finite, and at least {_LEAST_PROGRESS_SECONDS}",
            field="progress_seconds",
        )
    return seconds
