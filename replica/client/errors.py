"""What a call can fail with: one exception for each gRPC code that a replica answers with.

The details of a status (`google.rpc`, see `proto/ricordo/v1/memory.proto`) become attributes, so that nobody
has to read them out of a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OutOfRangeError",
    "ResourceExhaustedError",
    "RicordoError",
    "UnavailableError",
    "from_rpc",
    "from_status",
]

DETAILS_KEY = "grpc-status-details-bin"
"""Where gRPC carries the encoded `google.rpc.Status` of a failed call."""


class RicordoError(Exception):
    """A call failed. Codes without an exception of their own come as this one."""

    code: grpc.StatusCode
    message: str
    field: str | None
    """The field of the request at fault, such as `tags[3]`."""
    remedy: str | None
    """What the caller can do, in a sentence."""
    reason: str | None
    """What happened, for programs: a word in UPPER_SNAKE_CASE."""

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        field: str | None = None,
        remedy: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.field = field
        self.remedy = remedy
        self.reason = reason

    def __str__(self) -> str:
        if self.remedy is None or self.remedy in self.message:
            return self.message
        return f"{self.message}: {self.remedy}"


class InvalidArgumentError(RicordoError):
    """A field is missing, malformed or beyond its limit; :attr:`field` names it."""


class NotFoundError(RicordoError):
    """The entry to be changed is absent or past its expiry."""


class AlreadyExistsError(RicordoError):
    """A live entry is there and the call was to make a new one; or a peer is known by another address."""


class AbortedError(RicordoError):
    """The entry is not of the version that the write was for: recall it and decide again."""


class FailedPreconditionError(RicordoError):
    """The replica's state forbids the call: its clock is ahead, or a peer comes from its configuration."""


class OutOfRangeError(RicordoError):
    """What a watch has yet to tell is not known any more: watch anew, with the initial state."""


class ResourceExhaustedError(RicordoError):
    """The disk or the store is full, or a message or an answer is too large."""


class UnavailableError(RicordoError):
    """The replica could not be reached before the deadline. A write may or may not have been made."""


class DeadlineExceededError(RicordoError):
    """The deadline passed without an answer. A write may or may not have been made."""


class InternalError(RicordoError):
    """A fault of the replica; its log says which."""


class DataLossError(RicordoError):
    """A row on the replica's disk is damaged."""


_BY_CODE: Mapping[grpc.StatusCode, type[RicordoError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.OUT_OF_RANGE: OutOfRangeError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.INTERNAL: InternalError,
    grpc.StatusCode.DATA_LOSS: DataLossError,
}
_BY_NUMBER: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}

Detail = TypeVar("Detail", bound=Message)


def from_rpc(error: grpc.RpcError) -> RicordoError:
    """The failure that a gRPC channel raised, blocking or asyncio."""
    assert isinstance(error, grpc.Call | grpc.aio.AioRpcError), "every channel raises one of these"
    status = Status()
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            status = _parsed(Status, value)
    return _made(error.code(), error.details() or "", status)


def from_status(status: Status) -> RicordoError:
    """The failure of one entry of a batch."""
    return _made(_BY_NUMBER.get(status.code, grpc.StatusCode.UNKNOWN), status.message, status)


def _made(code: grpc.StatusCode, message: str, details: Status) -> RicordoError:
    field = remedy = reason = None
    for detail in details.details:
        if detail.Is(ErrorInfo.DESCRIPTOR):
            info = _parsed(ErrorInfo, detail.value)
            reason = info.reason or reason
            field = info.metadata.get("field") or field
            remedy = info.metadata.get("remedy") or remedy
        elif detail.Is(BadRequest.DESCRIPTOR):
            violations = _parsed(BadRequest, detail.value).field_violations
            field = field or next((violation.field for violation in violations), None)
    kind = _BY_CODE.get(code, RicordoError)
    return kind(code, message or code.name, field=field, remedy=remedy, reason=reason)


def _parsed(kind: type[Detail], encoded: bytes) -> Detail:
    """A detail, or an empty one where it does not decode: code and message still say what happened."""
    detail = kind()
    try:
        detail.ParseFromString(encoded)
    except DecodeError:
        return kind()
    return detail
