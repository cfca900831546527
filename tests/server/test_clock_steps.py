"""A clock that steps while its replica serves: it is found out before anything is decided by it."""

from __future__ import annotations

import grpc
import pytest

from crdt.dot import Millis
from replica.server.runtime import system_clock
from replica.wire import admin_pb2 as apb
from replica.wire import memory_pb2 as pb
from tests.server.served import Served, Start
from tests.server.test_replication import agreed, introduce, status_of

HOURS = 5 * 3_600_000


class StepClock:
    """A clock that can be set."""

    def __init__(self) -> None:
        self.ahead = 0

    def __call__(self) -> Millis:
        return Millis(system_clock() + self.ahead)


async def pair(start: Start, clock: StepClock) -> tuple[Served, Served]:
    """Two replicas, the second of which has the clock, and an entry that lives for an hour."""
    quick = {"compaction__grace": "1ms"}
    eu, us = await start("eu", **quick), await start("us", clock, **quick)
    await introduce(eu, us)
    await eu.remember("t", "a", title="lives", ttl_seconds=3600)
    await agreed(eu, us)
    for one, other in ((eu, "us"), (us, "eu")):
        await status_of(one, other, lambda peer: peer.HasField("skew_ms") and peer.acknowledged > 0)
    return eu, us


async def test_a_purge_right_after_a_step_purges_nothing(start: Start) -> None:
    clock = StepClock()
    eu, us = await pair(start, clock)
    clock.ahead = HOURS
    done = await us.admin.Compact(apb.CompactRequest())
    assert (done.purged_expired, done.waiting) == (0, 1)
    assert not (await us.recall("t", "a")).exists
    clock.ahead = 0
    assert (await us.recall("t", "a")).title == "lives"
    assert (await eu.recall("t", "a")).title == "lives"


@pytest.mark.parametrize("call", ["remember", "lapse"])
async def test_a_write_right_after_a_step_destroys_nothing(start: Start, call: str) -> None:
    clock = StepClock()
    eu, us = await pair(start, clock)
    clock.ahead = HOURS
    written = (
        us.remember("t", "a", title="over it")
        if call == "remember"
        else us.memory.Forget(pb.ForgetRequest(key="repo/r/mem/t/a", lapse=True))
    )
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await written
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (await eu.recall("t", "a")).title == "lives"
