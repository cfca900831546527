"""How many bytes a message between replicas takes as protobuf, without the frames of gRPC, HTTP/2 and TLS."""

from __future__ import annotations

from typing import cast

from replica.core.messages import ConsumerMessage, SupplierMessage
from replica.wire.sessions import to_consumer, to_supplier

__all__ = ["wire_size"]


def wire_size(message: ConsumerMessage | SupplierMessage, towards_supplier: bool) -> int:
    """The bytes of a message; a heartbeat differs with the way that it goes."""
    if towards_supplier:
        return to_supplier(cast(ConsumerMessage, message)).ByteSize()
    return to_consumer(cast(SupplierMessage, message)).ByteSize()
