"""The consumer's end of a replication stream, without I/O (DESIGN sections 5 to 8; see session.py)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from crdt.clock import EMPTY_CLOCK
from crdt.dot import Incarnation, Millis
from replica.core.consumer import Applied, Dropped, apply, greet
from replica.core.doubt import Doubt
from replica.core.identity import Entropy, Identity, read_identity
from replica.core.member_rows import get_member
from replica.core.membership import Told, find_doubt, learn, tell, tell_own
from replica.core.messages import (
    PROTOCOL_VERSION,
    Ack,
    Batch,
    Cause,
    ConsumerMessage,
    Heartbeat,
    Kind,
    Outline,
    ProtocolError,
    Range,
    RangeAck,
    SupplierMessage,
    Verdict,
    Welcome,
)
from replica.core.protocol import check
from replica.core.reconcile import Step, begin, compare, join_range
from replica.core.rows import StoreId, get_cursor
from replica.core.session import (
    Attendance,
    Ended,
    Outcome,
    Settings,
    Work,
    broke_protocol,
    guarded,
    own_words,
    settled,
)
from replica.core.storage import Snapshot, Transaction
from replica.core.underway import busy_with, get_reconcile, give_up_stalled, put_reconcile
from replica.core.verdict import Present

__all__ = ["ConsumerSession"]

_SKEW_GRAIN = 1000


class _Phase(enum.Enum):
    GREETING = "waiting for the supplier's answer"
    TAILING = "applying batches"
    RECONCILING = "reconciling"
    WAITING = "waiting until a filling or a reconcile with another supplier is over"


_RECONCILED = Verdict(Kind.TAIL, Cause.CURSOR, "the reconcile is done")


class ConsumerSession:
    """One stream on which this replica pulls from a supplier."""

    def __init__(
        self,
        supplier: str,
        settings: Settings,
        entropy: Entropy,
        attendance: Attendance | None = None,
    ) -> None:
        self.supplier = supplier
        """The supplier's cluster."""
        self.ended: Ended | None = None
        """Why the session is over; none while it is not."""
        self.verdict: Verdict | None = None
        """The supplier's last."""
        self.supplier_sequence: int | None = None
        """The end of the supplier's log, as it last told."""
        self.skew: Millis | None = None
        """The supplier's clock minus this one's, by the last message."""
        self._settings = settings
        self._entropy = entropy
        self._attendance = attendance if attendance is not None else Attendance()
        self._identity: Identity | None = None
        self._present: Present | None = None
        self._phase = _Phase.GREETING
        self._greet = True
        self._told: Mapping[str, Told] = {}
        self._ack: tuple[StoreId, int] | None = None
        self._range_ack: Step | None = None
        self._heard_at = Millis(0)
        self._beat_at = Millis(0)
        self._told_skew: Millis | None = None

    # --- what the driver calls

    def open(self, now: Millis) -> None:
        """Begin: the stream is open, and the next ``poll`` greets."""
        self._heard_at = now
        self._beat_at = Millis(now + self._settings.heartbeat)

    @property
    def welcomed(self) -> bool:
        """Whether the supplier serves this replica."""
        return self.ended is None and self.verdict is not None and self.verdict.kind is not Kind.REFUSED

    @property
    def standing(self) -> Verdict | None:
        """How this replica stands with the supplier by now: its last verdict, and once the reconcile that it
        asked for is done, that this replica tails.
        """
        if self.verdict is None or self.verdict.kind is not Kind.RECONCILE:
            return self.verdict
        return _RECONCILED if self._phase is _Phase.TAILING else self.verdict

    def lag(self, snapshot: Snapshot) -> int | None:
        """The supplier's changes, by the last sequence it told, that are not applied here; none while that
        cannot be told: before its welcome, and until a reconcile is done.
        """
        if self._present is None or self.supplier_sequence is None or self.verdict is None:
            return None
        if self.verdict.kind is Kind.RECONCILE and self._phase is not _Phase.TAILING:
            return None
        cursor = get_cursor(snapshot, self.supplier)
        if cursor is None or cursor.store_id != self._present.store_id:
            return self.supplier_sequence
        return max(0, self.supplier_sequence - cursor.sequence)

    def deadline(self) -> Millis:
        """When ``due`` and ``poll`` are to be called at the latest."""
        return min(self._beat_at, Millis(self._heard_at + self._settings.silence))

    def wake(self) -> None:
        """What this session was waiting for may be over: look at the next ``poll``."""
        if self._phase is _Phase.WAITING:
            self._greet = True

    def fail(self, reason: str) -> None:
        """The stream has broken, or the driver could not do its part."""
        self._end(reason)

    def receive(self, message: SupplierMessage, now: Millis) -> Work | None:
        """Take a message; what it says is done by the work that comes back."""
        if self.ended is not None:
            return None
        try:
            check(message)
            return self._receive(message, now)
        except ProtocolError as error:
            self._end(broke_protocol(self.supplier, error))
            return None

    def due(self, now: Millis) -> Work | None:
        """Work that time alone asks for."""
        if self.ended is None and self._phase is _Phase.WAITING and now >= self._beat_at:
            timeout = self._settings.reconcile_timeout
            return lambda transaction: Outcome(given_up=give_up_stalled(transaction, now, timeout))
        return None

    def committed(self, outcome: Outcome, now: Millis) -> None:
        """The work is on disk."""
        if self.ended is not None:
            return
        if outcome.error is not None:
            self._end(outcome.error, None if outcome.verdict is None else outcome.verdict.cause)
            return
        if outcome.given_up is not None:
            self.wake()
        if outcome.verdict is not None:
            self._welcomed(outcome.verdict, outcome.step)
        elif outcome.step is not None:
            self._stepped(outcome.step)
        elif outcome.applied is not None:
            self._applied(outcome.applied)

    def poll(self, snapshot: Snapshot, now: Millis) -> tuple[ConsumerMessage, ...]:
        """What to send now."""
        if self.ended is not None:
            return ()
        # After a step back of the clock no timer runs longer than it was set for.
        self._heard_at = min(self._heard_at, now)
        self._beat_at = min(self._beat_at, Millis(now + self._settings.heartbeat))
        identity = read_identity(snapshot)
        if identity is None or (self._identity is not None and identity != self._identity):
            self._end("this replica has begun a new incarnation")
            return ()
        self._identity = identity
        if now - self._heard_at >= self._settings.silence:
            self._end(f"{self.supplier} has been silent for {(now - self._heard_at) / 1000:g} s")
            return ()
        out: list[ConsumerMessage] = []
        if self._phase is _Phase.WAITING and now >= self._beat_at:
            self._greet = True
        if self._greet and (
            self._phase is not _Phase.WAITING or busy_with(snapshot) in (None, self.supplier)
        ):
            hello, self._told = greet(snapshot, identity, self.supplier, now, self._settings.max_silence)
            out.append(hello)
            self._phase, self._ack, self._range_ack = _Phase.GREETING, None, None
        self._greet = False
        if self._ack is not None:
            knowledge, self._told = tell_own(snapshot, identity, self._told, now)
            out.append(Ack(*self._ack, knowledge, now))
            self._ack = None
        if self._range_ack is not None and self._present is not None:
            step, self._range_ack = self._range_ack, None
            store_id = self._present.store_id
            out.append(
                RangeAck(store_id, step.mark, step.position, step.descend, step.done, step.sequence, now)
            )
        if now >= self._beat_at:
            self._beat_at = Millis(now + self._settings.heartbeat)
            if not out or self._phase is not _Phase.GREETING:
                out.append(self._heartbeat(snapshot, identity, now))
        return tuple(out)

    def _heartbeat(self, snapshot: Snapshot, identity: Identity, now: Millis) -> Heartbeat:
        knowledge, self._told = tell(
            snapshot, identity, self._told, now, self._settings.max_silence, leave_out=self.supplier
        )
        return Heartbeat(knowledge, now)

    # --- messages

    def _end(self, reason: str, cause: Cause | None = None) -> None:
        if self.ended is None:
            self.ended = Ended(reason, cause)
            self._attendance.leave(self)

    def _receive(self, message: SupplierMessage, now: Millis) -> Work | None:
        if self._identity is None:
            raise ProtocolError("it spoke before it was greeted")
        self._heard_at = now
        self.skew = Millis(message.now - now)
        if isinstance(message, Welcome):
            return self._receive_welcome(message, now)
        if self._present is None:
            raise ProtocolError("its first message is no welcome")
        if isinstance(message, Heartbeat):
            self.supplier_sequence = message.sequence
            return self._receive_heartbeat(message, self._present.incarnation, now)
        if message.store_id != self._present.store_id:
            raise ProtocolError("it sends from another store than the one that it presented")
        if isinstance(message, Batch):
            self.supplier_sequence = max(self.supplier_sequence or 0, message.upto)
            return self._receive_batch(message, self._present.incarnation, now)
        if self._phase is not _Phase.RECONCILING:
            return None
        return self._receive_range(message, now)

    def _receive_welcome(self, message: Welcome, now: Millis) -> Work:
        if message.version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"it speaks version {message.version} and this replica version {PROTOCOL_VERSION}"
            )
        refused = message.verdict.kind is Kind.REFUSED
        if message.cluster != self.supplier and not (
            refused and message.verdict.cause in (Cause.OWN_CLUSTER, Cause.UNTRUSTED)
        ):
            raise ProtocolError(f"the replica at this address is {message.cluster}")
        present = Present(message.incarnation, message.store_id)
        other = self._attendance.others(message.cluster, self, present)
        if other is not None and not refused:
            raise ProtocolError(f"another store is connected as {message.cluster}: two have one cluster id")
        if not refused:
            self._present = present
            self._attendance.enter(message.cluster, self, present)
        self.verdict = message.verdict
        self.supplier_sequence = message.sequence
        self._told_skew = self.skew
        supplier, settings, entropy = self.supplier, self._settings, self._entropy
        return self._work(
            lambda transaction, identity: _welcome(
                transaction, identity, supplier, message, settings, entropy, now
            )
        )

    def _work(self, body: Callable[[Transaction, Identity], Outcome]) -> Work:
        return guarded(self._identity, self.supplier, body)

    def _receive_heartbeat(self, message: Heartbeat, incarnation: Incarnation, now: Millis) -> Work | None:
        if not message.knowledge and not self._skew_moved():
            return None
        self._told_skew = self.skew
        speaker = own_words(self.supplier, incarnation, EMPTY_CLOCK, message.now)
        settings, entropy = self._settings, self._entropy

        def body(transaction: Transaction, identity: Identity) -> Outcome:
            learned = learn(transaction, identity, speaker, message.knowledge, now, settings.max_silence)
            if learned.doubt is not None:
                return settled(transaction, learned.doubt, now, entropy)
            return Outcome(learned=learned)

        return self._work(body)

    def _skew_moved(self) -> bool:
        return self.skew is None or self._told_skew is None or abs(self.skew - self._told_skew) > _SKEW_GRAIN

    def _receive_batch(self, message: Batch, incarnation: Incarnation, now: Millis) -> Work | None:
        if self._phase is not _Phase.TAILING:
            # It was on the way before the hello, or has to wait: it will be asked for again.
            return None
        speaker = own_words(self.supplier, incarnation, message.clock, message.now)
        supplier, settings, entropy = self.supplier, self._settings, self._entropy

        def body(transaction: Transaction, identity: Identity) -> Outcome:
            learned = learn(transaction, identity, speaker, (), now, settings.max_silence)
            if learned.doubt is not None:
                return settled(transaction, learned.doubt, now, entropy)
            applied = apply(transaction, identity, supplier, message, now)
            return Outcome(applied=applied, learned=learned, damaged=applied.damaged)

        return self._work(body)

    def _receive_range(self, message: Range | Outline, now: Millis) -> Work:
        supplier, entropy = self.supplier, self._entropy

        def body(transaction: Transaction, identity: Identity) -> Outcome:
            if isinstance(message, Outline):
                step = compare(transaction, identity, supplier, message, now)
            else:
                step = join_range(transaction, identity, supplier, message, now)
            if step.applied.doubt is not None:
                return settled(transaction, step.applied.doubt, now, entropy)
            return Outcome(applied=step.applied, step=step, damaged=step.applied.damaged)

        return self._work(body)

    # --- outcomes

    def _welcomed(self, verdict: Verdict, step: Step | None) -> None:
        if verdict.kind is Kind.RECONCILE and step is not None:
            if step.applied.dropped is not None:
                self._phase = _Phase.WAITING
            else:
                self._phase, self._range_ack = _Phase.RECONCILING, step
        else:
            self._phase = _Phase.TAILING

    def _stepped(self, step: Step) -> None:
        if step.applied.dropped is not None:
            self._greet = True
        else:
            self._range_ack = step
            if step.done:
                self._phase = _Phase.TAILING

    def _applied(self, applied: Applied) -> None:
        if self._phase is not _Phase.TAILING:
            return
        if applied.dropped is None and self._present is not None:
            self._ack = (self._present.store_id, applied.upto)
        elif applied.dropped is Dropped.BUSY:
            self._phase = _Phase.WAITING
        elif applied.dropped is not Dropped.DUPLICATE:
            self._greet = True


