"""Watch over sockets: what happens arrives, from here and from elsewhere, and a reader that comes back misses
nothing.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status.rpc_status import from_call

from crdt.dot import Millis
from replica.server.runtime import system_clock
from replica.wire import admin_pb2 as apb
from replica.wire import memory_pb2 as pb
from tests.server.served import Served, Start

Call = grpc.aio.UnaryStreamCall[pb.WatchRequest, pb.WatchResponse]


class Reader:
    """Reads a watch event by event."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.token = ""
        """Of the last event."""
        self._events: list[pb.WatchEvent] = []

    async def event(self) -> pb.WatchEvent:
        while not self._events:
            response = await self.call.read()
            assert isinstance(response, pb.WatchResponse), "a watch never ends by itself"
            self._events += response.events
        event = self._events.pop(0)
        self.token = event.resume_token
        return event

    async def next(self) -> tuple[str, str]:
        """What happens next, and to which id; progress is passed over."""
        while True:
            event = await self.event()
            kind = event.WhichOneof("event")
            assert kind is not None
            if kind != "progress":
                happened: pb.Entry | pb.Removal = getattr(event, kind)
                return kind, happened.id

    async def until_caught_up(self) -> list[tuple[str, str]]:
        found = []
        while True:
            event = await self.event()
            kind = event.WhichOneof("event")
            if kind == "progress":
                assert event.progress.caught_up
                return found
            assert kind is not None
            found.append((kind, getattr(event, kind).id))


@asynccontextmanager
async def watching(served: Served, **request: Any) -> AsyncIterator[Reader]:  # noqa: ANN401 - as the message
    call: Any = served.memory.Watch(pb.WatchRequest(**request))
    try:
        yield Reader(call)
    finally:
        call.cancel()


async def forget(served: Served, topic: str, id: str) -> None:
    await served.memory.Forget(pb.ForgetRequest(key=f"repo/r/mem/{topic}/{id}"))


async def refusal(served: Served, **request: Any) -> tuple[grpc.StatusCode, str, str]:  # noqa: ANN401 - likewise
    """The code, the field at fault and the remedy of a watch that is refused."""
    async with watching(served, **request) as reader:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await reader.event()
    status: Any = from_call(caught.value)  # type: ignore[arg-type]  # it takes both kinds of calls
    info, violation = ErrorInfo(), BadRequest()
    for detail in status.details:
        detail.Unpack(info) or detail.Unpack(violation)
    return caught.value.code(), info.metadata["field"], info.metadata["remedy"]


async def test_writes_are_told_as_they_come(served: Served) -> None:
    async with watching(served) as reader:
        assert await reader.until_caught_up() == []
        await served.remember("t", "a", title="first")
        event = await reader.event()
        assert event.put == await served.recall("t", "a")
        await served.memory.Update(pb.UpdateRequest(key="repo/r/mem/t/a", title="second"))
        assert (await reader.event()).put.title == "second"
        await forget(served, "t", "a")
        event = await reader.event()
        assert event.forgotten == pb.Removal(key="repo/r/mem/t/a", repo_id="r", topic="t", id="a")


async def test_a_lapse_is_told_when_it_takes_effect_and_not_before(served: Served) -> None:
    async with watching(served) as reader:
        await served.remember("t", "a", ttl_seconds=0.2)
        assert await reader.next() == ("put", "a")
        event = await reader.event()
        while event.WhichOneof("event") == "progress":
            event = await reader.event()
        assert system_clock() >= event.lapsed.expires_at_ms > 0
        assert not (await served.recall("t", "a")).exists


async def test_a_clock_that_is_set_is_noticed(start: Start) -> None:
    time = [Millis(1_000_000)]
    served = await start(clock=lambda: time[0])
    async with watching(served) as reader:
        await served.remember("t", "a", ttl_seconds=3600)
        assert await reader.next() == ("put", "a")
        time[0] = Millis(time[0] + 3_600_000)
        assert await reader.next() == ("lapsed", "a")
        time[0] = Millis(time[0] - 1)
        assert await reader.next() == ("put", "a")


async def test_the_initial_state_comes_first_and_then_what_changes(served: Served) -> None:
    for id in "cab":
        await served.remember("t", id)
    await served.remember("u", "d")
    await forget(served, "t", "c")
    async with watching(served, repo_id="r", topic="t", initial_state=True) as reader:
        assert await reader.until_caught_up() == [("put", "a"), ("put", "b")]
        await served.remember("u", "e")
        await served.remember("t", "f")
        assert await reader.next() == ("put", "f")


