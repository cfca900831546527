"""A write is made once, however often its answer is lost."""

import asyncio
from uuid import UUID

import grpc
import pytest

from replica.client import (
    DeadlineExceededError,
    InvalidArgumentError,
    Remembered,
    ResourceExhaustedError,
    Retry,
    UnavailableError,
    remember,
)
from replica.wire import memory_pb2
from tests.client.conftest import Face, Faces, ScriptedReplica, ending_with, silence

LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)


@pytest.mark.parametrize("code", LOST)
async def test_a_write_whose_answer_was_lost_is_asked_for_again_and_made_once(
    replica: ScriptedReplica, client: Face, code: grpc.StatusCode
) -> None:
    replica.faults.extend([ending_with(code), ending_with(code)])
    result = await client.ask("remember", "r", "t", title="x")
    first, second, third = replica.received
    assert first == second == third
    assert len(replica.made) == 1
    assert result == Remembered.of(replica.made[first.request_id])


async def test_a_replica_that_stays_silent_is_asked_again_with_the_same_request(
    replica: ScriptedReplica, faces: Faces
) -> None:
    client = faces(replica.address, Retry(attempt_timeout=0.2, first_delay=0.001))
    replica.faults.append(silence)
    result = await client.ask("remember", "r", "t")
    first, second = replica.received
    assert first == second
    assert result.version == "v0"


async def test_a_write_outlasts_a_restart_of_the_replica(faces: Faces) -> None:
    replica = ScriptedReplica()
    replica.answers["Remember"] = replica.make
    server = await replica.start()
    client = faces(replica.address)
    replica.faults.append(silence)
    write = asyncio.create_task(client.ask("remember", "r", "t"))
    await replica.silenced.wait()
    await server.stop(None)
    server = await replica.start(replica.address)
    result = await write
    await server.stop(None)
    first, *others = replica.received
    assert others
    assert all(other == first for other in others)
    assert result.version == "v0"


async def test_update_and_forget_carry_one_request_id_through_all_attempts(
    replica: ScriptedReplica, client: Face
) -> None:
    replica.answers["Update"] = lambda request: memory_pb2.UpdateResponse(key=request.key)
    replica.answers["Forget"] = lambda request: memory_pb2.ForgetResponse(key=request.key)
    for method in ("update", "forget"):
        replica.received.clear()
        replica.faults.append(ending_with(grpc.StatusCode.UNAVAILABLE))
        await client.ask(method, "repo/r/mem/t/1")
        first, second = replica.received
        assert UUID(first.request_id)
        assert first == second


async def test_each_write_of_a_batch_has_a_request_id_of_its_own(
    replica: ScriptedReplica, client: Face
) -> None:
    replica.faults.append(ending_with(grpc.StatusCode.UNAVAILABLE))
    outcomes = await client.ask("remember_many", [remember("r", "t", title=title) for title in "abc"])
    first, second = replica.received
    assert first == second
    assert len({entry.request_id for entry in first.entries}) == 3
    assert [outcome.id for outcome in outcomes] == [entry.id for entry in first.entries]
    assert len(replica.made) == 3


async def test_two_calls_are_two_writes_even_from_one_value(replica: ScriptedReplica, client: Face) -> None:
    call = remember("r", "t", title="same")
    first = await client.ask("run", call)
    second = await client.ask("run", call)
    assert first.id != second.id
    assert len(replica.made) == 2


async def test_ids_that_are_given_are_kept_and_one_that_is_not_is_a_uuid7(
    replica: ScriptedReplica, client: Face
) -> None:
    await client.ask("remember", "r", "t", id="mine", request_id="again")
    await client.ask("remember", "r", "t")
    given, made = replica.received
    assert (given.id, given.request_id) == ("mine", "again")
    assert UUID(made.id).version == 7
    assert UUID(made.request_id).version == 4


async def test_what_would_fail_again_is_not_asked_again(replica: ScriptedReplica, client: Face) -> None:
    replica.faults.append(ending_with(grpc.StatusCode.RESOURCE_EXHAUSTED, "the disk is full"))
    with pytest.raises(ResourceExhaustedError, match="the disk is full"):
        await client.ask("remember", "r", "t")
    assert len(replica.received) == 1


async def test_an_error_of_one_entry_is_its_outcome_and_not_an_exception(
    replica: ScriptedReplica, client: Face
) -> None:
    def half(request: memory_pb2.RememberManyRequest) -> memory_pb2.RememberManyResponse:
        response = memory_pb2.RememberManyResponse()
        response.results.add().remembered.CopyFrom(replica.make(request.entries[0]))
        response.results.add().error.code = grpc.StatusCode.INVALID_ARGUMENT.value[0]
        response.results[1].error.message = "body: too long"
        return response

    replica.answers["RememberMany"] = half
    good, bad = await client.ask("remember_many", [remember("r", "t"), remember("r", "t")])
    assert isinstance(good, Remembered)
    assert isinstance(bad, InvalidArgumentError)
    assert bad.message == "body: too long"


async def test_a_call_ends_with_the_deadline_when_no_answer_comes(
    replica: ScriptedReplica, faces: Faces
) -> None:
    client = faces(replica.address, Retry(deadline=0.3))
    replica.faults.extend([silence] * 10)
    with pytest.raises(DeadlineExceededError):
        await client.ask("remember", "r", "t")
    assert len(replica.made) == 1


async def test_a_call_ends_with_the_deadline_when_nobody_listens(faces: Faces) -> None:
    replica = ScriptedReplica()
    await (await replica.start()).stop(None)
    client = faces(replica.address, Retry(deadline=0.3))
    with pytest.raises(UnavailableError):
        await client.ask("get_status")


async def test_a_deadline_for_one_call_goes_before_that_of_the_client(
    replica: ScriptedReplica, client: Face
) -> None:
    replica.faults.extend([silence] * 10)
    with pytest.raises(DeadlineExceededError):
        await client.ask("run", remember("r", "t"), retry=Retry(deadline=0.3))
