"""A failed call says what happened, where, and what to do."""

import pickle

import grpc
import pytest
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status

from replica.client import (
    AbortedError,
    AlreadyExistsError,
    DataLossError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    RicordoError,
)
from replica.client.errors import from_status
from tests.client.conftest import Face, ScriptedReplica, refusing

FINAL = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.INTERNAL: InternalError,
    grpc.StatusCode.DATA_LOSS: DataLossError,
    grpc.StatusCode.UNIMPLEMENTED: RicordoError,
    grpc.StatusCode.UNAUTHENTICATED: RicordoError,
    grpc.StatusCode.UNKNOWN: RicordoError,
}


def packed(detail: Message) -> Packed:
    made = Packed()
    made.Pack(detail)
    return made


def status(code: grpc.StatusCode, message: str, *details: Packed) -> Status:
    return Status(code=code.value[0], message=message, details=details)


@pytest.mark.parametrize(("code", "kind"), FINAL.items(), ids=lambda given: getattr(given, "name", ""))
async def test_each_code_is_one_error_and_none_of_these_is_asked_again(
    replica: ScriptedReplica, client: Face, code: grpc.StatusCode, kind: type[RicordoError]
) -> None:
    replica.faults.append(refusing(status(code, "what happened")))
    with pytest.raises(RicordoError) as caught:
        await client.ask("remember", "r", "t")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.message) == (code, "what happened")
    assert isinstance(caught.value.__cause__, grpc.RpcError)
    assert len(replica.received) == 1


async def test_the_details_name_the_field_the_reason_and_the_remedy(
    replica: ScriptedReplica, client: Face
) -> None:
    info = ErrorInfo(domain="ricordo", reason="TOO_LONG", metadata={"remedy": "shorten it to 64 KiB"})
    violation = BadRequest.FieldViolation(field="body", description="is 70000 bytes")
    request = BadRequest(field_violations=[violation])
    replica.faults.append(
        refusing(status(grpc.StatusCode.INVALID_ARGUMENT, "body: is too long", packed(request), packed(info)))
    )
    with pytest.raises(InvalidArgumentError) as caught:
        await client.ask("remember", "r", "t")
    error = caught.value
    assert (error.field, error.reason, error.remedy) == ("body", "TOO_LONG", "shorten it to 64 KiB")
    assert str(error) == "body: is too long: shorten it to 64 KiB"


def test_the_field_may_come_with_the_reason_alone() -> None:
    info = ErrorInfo(domain="ricordo", reason="MOVED_ON", metadata={"field": "if_version"})
    error = from_status(status(grpc.StatusCode.ABORTED, "the entry has moved on", packed(info)))
    assert (type(error), error.field, error.remedy) == (AbortedError, "if_version", None)
    assert str(error) == "the entry has moved on"


def test_a_remedy_that_the_message_says_already_is_not_said_twice() -> None:
    info = ErrorInfo(metadata={"remedy": "ask for fewer"})
    error = from_status(status(grpc.StatusCode.RESOURCE_EXHAUSTED, "too large: ask for fewer", packed(info)))
    assert str(error) == "too large: ask for fewer"


def test_damaged_or_unknown_details_leave_the_code_and_the_message() -> None:
    damaged = packed(ErrorInfo())
    damaged.value = b"\xff\xff"
    foreign = packed(Status())
    error = from_status(status(grpc.StatusCode.NOT_FOUND, "no such entry", damaged, foreign))
    assert type(error) is NotFoundError
    assert (str(error), error.field, error.reason) == ("no such entry", None, None)


def test_a_code_that_nobody_knows_is_an_unknown_error() -> None:
    assert from_status(Status(code=4711)).code is grpc.StatusCode.UNKNOWN


def test_an_error_crosses_processes_whole() -> None:
    made = InvalidArgumentError(grpc.StatusCode.INVALID_ARGUMENT, "m", field="f", remedy="do", reason="WHY")
    copy = pickle.loads(pickle.dumps(made))
    assert type(copy) is InvalidArgumentError
    assert vars(copy) == vars(made)
