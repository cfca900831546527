"""The supplier's end of a replication stream, without I/O (DESIGN sections 5 to 8; see session.py)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Set
from dataclasses import replace

from crdt.clock import EMPTY_CLOCK
from crdt.dot import Millis
from replica.core.damage import note_damage
from replica.core.doubt import Doubt
from replica.core.flow import BatchFlow, RangeFlow
from replica.core.identity import Entropy, Identity, read_identity
from replica.core.membership import Told, acknowledge, get_acknowledged, learn, tell
from replica.core.messages import (
    Ack,
    Cause,
    ConsumerMessage,
    Heartbeat,
    Hello,
    Kind,
    Knowledge,
    ProtocolError,
    RangeAck,
    SupplierMessage,
    Verdict,
    Welcome,
)
from replica.core.must_reconcile import get_list, leave_list
from replica.core.protocol import check
from replica.core.rows import Cursor, get_clock, get_sequence
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
from replica.core.supplier import Asker, get_known, get_mark
from replica.core.verdict import Present, judge

__all__ = ["SupplierSession"]

_SKEW_GRAIN = 1000
_STRANGERS = frozenset(
    {Cause.PROTOCOL_VERSION, Cause.UNTRUSTED, Cause.OWN_CLUSTER, Cause.SECOND_STORE, Cause.OLD_INCARNATION}
)
"""Causes for which nothing is made of what a consumer says."""

_EVIDENCE = frozenset({Cause.OLD_INCARNATION, Cause.CONSUMER_ROLLED_BACK, Cause.SUPPLIER_ROLLED_BACK})
"""Causes for which a refusal says what is known of the consumer, so that it can judge its own past."""


class _Phase(enum.Enum):
    WAITING = "waiting for a hello"
    JUDGING = "about to answer a hello"
    SENDING = "sending batches"
    RECONCILING = "reconciling"


class SupplierSession:
    """One stream on which a consumer pulls from this replica."""

    def __init__(
        self,
        settings: Settings,
        entropy: Entropy,
        attendance: Attendance | None = None,
        authenticated: Set[str] | None = None,
    ) -> None:
        self.ended: Ended | None = None
        """Why the session is over; none while it is not. Send what ``poll`` returned with it first."""
        self.asker: Asker | None = None
        """The consumer, once it has said hello."""
        self.verdict: Verdict | None = None
        """The last over it."""
        self.acknowledged: int | None = None
        """The sequence up to which it has everything on disk."""
        self.skew: Millis | None = None
        """Its clock minus this one's, by its last message."""
        self._settings = settings
        self._entropy = entropy
        self._attendance = attendance if attendance is not None else Attendance()
        self._authenticated = authenticated
        self._identity: Identity | None = None
        self._phase = _Phase.WAITING
        self._hello: Hello | None = None
        self._refusal: Verdict | None = None
        self._told: Mapping[str, Told] = {}
        self._heard_at = Millis(0)
        self._beat_at = Millis(0)
        self._told_skew: Millis | None = None
        self._said_at = Millis(0)
        self._damaged: set[bytes] = set()
        self._noted: set[bytes] = set()
        self._batches: BatchFlow | None = None
        self._ranges: RangeFlow | None = None
        self._empty_mark: int | None = None
        """The consumer began with nothing, and had this number on the list; none: its first ack is on disk.
        """
        self._acking = False

    # --- what the driver calls

    def open(self, snapshot: Snapshot, now: Millis) -> None:
        """Begin: the stream is open."""
        self._identity = read_identity(snapshot)
        self._heard_at = now
        self._beat_at = Millis(now + self._settings.heartbeat)

    def deadline(self) -> Millis:
        """When ``due`` and ``poll`` are to be called at the latest."""
        if self._damaged - self._noted:
            return self._heard_at
        return min(self._beat_at, Millis(self._heard_at + self._settings.silence))

    def fail(self, reason: str) -> None:
        """The stream has broken, or the driver could not do its part."""
        self._end(reason)

    def receive(self, message: ConsumerMessage, now: Millis) -> Work | None:
        """Take a message; what it says is done by the work that comes back."""
        if self.ended is not None or self._refusal is not None:
            return None
        try:
            check(message)
            return self._receive(message, now)
        except ProtocolError as error:
            self._end(broke_protocol(self._name(), error))
            return None

    def due(self, now: Millis) -> Work | None:
        """Work that nobody asked for: noting what was found damaged."""
        self._noted &= self._damaged
        keys = tuple(sorted(self._damaged - self._noted))
        if self.ended is not None or not keys:
            return None
        self._noted |= self._damaged
        return lambda transaction: Outcome(damaged=note_damage(transaction, keys))

    def committed(self, outcome: Outcome, now: Millis) -> None:
        """The work is on disk."""
        if self.ended is not None:
            return
        if outcome.verdict is not None:
            if outcome.verdict.kind is Kind.REFUSED:
                self._refusal = outcome.verdict
            else:
                self._phase = _Phase.JUDGING
        elif outcome.error is not None:
            self._end(outcome.error)
        if self._acking:
            self._acking, self._empty_mark = False, None

    def poll(self, snapshot: Snapshot, now: Millis) -> tuple[SupplierMessage, ...]:
        """What to send now."""
        if self.ended is not None:
            return ()
        # After a step back of the clock no timer runs longer than it was set for.
        self._heard_at = min(self._heard_at, now)
        self._beat_at = min(self._beat_at, Millis(now + self._settings.heartbeat))
        identity = read_identity(snapshot)
        if self._refusal is not None and identity is not None:
            return (self._refuse(snapshot, identity, self._refusal, now),)
        if identity is None or identity != self._identity:
            self._end("this replica has begun a new incarnation")
            return ()
        if now - self._heard_at >= self._settings.silence:
            self._end(f"{self._name()} has been silent for {(now - self._heard_at) / 1000:g} s")
            return ()
        asker, hello = self.asker, self._hello
        if asker is None or hello is None or self._phase is _Phase.WAITING:
            return ()
        flush = now >= self._beat_at
        out = self._serve(snapshot, identity, asker, hello, now, flush=flush)
        if flush and self.ended is None:
            self._beat_at = Millis(now + self._settings.heartbeat)
            knowledge, self._told = tell(
                snapshot, identity, self._told, now, self._settings.max_silence, leave_out=asker.cluster
            )
            out.append(Heartbeat(knowledge, now, get_sequence(snapshot)))
        return tuple(out)

    # --- messages

    def _name(self) -> str:
        return "a consumer that has not said who it is" if self.asker is None else self.asker.cluster

    def _end(self, reason: str, cause: Cause | None = None) -> None:
        if self.ended is None:
            self.ended = Ended(reason, cause)
            self._attendance.leave(self)

    def _work(self, body: Callable[[Transaction, Identity], Outcome]) -> Work:
        return guarded(self._identity, self._name(), body)

    def _receive(self, message: ConsumerMessage, now: Millis) -> Work | None:
        self._heard_at = now
        self._said_at = message.now
        self.skew = Millis(message.now - now)
        if isinstance(message, Hello):
            return self._receive_hello(message, now)
        if self.asker is None:
            raise ProtocolError("its first message is no hello")
        if isinstance(message, Heartbeat):
            if not message.knowledge and not self._skew_moved():
                return None
            return self._learning(self.asker, message.knowledge, message.now, now)
        if self._phase is _Phase.JUDGING:
            return None
        if isinstance(message, Ack):
            return self._receive_ack(self.asker, message, now)
        return self._receive_range_ack(self.asker, message)

    def _skew_moved(self) -> bool:
        return self.skew is None or self._told_skew is None or abs(self.skew - self._told_skew) > _SKEW_GRAIN

    def _learning(self, asker: Asker, knowledge: Knowledge, said_at: Millis, now: Millis) -> Work:
        self._told_skew = self.skew
        speaker = own_words(asker.cluster, asker.incarnation, EMPTY_CLOCK, said_at)
        settings, entropy = self._settings, self._entropy

        def body(transaction: Transaction, identity: Identity) -> Outcome:
            learned = learn(transaction, identity, speaker, knowledge, now, settings.max_silence)
            if learned.doubt is not None:
                return settled(transaction, learned.doubt, now, entropy)
            return Outcome(learned=learned)

        return self._work(body)

    def _receive_hello(self, message: Hello, now: Millis) -> Work:
        asker = Asker(message.cluster, message.incarnation, message.store_id)
        if self.asker is not None and self.asker != asker:
            raise ProtocolError("it says hello as somebody else than before")
        self.asker, self._hello = asker, message
        # It has dropped what it could not apply, so what was sent so far tells nothing of its cursor.
        self._batches = self._ranges = None
        self._told_skew = self.skew
        present = self._others(asker)
        authenticated, settings, entropy = self._authenticated, self._settings, self._entropy

        def body(transaction: Transaction, identity: Identity) -> Outcome:
            known = get_known(transaction, identity, asker.cluster, present, authenticated)
            verdict = judge(known, message)
            if verdict.cause in _STRANGERS:
                return Outcome(verdict=verdict)
            if verdict.cause is Cause.SUPPLIER_ROLLED_BACK:
                outcome = settled(transaction, Doubt(verdict.reason), now, entropy)
                return replace(outcome, verdict=verdict)
            if verdict.cause is Cause.CONSUMER_ROLLED_BACK:
                return Outcome(verdict=verdict)
            speaker = own_words(asker.cluster, asker.incarnation, message.clock, message.now)
            learned = learn(transaction, identity, speaker, message.knowledge, now, settings.max_silence)
            if learned.doubt is not None:
                reason = f"{learned.doubt.reason}: {identity.cluster} begins a new incarnation"
                outcome = settled(transaction, learned.doubt, now, entropy)
                return replace(outcome, verdict=Verdict(Kind.REFUSED, Cause.SUPPLIER_ROLLED_BACK, reason))
            known = get_known(transaction, identity, asker.cluster, present, authenticated)
            return Outcome(learned=learned, verdict=judge(known, message))

        return self._work(body)

    def _others(self, asker: Asker) -> Present | None:
        return self._attendance.others(asker.cluster, self, Present(asker.incarnation, asker.store_id))

    def _receive_ack(self, asker: Asker, message: Ack, now: Millis) -> Work | None:
        if self._identity is None or message.store_id != self._identity.store_id:
            raise ProtocolError("it acknowledges a batch of another store")
        if self._batches is None:
            return None
        self._batches.acknowledge(message.sequence)
        for statement in message.knowledge:
            if (statement.cluster, statement.incarnation) == (asker.cluster, asker.incarnation):
                self._batches.has_seen(statement.clock)
        self.acknowledged, self._acking = message.sequence, True
        speaker = own_words(asker.cluster, asker.incarnation, EMPTY_CLOCK, message.now)
        settings, entropy, mark = self._settings, self._entropy, self._empty_mark

        def body(transaction: Transaction, identity: Identity) -> Outcome:
            learned = learn(transaction, identity, speaker, message.knowledge, now, settings.max_silence)
            if learned.doubt is not None:
                return settled(transaction, learned.doubt, now, entropy)
            acknowledge(transaction, identity, asker.cluster, asker.incarnation, message.sequence)
            # It began with nothing, so nothing that was purged before can mislead it.
            left = bool(mark) and leave_list(transaction, asker.cluster, mark or 0)
            return Outcome(learned=learned, left_list=left)

        return self._work(body)

    def _receive_range_ack(self, asker: Asker, message: RangeAck) -> Work | None:
        if self._identity is None or message.store_id != self._identity.store_id:
            raise ProtocolError("it reconciles with another store")
        ranges = self._ranges
        if ranges is None or message.mark != ranges.mark:
            return None
        if not message.done:
            ranges.ready(message)
            return None
        mark, start = ranges.mark, message.sequence
        self._send_after(asker, start, filling=False)
        self.acknowledged = start

        def body(transaction: Transaction, identity: Identity) -> Outcome:
            if start > get_sequence(transaction):
                raise ProtocolError("it has reconciled up to a change that is not there")
            left = mark > 0 and leave_list(transaction, asker.cluster, mark)
            acknowledge(transaction, identity, asker.cluster, asker.incarnation, start)
            return Outcome(left_list=left)

        return self._work(body)

    def _send_after(self, asker: Asker, after: int, *, filling: bool) -> None:
        self._phase, self._ranges = _Phase.SENDING, None
        their_clock = EMPTY_CLOCK if self._hello is None else self._hello.clock
        settings = self._settings
        self._batches = BatchFlow(
            asker, after, their_clock, settings.window, settings.batch_bytes, filling=filling
        )

    # --- serving

    def _judge_anew(self, snapshot: Snapshot, identity: Identity, asker: Asker, hello: Hello) -> Verdict:
        """The verdict as of now, over what the hello said and what was acknowledged since.

        Whether the consumer was rolled back was judged with its hello: what is known of it by now is newer.
        """
        known = get_known(snapshot, identity, asker.cluster, self._others(asker), self._authenticated)
        member = known.member
        if member is not None:
            known = replace(known, member=replace(member, acknowledged=None, said_at=None))
        if self._batches is not None:
            hello = replace(hello, cursor=Cursor(identity.store_id, min(self._batches.sent, known.sequence)))
            if self._empty_mark is None and member is not None and member.known is not None:
                hello = replace(hello, clock=hello.clock.join(member.known.clock))
        return judge(known, hello)

    def _serve(
        self,
        snapshot: Snapshot,
        identity: Identity,
        asker: Asker,
        hello: Hello,
        now: Millis,
        *,
        flush: bool,
    ) -> list[SupplierMessage]:
        verdict = self._judge_anew(snapshot, identity, asker, hello)
        if verdict.kind is Kind.REFUSED:
            return [self._refuse(snapshot, identity, verdict, now)]
        mark = get_mark(snapshot, asker.cluster)
        out: list[SupplierMessage] = []
        if (
            self._phase is _Phase.JUDGING
            or (self._batches is not None and verdict.kind is Kind.RECONCILE)
            or (self._ranges is not None and mark != self._ranges.mark)
        ):
            out.append(self._accept(snapshot, identity, asker, hello, verdict, mark, now))
        if self._batches is not None:
            self._batches.damaged |= self._damaged
            out += self._batches.next(snapshot, identity, now, flush=flush)
            self._damaged = set(self._batches.damaged)
        elif self._ranges is not None:
            step = self._ranges.next(snapshot, identity, now)
            if step is not None:
                out.append(step)
            if self._ranges.damaged is not None:
                self._damaged.add(self._ranges.damaged)
        return out

    def _accept(
        self,
        snapshot: Snapshot,
        identity: Identity,
        asker: Asker,
        hello: Hello,
        verdict: Verdict,
        mark: int,
        now: Millis,
    ) -> Welcome:
        """Welcome the consumer, anew if the verdict has changed, and begin what it says."""
        self._attendance.enter(asker.cluster, self, Present(asker.incarnation, asker.store_id))
        knowledge: Knowledge = ()
        resume = False
        if self._phase is _Phase.JUDGING:
            knowledge, self._told = tell(snapshot, identity, {}, now, self._settings.max_silence)
            if verdict.kind is Kind.RECONCILE and hello.resume is not None:
                resume = (hello.resume.store_id, hello.resume.mark) == (identity.store_id, mark)
        self.verdict = verdict
        if verdict.kind is Kind.RECONCILE:
            self._phase, self._batches = _Phase.RECONCILING, None
            self._ranges = RangeFlow(asker, mark, self._settings.batch_bytes)
        else:
            empty = verdict.kind is Kind.EMPTY
            after = 0 if empty or hello.cursor is None else hello.cursor.sequence
            self._empty_mark = mark if empty else None
            self._send_after(asker, after, filling=empty or hello.filling)
        return Welcome(
            verdict=verdict,
            cluster=identity.cluster,
            incarnation=identity.incarnation,
            store_id=identity.store_id,
            sequence=get_sequence(snapshot),
            clock=get_clock(snapshot),
            acknowledged=get_acknowledged(snapshot, identity, asker.cluster, asker.incarnation),
            resume=resume,
            mark=mark,
            must_reconcile=get_list(snapshot),
            knowledge=knowledge,
            now=now,
        )

    def _refuse(self, snapshot: Snapshot, identity: Identity, verdict: Verdict, now: Millis) -> Welcome:
        """The last message of a session. With it goes what the consumer needs to judge its own past."""
        knowledge: Knowledge = ()
        acknowledged: int | None = None
        hello = self._hello
        if verdict.cause in _EVIDENCE and hello is not None:
            told, _ = tell(snapshot, identity, {}, now, self._settings.max_silence)
            knowledge = tuple(statement for statement in told if statement.cluster == hello.cluster)
            acknowledged = get_acknowledged(snapshot, identity, hello.cluster, hello.incarnation)
        self.verdict = verdict
        self._end(f"refused: {verdict.reason}", verdict.cause)
        return Welcome(
            verdict=verdict,
            cluster=identity.cluster,
            incarnation=identity.incarnation,
            store_id=identity.store_id,
            sequence=get_sequence(snapshot),
            clock=EMPTY_CLOCK,
            acknowledged=acknowledged,
            resume=False,
            mark=0,
            must_reconcile=(),
            knowledge=knowledge,
            now=now,
        )
