"""From refusals to ``google.rpc.Status``: the one place where an error of ours becomes a canonical code.

The details stay far below the 8 KiB at which gRPC would fail by itself: reasons are sentences of ours, and
both they and the names of fields are cut.
"""

from __future__ import annotations

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc.code_pb2 import Code as RpcCode
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status

from replica.core.errors import Code, Refused
from replica.core.storage import (
    DamagedRow,
    StorageClosed,
    StorageError,
    StorageFull,
    StoreDamaged,
    StoreGone,
)

__all__ = ["DOMAIN", "fault_status", "refusal_of", "refusal_status"]

DOMAIN = "ricordo"
"""Of every ErrorInfo."""

_FIELD_MAX = 256
_REASON_MAX = 1024


def refusal_of(error: StorageError) -> Refused | None:
    """What a storage error means to a caller; none for a fault of the replica."""
    match error:
        case StorageFull():
            return Refused(Code.RESOURCE_EXHAUSTED, str(error))
        case DamagedRow():
            return Refused(
                Code.DATA_LOSS,
                "what is stored there is damaged and was not read; it has to come from a peer again",
            )
        case StoreDamaged():
            return Refused(Code.DATA_LOSS, str(error))
        case StoreGone():
            return Refused(Code.FAILED_PRECONDITION, str(error))
        case StorageClosed():
            return Refused(Code.UNAVAILABLE, "the replica is stopping; repeat the call")
        case _:
            return None


def refusal_status(refused: Refused) -> Status:
    """The status of a call that was refused."""
    field, reason = refused.field[:_FIELD_MAX], refused.reason[:_REASON_MAX]
    details: list[Message] = []
    if field and refused.code in (Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE):
        violation = BadRequest.FieldViolation(field=field, description=reason)
        details.append(BadRequest(field_violations=[violation]))
    metadata = {"remedy": reason} | ({"field": field} if field else {})
    details.append(ErrorInfo(reason=refused.code.value, domain=DOMAIN, metadata=metadata))
    message = f"{field}: {reason}" if field else reason
    return _status(refused.code.value, message, details)


def fault_status(incident: str) -> Status:
    """The status of a call that failed by a fault of the replica: only the name of what its log says."""
    message = f"the replica failed; its log says more under incident {incident}"
    info = ErrorInfo(reason="INTERNAL", domain=DOMAIN, metadata={"incident": incident, "remedy": message})
    return _status("INTERNAL", message, [info])


def _status(code: str, message: str, details: list[Message]) -> Status:
    packed = []
    for detail in details:
        packed.append(AnyMessage())
        packed[-1].Pack(detail)
    return Status(code=RpcCode.Value(code), message=message, details=packed)
