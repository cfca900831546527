"""What goes wrong inside: deadlines in the middle of a commit, and what nobody foresaw."""

import asyncio
import io
import json
import logging
import shutil
import threading
from collections.abc import Iterator

import grpc
import pytest
import structlog

from crdt.dot import Millis
from replica.logs import configure_logs
from replica.server.runtime import system_clock
from replica.wire import memory_pb2 as pb
from replica.wire.memory_pb2_grpc import MemoryStub
from tests.server.served import Served, Start


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    handlers, level = logging.root.handlers[:], logging.root.level
    stream = io.StringIO()
    configure_logs("info", "json", stream)
    yield stream
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


async def test_a_deadline_in_the_middle_of_a_commit_is_honoured_and_a_repeat_is_the_same_write(
    served: Served,
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def hold_the_turn_to_write() -> None:
        with served.replica.runtime.storage.transaction():
            began.set()
            go_on.wait(30)

    holder = asyncio.get_running_loop().run_in_executor(None, hold_the_turn_to_write)
    await asyncio.to_thread(began.wait)
    request = pb.RememberRequest(repo_id="r", topic="t", id="a", tags=["x"], request_id="q")
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await served.memory.Remember(request, timeout=0.3)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    # Reads go on meanwhile.
    assert not (await served.recall("t", "a")).exists
    go_on.set()
    await holder
    assert (await served.memory.Remember(request)).created
    assert (await served.status()).sequence == 1


async def test_what_nobody_foresaw_is_internal_and_only_the_log_says_more(
    start: Start, logged: io.StringIO
) -> None:
    faults = ["a body that nobody may see"]

    def clock() -> Millis:
        if faults and started:
            raise RuntimeError(faults[0])
        return system_clock()

    started = False
    served = await start(clock=clock)
    started = True
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await served.recall("t", "a")
    assert raised.value.code() is grpc.StatusCode.INTERNAL
    details = raised.value.details() or ""
    [line] = [json.loads(line) for line in logged.getvalue().splitlines() if "incident" in line]
    assert line["incident"] in details
    assert (line["fault"], line["method"]) == ("RuntimeError", "/ricordo.v1.Memory/Recall")
    assert "test_faults.py" in line["at"]
    assert faults[0] not in details
    assert faults[0] not in logged.getvalue()
    faults.clear()
    assert not (await served.recall("t", "a")).exists


async def test_nothing_of_an_entry_is_logged(start: Start, logged: io.StringIO) -> None:
    served = await start()
    await served.remember("t", "a", title="hush", body="hush", tags=["hush"], author="hush")
    with pytest.raises(grpc.aio.AioRpcError):
        await served.remember("t", "a", title="hush" * 1000)
    assert "hush" not in logged.getvalue()


async def test_a_data_directory_that_was_removed_takes_no_writes(start: Start) -> None:
    served = await start()
    await served.remember("t", "a", title="kept")
    shutil.rmtree(served.folder)
    for call in (served.remember("t", "b"), served.status()):
        with pytest.raises(grpc.aio.AioRpcError, match="removed, moved or replaced") as raised:
            await call
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (await served.recall("t", "a")).title == "kept"


async def test_a_reader_that_goes_amid_a_message_is_no_fault(start: Start, logged: io.StringIO) -> None:
    served = await start()
    for number in range(60):
        await served.remember("t", str(number), body="x" * 60_000)
    # The connection takes little before somebody reads it: a message is always on its way.
    narrow = [("grpc.http2.bdp_probe", 0)]
    async with grpc.aio.insecure_channel(served.replica.listen_address, narrow) as channel:
        for _ in range(20):
            watching = MemoryStub(channel).Watch(pb.WatchRequest(initial_state=True))
            assert (await watching.read()).events
            await served.recall("t", "0")
            watching.cancel()
    await served.replica.stop()
    assert [line for line in logged.getvalue().splitlines() if json.loads(line)["level"] == "error"] == []
