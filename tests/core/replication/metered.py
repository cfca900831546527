"""Streams that count what goes over them: the cost of replication, without a clock."""

from __future__ import annotations

from dataclasses import dataclass

from replica.core.messages import Batch, Outline, Range
from replica.core.session import Outcome
from replica.wire.sessions import to_consumer, to_supplier
from tests.core.replication.small_fleet import Site, Stream

__all__ = ["Cost", "metered_pull"]


@dataclass
class Cost:
    """What went over streams."""

    messages: int = 0
    bytes: int = 0
    """As they are on the wire."""
    registers: int = 0
    outlines: int = 0
    ranges: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.messages + other.messages,
            self.bytes + other.bytes,
            self.registers + other.registers,
            self.outlines + other.outlines,
            self.ranges + other.ranges,
        )


class _Metered(Stream):
    def __init__(self, consumer: Site, supplier: Site) -> None:
        super().__init__(consumer, supplier)
        self.cost = Cost()

    def deliver_up(self) -> None:
        self.cost += Cost(1, to_supplier(self.up[0]).ByteSize())
        super().deliver_up()

    def deliver_down(self) -> Outcome | None:
        message = self.down[0]
        registers = len(message.changes) if isinstance(message, Batch | Range) else 0
        outlines, ranges = isinstance(message, Outline), isinstance(message, Range)
        self.cost += Cost(1, to_consumer(message).ByteSize(), registers, outlines, ranges)
        return super().deliver_down()


def metered_pull(consumer: Site, supplier: Site) -> tuple[Cost, Stream]:
    """One whole stream, until the consumer has everything, and what it cost."""
    stream = _Metered(consumer, supplier)
    stream.run()
    return stream.cost, stream
