"""What flows from a supplier to one consumer: batches under a window, or a reconcile (DESIGN sections 5 and
7).

Parts of a :class:`replica.core.supplier_session.SupplierSession`: they read snapshots and decide what is
next.
"""

from __future__ import annotations

from collections import deque

from crdt.clock import Clock
from crdt.dot import Millis
from replica.core.damage import is_damaged
from replica.core.fingerprint import BEYOND, level_at, parts
from replica.core.identity import Identity
from replica.core.messages import OUTLINE_PARTS, Batch, Outline, Part, ProtocolError, Range, RangeAck
from replica.core.rows import get_clock, get_sequence
from replica.core.storage import Snapshot
from replica.core.supplier import Asker, read_batch, read_range

__all__ = ["BatchFlow", "RangeFlow"]

_LEAST_FIRST = 1 << 14


class BatchFlow:
    """Batches after a cursor, a few of them on the way at a time."""

    def __init__(
        self, asker: Asker, after: int, their_clock: Clock, window: int, limit: int, *, filling: bool
    ) -> None:
        self.sent = after
        """The consumer's cursor once it has applied all that was sent."""
        self.damaged: set[bytes] = set()
        """Keys that could not be read, and are damaged still."""
        self._asker = asker
        self._their_clock = their_clock
        self._window = window
        self._limit = limit
        self._filling = filling
        self._on_the_way: deque[int] = deque()
        self._looked_at: tuple[int, Clock] | None = None
        """The end of the log and the clock at which there was nothing to say."""

    def acknowledge(self, sequence: int) -> None:
        """The consumer has everything up to here on disk. Raises ProtocolError."""
        if sequence > self.sent:
            raise ProtocolError("it acknowledges what was not sent")
        while self._on_the_way and self._on_the_way[0] <= sequence:
            self._on_the_way.popleft()

    def has_seen(self, clock: Clock) -> None:
        """The consumer says that it has seen this."""
        self._their_clock = self._their_clock.join(clock)

    def next(self, snapshot: Snapshot, identity: Identity, now: Millis, *, flush: bool) -> list[Batch]:
        """What is to be sent now: changes, or a clock that is news to the consumer.

        That the cursor could move on over changes which the consumer itself had sent is said only with
        ``flush``, from time to time.
        """
        here = (get_sequence(snapshot), get_clock(snapshot))
        self.damaged = {key for key in self.damaged if is_damaged(snapshot, key)}
        out: list[Batch] = []
        while len(self._on_the_way) < self._window and (flush or self._looked_at != here):
            read = read_batch(
                snapshot,
                identity,
                self._asker,
                self.sent,
                self._limit,
                now,
                filling=self._filling,
            )
            self.damaged.update(read.damaged)
            batch = read.batch
            at_end = batch.upto >= here[0]
            news = batch.complete and (self._filling or not batch.clock.leq(self._their_clock))
            moves = batch.upto > batch.after and (flush or not at_end)
            if not (batch.changes or news or moves):
                self._looked_at = None if read.waits else here
                break
            out.append(batch)
            self.sent = batch.upto
            self._on_the_way.append(batch.upto)
            if batch.complete:
                self._filling = False
                self.has_seen(batch.clock)
            if at_end:
                self._looked_at = here
            if at_end or read.waits:
                break
        return out


class RangeFlow:
    """A reconcile: the consumer says where it stands, and gets fingerprints or registers from there on.

    Where the stores may agree, fingerprints are compared first, the coarsest that start there; where they
    differ, finer ones, and in the end the registers. While one range after another is needed they grow.
    """

    def __init__(self, asker: Asker, mark: int, limit: int) -> None:
        self.mark = mark
        """The number of the consumer's entry on the list when the reconcile began; 0: it was not on it."""
        self.damaged: bytes | None = None
        """The key before whose damaged row the reconcile waits."""
        self._asker = asker
        self._limit = limit
        self._ready: RangeAck | None = None
        self._outlined: bytes | None = None
        self._least = 0

    def ready(self, message: RangeAck) -> None:
        """The consumer has done everything below a position, and waits for more."""
        if self._outlined is not None and message.position != self._outlined:
            self._least = 0
        self._ready = message

    def next(self, snapshot: Snapshot, identity: Identity, now: Millis) -> Outline | Range | None:
        """What is to be sent now; none: it is the consumer's turn, or a damaged row is in the way."""
        if self._ready is None:
            return None
        start, descend = self._ready.position, self._ready.descend
        level = 0 if start >= BEYOND or descend == 1 else level_at(snapshot, start)
        if descend > 1:
            level = min(level, descend - 1)
        if level:
            self._ready, self._outlined = None, start
            found = parts(snapshot, level, start, OUTLINE_PARTS)
            return Outline(
                store_id=identity.store_id,
                for_incarnation=self._asker.incarnation,
                for_store_id=self._asker.store_id,
                mark=self.mark,
                level=level,
                start=start,
                parts=tuple(Part(stop, fingerprint) for stop, fingerprint in found),
                now=now,
            )
        read = read_range(snapshot, identity, self._asker, start, self._least, self._limit, now)
        self.damaged = read.damaged
        if read.range is None:
            return None
        self._ready, self._outlined = None, None
        self._least = min(max(self._least * 2, _LEAST_FIRST), self._limit)
        return read.range
