"""A stream between two simulated replicas: both ends of a session, and what is on the way between them.

The network of a fleet is its streams. Messages of one stream and direction arrive in order, as on any
connection, after any delay; those of different streams in any order; all that is on the way is lost when a
stream ends.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from replica.core.consumer_session import ConsumerSession
from replica.core.messages import Batch, ConsumerMessage, Hello, Outline, Range, SupplierMessage, Welcome
from replica.core.supplier_session import SupplierSession
from replica.simulator.process import Process
from replica.simulator.witness import Flight

__all__ = ["Stream", "size_of"]

_FRAME_BYTES = 40
"""About what a message takes besides what grows with the store."""

_ROW_BYTES = 24
"""About what a row of a clock takes."""


@dataclass(slots=True)
class Stream:
    """A stream that is open."""

    consumer: Process
    supplier: Process
    pulling: ConsumerSession
    serving: SupplierSession
    to_supplier: deque[ConsumerMessage] = field(default_factory=deque)
    to_consumer: deque[Flight] = field(default_factory=deque)

    consumer_polled: int = -1
    """The version of the consumer's store when its session was last asked for what to send."""
    supplier_polled: int = -1

    @property
    def ended(self) -> bool:
        """Whether it is over. What a supplier says last still arrives."""
        return self.pulling.ended is not None or (self.serving.ended is not None and not self.to_consumer)

    @property
    def idle(self) -> bool:
        """Whether nothing is on the way."""
        return not self.to_supplier and not self.to_consumer

    def close(self, reason: str) -> None:
        """End both ends; what is on the way is lost."""
        self.pulling.fail(reason)
        self.serving.fail(reason)
        self.to_supplier.clear()
        self.to_consumer.clear()


def size_of(message: ConsumerMessage | SupplierMessage) -> int:
    """About how many bytes a message takes on a wire."""
    size = _FRAME_BYTES
    match message:
        case Batch() | Range():
            size += sum(len(change.key) + len(change.register) for change in message.changes)
            size += _ROW_BYTES * len(message.clock.runs)
        case Hello() | Welcome():
            size += _ROW_BYTES * len(message.clock.runs)
        case Outline():
            size += sum(len(part.stop) + len(part.fingerprint) for part in message.parts)
        case _:
            pass
    if not isinstance(message, Batch | Range | Outline):
        for statement in getattr(message, "knowledge", ()):
            size += len(statement.cluster) + _ROW_BYTES * (1 + len(statement.clock.runs))
    return size
