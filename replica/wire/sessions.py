"""Between the core's messages of replication and protobuf's, both ways.

What is not shaped like a message of an honest replica raises ProtocolError. Whether it makes sense is judged
by :func:`replica.core.protocol.check`, which every message that comes in passes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from crdt.clock import Clock, Runs
from crdt.dot import Actor, Incarnation, Millis
from replica.core.messages import (
    Ack,
    Answer,
    Batch,
    Cause,
    Change,
    ConsumerMessage,
    Fetched,
    Heartbeat,
    Hello,
    Kind,
    Knowledge,
    Listed,
    Outline,
    Part,
    ProtocolError,
    Question,
    Range,
    RangeAck,
    Resume,
    Statement,
    SupplierMessage,
    Verdict,
    Welcome,
)
from replica.core.protocol import check, check_store_key
from replica.core.rows import Cursor
from replica.wire import replication_pb2 as pb

__all__ = [
    "answer_message",
    "fetched_message",
    "from_consumer",
    "from_supplier",
    "question_message",
    "read_answer",
    "read_fetched",
    "read_keys",
    "read_question",
    "to_consumer",
    "to_supplier",
]

_KINDS: Mapping[Kind, pb.Verdict.ValueType] = {
    kind: pb.Verdict.Value(f"VERDICT_{kind.name}") for kind in Kind
}
_KINDS_BACK = {value: kind for kind, value in _KINDS.items()}
_CAUSES: Mapping[Cause, pb.Cause.ValueType] = {
    cause: pb.Cause.Value(f"CAUSE_{cause.name}") for cause in Cause
}
_CAUSES_BACK = {value: cause for cause, value in _CAUSES.items()}


# --- parts


def _clock(clock: Clock) -> pb.Clock:
    return pb.Clock(
        actors=[
            pb.ActorRuns(cluster=actor.cluster, incarnation=actor.incarnation, runs=clock.runs[actor])
            for actor in clock.actors()
        ]
    )


def _read_clock(message: pb.Clock) -> Clock:
    runs: dict[Actor, Runs] = {}
    last: Actor | None = None
    for each in message.actors:
        actor = Actor(each.cluster, Incarnation(each.incarnation))
        if last is not None and not last < actor:
            raise ProtocolError("the actors of a clock are not in ascending order")
        runs[actor] = _read_runs(tuple(each.runs))
        last = actor
    return Clock(runs)


def _read_runs(runs: Runs) -> Runs:
    if not runs or len(runs) % 2:
        raise ProtocolError("the runs of a clock do not come in pairs")
    end = -1
    for first, last in zip(runs[::2], runs[1::2], strict=True):
        if first <= end + 1 or last < first or first < 1:
            raise ProtocolError("the runs of a clock are not in ascending order")
        end = last
    return runs


def _changes(changes: Iterable[Change]) -> list[pb.Change]:
    return [pb.Change(key=change.key, register=change.register) for change in changes]


def _read_changes(messages: Iterable[pb.Change]) -> tuple[Change, ...]:
    return tuple(Change(message.key, message.register) for message in messages)


def _listed(entries: Iterable[Listed]) -> list[pb.Listed]:
    return [pb.Listed(cluster=entry.cluster, number=entry.number) for entry in entries]


def _read_listed(messages: Iterable[pb.Listed]) -> tuple[Listed, ...]:
    return tuple(Listed(message.cluster, message.number) for message in messages)


def _knowledge(knowledge: Knowledge) -> pb.Knowledge:
    return pb.Knowledge(statements=map(_statement, knowledge))


def _statement(statement: Statement) -> pb.Statement:
    return pb.Statement(
        cluster=statement.cluster,
        incarnation=statement.incarnation or b"",
        clock=_clock(statement.clock),
        knows=[
            pb.Newest(cluster=cluster, incarnation=newest)
            for cluster, newest in sorted(statement.knows.items())
        ],
        said_at_ms=statement.said_at,
        age_ms=statement.age,
        retired=statement.retired,
    )


def _read_knowledge(message: pb.Knowledge) -> Knowledge:
    return tuple(map(_read_statement, message.statements))


def _read_statement(message: pb.Statement) -> Statement:
    knows = {newest.cluster: Incarnation(newest.incarnation) for newest in message.knows}
    if len(knows) != len(message.knows):
        raise ProtocolError("a statement names a member twice")
    return Statement(
        cluster=message.cluster,
        incarnation=Incarnation(message.incarnation) if message.incarnation else None,
        clock=_read_clock(message.clock),
        knows=knows,
        said_at=Millis(message.said_at_ms) if message.HasField("said_at_ms") else None,
        age=Millis(message.age_ms) if message.HasField("age_ms") else None,
        retired=message.retired,
    )


# --- from the consumer to the supplier


def to_supplier(message: ConsumerMessage) -> pb.ConsumerMessage:
    """What a consumer says, on its way."""
    match message:
        case Hello():
            return pb.ConsumerMessage(hello=_hello(message))
        case Ack():
            ack = pb.Ack(
                store_id=message.store_id,
                sequence=message.sequence,
                knowledge=_knowledge(message.knowledge),
                now_ms=message.now,
            )
            return pb.ConsumerMessage(ack=ack)
        case RangeAck():
            range_ack = pb.RangeAck(
                store_id=message.store_id,
                mark=message.mark,
                position=message.position,
                descend=message.descend,
                done=message.done,
                sequence=message.sequence,
                now_ms=message.now,
            )
            return pb.ConsumerMessage(range_ack=range_ack)
        case Heartbeat():
            beat = pb.ConsumerHeartbeat(now_ms=message.now, knowledge=_knowledge(message.knowledge))
            return pb.ConsumerMessage(heartbeat=beat)


def _hello(hello: Hello) -> pb.Hello:
    cursor, resume = hello.cursor, hello.resume
    return pb.Hello(
        protocol_version=hello.version,
        cluster=hello.cluster,
        incarnation=hello.incarnation,
        store_id=hello.store_id,
        clock=_clock(hello.clock),
        cursor=None if cursor is None else pb.Cursor(store_id=cursor.store_id, sequence=cursor.sequence),
        resume=(
            None
            if resume is None
            else pb.Resume(store_id=resume.store_id, mark=resume.mark, position=resume.position)
        ),
        filling=hello.filling,
        knowledge=_knowledge(hello.knowledge),
        now_ms=hello.now,
    )


def from_consumer(message: pb.ConsumerMessage) -> ConsumerMessage:
    """What a consumer said, checked. Raises ProtocolError."""
    read = _read_consumer(message)
    check(read)
    return read


def _read_consumer(message: pb.ConsumerMessage) -> ConsumerMessage:
    match message.WhichOneof("message"):
        case "hello":
            return _read_hello(message.hello)
        case "ack":
            ack = message.ack
            return Ack(ack.store_id, ack.sequence, _read_knowledge(ack.knowledge), Millis(ack.now_ms))
        case "range_ack":
            done = message.range_ack
            return RangeAck(
                store_id=done.store_id,
                mark=done.mark,
                position=done.position,
                descend=done.descend,
                done=done.done,
                sequence=done.sequence,
                now=Millis(done.now_ms),
            )
        case "heartbeat":
            beat = message.heartbeat
            return Heartbeat(_read_knowledge(beat.knowledge), Millis(beat.now_ms))
        case _:
            raise ProtocolError("a consumer's message says nothing that this version knows")


def _read_hello(hello: pb.Hello) -> Hello:
    cursor, resume = hello.cursor, hello.resume
    return Hello(
        version=hello.protocol_version,
        cluster=hello.cluster,
        incarnation=Incarnation(hello.incarnation),
        store_id=hello.store_id,
        clock=_read_clock(hello.clock),
        cursor=Cursor(cursor.store_id, cursor.sequence) if hello.HasField("cursor") else None,
        resume=(Resume(resume.store_id, resume.mark, resume.position) if hello.HasField("resume") else None),
        filling=hello.filling,
        knowledge=_read_knowledge(hello.knowledge),
        now=Millis(hello.now_ms),
    )


# --- from the supplier to the consumer


def to_consumer(message: SupplierMessage) -> pb.SupplierMessage:
    """What a supplier says, on its way."""
    match message:
        case Welcome():
            return pb.SupplierMessage(welcome=_welcome(message))
        case Batch():
            batch = pb.Batch(
                store_id=message.store_id,
                for_incarnation=message.for_incarnation,
                for_store_id=message.for_store_id,
                after_sequence=message.after,
                upto_sequence=message.upto,
                changes=_changes(message.changes),
                clock=_clock(message.clock),
                complete=message.complete,
                must_reconcile=_listed(message.must_reconcile),
                members=message.members,
                now_ms=message.now,
            )
            return pb.SupplierMessage(batch=batch)
        case Outline():
            outline = pb.Outline(
                store_id=message.store_id,
                for_incarnation=message.for_incarnation,
                for_store_id=message.for_store_id,
                mark=message.mark,
                level=message.level,
                start=message.start,
                parts=[pb.Part(stop=part.stop, fingerprint=part.fingerprint) for part in message.parts],
                now_ms=message.now,
            )
            return pb.SupplierMessage(outline=outline)
        case Range():
            of_keys = pb.Range(
                store_id=message.store_id,
                for_incarnation=message.for_incarnation,
                for_store_id=message.for_store_id,
                mark=message.mark,
                start=message.start,
                stop=message.stop,
                changes=_changes(message.changes),
                clock=_clock(message.clock),
                must_reconcile=_listed(message.must_reconcile),
                members=message.members,
                now_ms=message.now,
            )
            return pb.SupplierMessage(range=of_keys)
        case Heartbeat():
            beat = pb.SupplierHeartbeat(
                sequence=message.sequence, knowledge=_knowledge(message.knowledge), now_ms=message.now
            )
            return pb.SupplierMessage(heartbeat=beat)


def _welcome(welcome: Welcome) -> pb.Welcome:
    return pb.Welcome(
        verdict=_KINDS[welcome.verdict.kind],
        cause=_CAUSES[welcome.verdict.cause],
        reason=welcome.verdict.reason,
        protocol_version=welcome.version,
        cluster=welcome.cluster,
        incarnation=welcome.incarnation,
        store_id=welcome.store_id,
        sequence=welcome.sequence,
        clock=_clock(welcome.clock),
        acknowledged=welcome.acknowledged,
        resume=welcome.resume,
        mark=welcome.mark,
        must_reconcile=_listed(welcome.must_reconcile),
        knowledge=_knowledge(welcome.knowledge),
        now_ms=welcome.now,
    )


def from_supplier(message: pb.SupplierMessage) -> SupplierMessage:
    """What a supplier said, checked. Raises ProtocolError."""
    read = _read_supplier(message)
    check(read)
    return read


def _read_supplier(message: pb.SupplierMessage) -> SupplierMessage:
    match message.WhichOneof("message"):
        case "welcome":
            return _read_welcome(message.welcome)
        case "batch":
            batch = message.batch
            return Batch(
                store_id=batch.store_id,
                for_incarnation=Incarnation(batch.for_incarnation),
                for_store_id=batch.for_store_id,
                after=batch.after_sequence,
                upto=batch.upto_sequence,
                changes=_read_changes(batch.changes),
                clock=_read_clock(batch.clock),
                complete=batch.complete,
                must_reconcile=_read_listed(batch.must_reconcile),
                members=tuple(batch.members),
                now=Millis(batch.now_ms),
            )
        case "outline":
            outline = message.outline
            return Outline(
                store_id=outline.store_id,
                for_incarnation=Incarnation(outline.for_incarnation),
                for_store_id=outline.for_store_id,
                mark=outline.mark,
                level=outline.level,
                start=outline.start,
                parts=tuple(Part(part.stop, part.fingerprint) for part in outline.parts),
                now=Millis(outline.now_ms),
            )
        case "range":
            of_keys = message.range
            return Range(
                store_id=of_keys.store_id,
                for_incarnation=Incarnation(of_keys.for_incarnation),
                for_store_id=of_keys.for_store_id,
                mark=of_keys.mark,
                start=of_keys.start,
                stop=of_keys.stop,
                changes=_read_changes(of_keys.changes),
                clock=_read_clock(of_keys.clock),
                must_reconcile=_read_listed(of_keys.must_reconcile),
                members=tuple(of_keys.members),
                now=Millis(of_keys.now_ms),
            )
        case "heartbeat":
            beat = message.heartbeat
            return Heartbeat(_read_knowledge(beat.knowledge), Millis(beat.now_ms), beat.sequence)
        case _:
            raise ProtocolError("a supplier's message says nothing that this version knows")


def _read_welcome(welcome: pb.Welcome) -> Welcome:
    kind, cause = _KINDS_BACK.get(welcome.verdict), _CAUSES_BACK.get(welcome.cause)
    if kind is None or cause is None:
        raise ProtocolError("a supplier's verdict is none that this version knows")
    return Welcome(
        verdict=Verdict(kind, cause, welcome.reason),
        version=welcome.protocol_version,
        cluster=welcome.cluster,
        incarnation=Incarnation(welcome.incarnation),
        store_id=welcome.store_id,
        sequence=welcome.sequence,
        clock=_read_clock(welcome.clock),
        acknowledged=welcome.acknowledged if welcome.HasField("acknowledged") else None,
        resume=welcome.resume,
        mark=welcome.mark,
        must_reconcile=_read_listed(welcome.must_reconcile),
        knowledge=_read_knowledge(welcome.knowledge),
        now=Millis(welcome.now_ms),
    )


# --- beside the streams


def question_message(question: Question) -> pb.AskRequest:
    """A question, on its way."""
    return pb.AskRequest(
        cluster=question.cluster, incarnation=question.incarnation, store_id=question.store_id
    )


def read_question(message: pb.AskRequest) -> Question:
    """A question that came. Raises ProtocolError."""
    question = Question(message.cluster, Incarnation(message.incarnation), message.store_id)
    check(question)
    return question


def answer_message(answer: Answer) -> pb.AskResponse:
    """An answer, on its way."""
    return pb.AskResponse(
        cluster=answer.cluster,
        store_id=answer.store_id,
        incarnation=answer.incarnation or b"",
        clock=_clock(answer.clock),
        acknowledged=answer.acknowledged,
        filling=answer.filling,
        connected=answer.connected,
    )


def read_answer(message: pb.AskResponse) -> Answer:
    """An answer that came. Raises ProtocolError."""
    answer = Answer(
        cluster=message.cluster,
        store_id=message.store_id,
        incarnation=Incarnation(message.incarnation) if message.incarnation else None,
        clock=_read_clock(message.clock),
        acknowledged=message.acknowledged if message.HasField("acknowledged") else None,
        filling=message.filling,
        connected=message.connected,
    )
    check(answer)
    return answer


def fetched_message(fetched: Fetched) -> pb.Fetched:
    """A register that was asked for, on its way."""
    return pb.Fetched(key=fetched.key, register=fetched.register, clock=_clock(fetched.clock))


def read_fetched(message: pb.Fetched) -> Fetched:
    """A register that was asked for. Raises ProtocolError."""
    fetched = Fetched(
        key=message.key,
        register=message.register if message.HasField("register") else None,
        clock=_read_clock(message.clock),
    )
    check(fetched)
    return fetched


def read_keys(message: pb.FetchRequest) -> Sequence[bytes]:
    """The keys that somebody asks for. Raises ProtocolError."""
    for key in message.keys:
        check_store_key(key)
    return message.keys
