"""What a store needs no more is cleared away, and its room given back to the disk."""

from __future__ import annotations

import asyncio

from crdt.dot import Millis
from replica.core.requests import KEPT
from replica.wire import admin_pb2, memory_pb2
from tests.server.served import Start


async def test_compact_clears_away_the_results_of_requests_that_nobody_repeats_any_more(start: Start) -> None:
    time = [1_000_000]
    served = await start(clock=lambda: Millis(time[0]))
    repeated = memory_pb2.RememberRequest(repo_id="r", topic="t", id="0", body="b", request_id="id-0")
    first = await served.memory.Remember(repeated)
    writes = (served.remember("t", f"{n}", body="b", request_id=f"id-{n}") for n in range(1, 700))
    await asyncio.gather(*writes)
    await served.admin.Compact(admin_pb2.CompactRequest())
    assert len(served.rows()["requests"]) == 700
    time[0] += KEPT - 1
    await served.admin.Compact(admin_pb2.CompactRequest())
    assert await served.memory.Remember(repeated) == first
    time[0] += 1
    await served.admin.Compact(admin_pb2.CompactRequest())
    assert served.rows()["requests"] == served.rows()["request_times"] == []


async def test_compact_gives_room_back_to_the_disk(start: Start) -> None:
    served = await start()
    keys = [f"{number}" for number in range(200)]
    await asyncio.gather(*(served.remember("t", key, body="b" * 20_000) for key in keys))
    forget = (served.memory.Forget(memory_pb2.ForgetRequest(key=f"repo/r/mem/t/{key}")) for key in keys[1:])
    await asyncio.gather(*forget)
    large = served.replica.runtime.storage.stats().file_bytes
    await served.admin.Compact(admin_pb2.CompactRequest())
    small = served.replica.runtime.storage.stats().file_bytes
    assert small < 0.1 * large
    assert (await served.recall("t", "0")).body == "b" * 20_000
    await served.remember("t", "1", body="b")
    assert (await served.recall("t", "1")).body == "b"