def _welcome(
    transaction: Transaction,
    identity: Identity,
    supplier: str,
    message: Welcome,
    settings: Settings,
    entropy: Entropy,
    now: Millis,
) -> Outcome:
    """What a welcome is taken for: evidence against this replica's own past first, then what it says."""
    verdict = message.verdict
    cursor = get_cursor(transaction, supplier)
    applied = cursor.sequence if cursor is not None and cursor.store_id == message.store_id else 0
    doubt = find_doubt(transaction, identity, supplier, message.knowledge)
    if doubt is None and message.acknowledged is not None and message.acknowledged > applied:
        doubt = Doubt(f"{supplier} has an acknowledgement of this replica that is later than its cursor")
    if doubt is not None:
        return settled(transaction, doubt, now, entropy)
    if verdict.kind is Kind.REFUSED:
        return Outcome(verdict=verdict, error=f"{supplier} refuses: {verdict.reason}")
    member = get_member(transaction, supplier)
    if member is not None and member.known is not None and message.incarnation < member.known.incarnation:
        return Outcome(error=f"an older incarnation of {supplier} answered: a newer one is known")
    speaker = own_words(supplier, message.incarnation, message.clock, message.now)
    learned = learn(transaction, identity, speaker, message.knowledge, now, settings.max_silence)
    if learned.doubt is not None:
        return settled(transaction, learned.doubt, now, entropy)
    if verdict.kind is Kind.RECONCILE:
        step = begin(transaction, identity, message, now)
        return Outcome(verdict=verdict, learned=learned, step=step)
    unfinished = get_reconcile(transaction)
    if unfinished is not None and unfinished.supplier == supplier:
        # The supplier holds that there is nothing to reconcile any more.
        put_reconcile(transaction, None)
        return Outcome(verdict=verdict, learned=learned, given_up=supplier)
    return Outcome(verdict=verdict, learned=learned)
