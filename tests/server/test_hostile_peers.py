"""What comes to the replication listener from no honest replica: it is told so, and nothing else happens."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

from replica.wire import memory_pb2
from replica.wire import replication_pb2 as pb
from replica.wire.replication_pb2_grpc import ReplicationStub
from tests.server.served import Served, Start
from tests.server.test_replication import agreed, fill, introduce, status_of

INCARNATION, STORE = b"\x01" * 16, b"s" * 16


@pytest.fixture
async def channel(served: Served) -> AsyncIterator[grpc.aio.Channel]:
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(served.replica.replication_address, options) as channel:
        yield channel


def hello(**changed: object) -> pb.ConsumerMessage:
    given = {
        "protocol_version": 1,
        "cluster": "us",
        "incarnation": INCARNATION,
        "store_id": STORE,
        "now_ms": 1,
        **changed,
    }
    return pb.ConsumerMessage(hello=pb.Hello(**given))


async def to_its_end(call: grpc.aio.StreamStreamCall) -> None:
    """Read what comes until it ends."""
    while await call.read() is not grpc.aio.EOF:
        pass


async def unharmed(served: Served, before: dict[str, list[tuple[bytes, bytes]]]) -> None:
    """Nothing was changed, and the replica serves its clients and its peers."""
    after = served.rows()
    for table in ("registers", "changes", "clock", "expiries"):
        assert after[table] == before[table]
    assert (await served.recall("t", "a")).title == "kept"
    async with grpc.aio.insecure_channel(served.replica.replication_address) as channel:
        call = ReplicationStub(channel).Pull()
        await call.write(hello(cluster="honest"))
        answer = await call.read()
        assert answer.welcome.verdict == pb.VERDICT_EMPTY


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
        (b"\x0a\x05ab", grpc.StatusCode.INVALID_ARGUMENT),
        (b"", grpc.StatusCode.INVALID_ARGUMENT),
        (hello(cluster="").SerializeToString(), grpc.StatusCode.INVALID_ARGUMENT),
        (hello(cluster="a b").SerializeToString(), grpc.StatusCode.INVALID_ARGUMENT),
        (hello(incarnation=b"short").SerializeToString(), grpc.StatusCode.INVALID_ARGUMENT),
        (
            hello(
                clock=pb.Clock(actors=[pb.ActorRuns(cluster="x", incarnation=STORE, runs=[5, 3])])
            ).SerializeToString(),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            pb.ConsumerMessage(ack=pb.Ack(store_id=STORE, sequence=3)).SerializeToString(),
            grpc.StatusCode.FAILED_PRECONDITION,
        ),
        (b"\x0a" * (66 << 20), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
    ids=[
        "no message",
        "cut short",
        "empty",
        "no cluster",
        "no cluster id",
        "no incarnation",
        "no clock",
        "no hello",
        "too large",
    ],
)
async def test_a_stream_that_begins_with_nonsense_ends_with_a_named_error(
    served: Served, channel: grpc.aio.Channel, data: bytes, code: grpc.StatusCode
) -> None:
    await served.remember("t", "a", title="kept")
    before = served.rows()
    call = channel.stream_stream("/ricordo.v1.Replication/Pull")()
    await call.write(data)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call.read()
    assert raised.value.code() is code
    if code is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        info = ErrorInfo()
        assert rpc_status.from_call(raised.value).details[-1].Unpack(info)
        assert info.reason == code.name
        assert info.metadata["remedy"]
    await unharmed(served, before)


async def test_a_stream_that_turns_into_nonsense_ends(served: Served, channel: grpc.aio.Channel) -> None:
    await served.remember("t", "a", title="kept")
    before = served.rows()
    call = channel.stream_stream("/ricordo.v1.Replication/Pull")()
    await call.write(hello().SerializeToString())
    assert pb.SupplierMessage.FromString(await call.read()).HasField("welcome")
    await call.write(b"\xff\xff")
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await to_its_end(call)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await unharmed(served, before)


QUESTION = {"cluster": "us", "incarnation": INCARNATION, "store_id": STORE}


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("Ask", b"\xff\xff\xff"),
        ("Fetch", b"\xff\xff\xff"),
        ("Ask", b""),
        *(
            ("Ask", pb.AskRequest(**{**QUESTION, **wrong}).SerializeToString())
            for wrong in (
                {"cluster": ""},
                {"cluster": "c" * 129},
                {"cluster": "a\0"},
                {"incarnation": b"short"},
                {"store_id": b""},
            )
        ),
        *(
            ("Fetch", pb.FetchRequest(keys=[key]).SerializeToString())
            for key in (b"", b"k", b"r\0t\0", b"r\0t\0\xff", b"k" * 1000)
        ),
    ],
)
async def test_a_question_that_is_none_is_an_invalid_argument(
    served: Served, channel: grpc.aio.Channel, method: str, data: bytes
) -> None:
    await served.remember("t", "a", title="kept")
    before = served.rows()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await channel.unary_unary(f"/ricordo.v1.Replication/{method}")(data)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await unharmed(served, before)


async def test_more_keys_than_one_may_fetch_are_refused(served: Served, channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="at most 100") as raised:
        await ReplicationStub(channel).Fetch(pb.FetchRequest(keys=[b"k"] * 101))
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_another_protocol_version_is_refused_in_words(
    served: Served, channel: grpc.aio.Channel
) -> None:
    await served.remember("t", "a", title="kept")
    before = served.rows()
    call = ReplicationStub(channel).Pull()
    await call.write(hello(protocol_version=2))
    answer = await call.read()
    assert (answer.welcome.verdict, answer.welcome.cause) == (pb.VERDICT_REFUSED, pb.CAUSE_PROTOCOL_VERSION)
    assert await call.read() is grpc.aio.EOF
    told = await status_of(served, "us", lambda peer: bool(peer.last_error))
    assert "version 2" in told.last_error
    await unharmed(served, before)


async def test_a_cursor_from_the_future_of_another_store_is_no_reason_to_trust_it(
    served: Served, channel: grpc.aio.Channel
) -> None:
    await served.remember("t", "a", title="kept")
    before = served.rows()
    call = ReplicationStub(channel).Pull()
    clock = pb.Clock(actors=[pb.ActorRuns(cluster="us", incarnation=INCARNATION, runs=[1, 4])])
    await call.write(hello(clock=clock, cursor=pb.Cursor(store_id=STORE, sequence=2**40)))
    answer = await call.read()
    assert (answer.welcome.verdict, answer.welcome.cause) == (
        pb.VERDICT_RECONCILE,
        pb.CAUSE_OTHER_STORE,
    )
    await unharmed(served, before)


async def test_a_cursor_from_the_future_of_this_store_begins_a_new_incarnation(
    served: Served, channel: grpc.aio.Channel
) -> None:
    await served.remember("t", "a", title="kept")
    before, status = served.rows(), await served.status()
    call = ReplicationStub(channel).Pull()
    await call.write(hello(cursor=pb.Cursor(store_id=status.store_id, sequence=2**40)))
    answer = await call.read()
    assert (answer.welcome.verdict, answer.welcome.cause) == (
        pb.VERDICT_REFUSED,
        pb.CAUSE_SUPPLIER_ROLLED_BACK,
    )
    after = await served.status()
    assert after.incarnation > status.incarnation
    assert after.store_id != status.store_id
    await served.remember("t", "b")
    assert (await served.memory.History(memory_pb2.HistoryRequest(key="repo/r/mem/t/b"))).exists
    before["registers"] = served.rows()["registers"]
    before["changes"], before["clock"] = served.rows()["changes"], served.rows()["clock"]
    await unharmed(served, before)


async def test_a_consumer_that_reads_nothing_slows_down_nobody_else(start: Start) -> None:
    eu, us = await start("eu"), await start("us")
    await fill(eu, "eu", 600, body="x" * 20_000)
    async with grpc.aio.insecure_channel(eu.replica.replication_address) as channel:
        call = ReplicationStub(channel).Pull()
        await call.write(hello(cluster="lazy"))
        await introduce(eu, us)
        await agreed(eu, us)
        lazy = await status_of(eu, "lazy", lambda peer: True)
        # It never said that anything is on its disk: no more than the window is on the way.
        assert lazy.sent_bytes < 6 << 20


async def test_a_consumer_that_never_speaks_is_let_go(start: Start) -> None:
    eu = await start("eu", replication__heartbeat="50ms", replication__silence="200ms")
    async with grpc.aio.insecure_channel(eu.replica.replication_address) as channel:
        call = ReplicationStub(channel).Pull()
        with pytest.raises(grpc.aio.AioRpcError, match="silent") as raised:
            await call.read()
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_streams_end_when_the_replica_stops(start: Start, served: Served) -> None:
    us = await start("us")
    await us.replica.stop()
    async with grpc.aio.insecure_channel(served.replica.replication_address) as channel:
        call = ReplicationStub(channel).Pull()
        await call.write(hello())
        assert (await call.read()).HasField("welcome")
        stopping = asyncio.create_task(served.replica.stop())
        with pytest.raises(grpc.aio.AioRpcError, match="stopping") as raised:
            await to_its_end(call)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        await stopping