async def test_a_reader_that_comes_back_misses_nothing_and_sees_nothing_twice(served: Served) -> None:
    ids = [f"{at:03}" for at in range(250)]
    for id in ids:
        await served.remember("t", id)
    seen: list[tuple[str, str]] = []
    token = ""
    while len(seen) < len(ids):
        async with watching(served, repo_id="r", initial_state=True, resume_token=token) as reader:
            seen += [await reader.next() for _ in range(min(90, len(ids) - len(seen)))]
        token = reader.token
    assert seen == [("put", id) for id in ids]
    await forget(served, "t", "000")
    await served.remember("t", "new")
    await served.memory.Forget(pb.ForgetRequest(key="repo/r/mem/t/001", lapse=True, lapse_seconds=0.05))
    while (await served.recall("t", "001")).exists:
        pass
    async with watching(served, repo_id="r", resume_token=token) as reader:
        assert sorted(await reader.until_caught_up()) == [
            ("forgotten", "000"),
            ("lapsed", "001"),
            ("put", "new"),
        ]
        token = reader.token
    async with watching(served, repo_id="r", resume_token=token) as reader:
        assert await reader.until_caught_up() == []


async def test_changes_from_elsewhere_are_told(start: Start) -> None:
    eu = await start("eu")
    us = await start("us", peers={"eu": eu.replica.replication_address})
    async with watching(us, repo_id="r") as reader:
        await reader.until_caught_up()
        await eu.remember("t", "a", title="from eu")
        event = await reader.event()
        while event.WhichOneof("event") == "progress":
            event = await reader.event()
        assert event.put.title == "from eu"
        await forget(eu, "t", "a")
        assert await reader.next() == ("forgotten", "a")


async def test_silence_is_broken_by_progress(served: Served) -> None:
    async with watching(served, repo_id="other", progress_seconds=0.1) as reader:
        await reader.until_caught_up()
        before = reader.token
        await served.remember("t", "a")
        while reader.token == before:
            event = await reader.event()
            assert event.progress.caught_up
            assert 0 < event.progress.at_ms <= system_clock()
    async with watching(served, repo_id="other", resume_token=reader.token) as again:
        assert await again.until_caught_up() == []


async def test_a_slow_reader_holds_up_nobody_and_is_told_how_things_stand(served: Served) -> None:
    body = "x" * 60_000
    async with watching(served) as slow, watching(served) as quick:
        await slow.until_caught_up()
        await quick.until_caught_up()
        writes = 0
        for round in range(6):
            for at in range(40):
                await served.remember("t", f"{at}", body=body, title=f"{round}")
                writes += 1
                while await quick.next() != ("put", f"{at}"):
                    pass
        titles: dict[str, str] = {}
        told = 0
        while len(titles) < 40 or set(titles.values()) != {"5"}:
            event = await slow.event()
            if event.WhichOneof("event") == "put":
                titles[event.put.id] = event.put.title
                told += 1
        assert told < writes


async def test_a_token_that_is_not_of_this_watch_is_refused(start: Start) -> None:
    eu, us = await start("eu"), await start("us")
    async with watching(eu, repo_id="r") as reader:
        await reader.until_caught_up()
    code, field, remedy = await refusal(us, repo_id="r", resume_token=reader.token)
    assert (code, field) == (grpc.StatusCode.OUT_OF_RANGE, "resume_token")
    assert "initial_state" in remedy
    for bad in ({"repo_id": "s"}, {}, {"repo_id": "r", "topic": "t"}):
        code, field, _ = await refusal(eu, resume_token=reader.token, **bad)
        assert (code, field) == (grpc.StatusCode.INVALID_ARGUMENT, "resume_token")


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("repo_id", {"topic": "t"}),
        ("repo_id", {"repo_id": ""}),
        ("topic", {"repo_id": "r", "topic": "a\nb"}),
        ("resume_token", {"resume_token": "?"}),
        *(("progress_seconds", {"progress_seconds": value}) for value in (0, -1, 0.05, math.nan, math.inf)),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(
    served: Served, field: str, request_: dict[str, Any]
) -> None:
    assert (await refusal(served, **request_))[:2] == (grpc.StatusCode.INVALID_ARGUMENT, field)


async def test_a_purge_sends_those_away_that_it_passed_by(start: Start) -> None:
    served = await start(compaction__grace="1ms")
    async with watching(served) as reader:
        await reader.until_caught_up()
    before = reader.token
    await served.remember("t", "a")
    await forget(served, "t", "a")
    purged = 0
    while not purged:
        purged = (await served.admin.Compact(apb.CompactRequest())).purged_tombstones
    assert (await refusal(served, resume_token=before))[0] is grpc.StatusCode.OUT_OF_RANGE
    async with watching(served, initial_state=True) as reader:
        assert await reader.until_caught_up() == []


async def test_a_replica_that_stops_ends_every_watch(start: Start) -> None:
    served = await start()
    async with watching(served) as reader:
        await reader.until_caught_up()
        await served.replica.stop()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await reader.event()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
