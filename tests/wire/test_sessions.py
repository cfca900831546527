"""The messages of replication come out of the wire format as they went in, and nonsense does not come out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt.clock import Clock
from crdt.dot import Actor, Incarnation, Millis
from replica.core.messages import (
    Ack,
    Answer,
    Batch,
    Cause,
    Change,
    Fetched,
    Heartbeat,
    Hello,
    Kind,
    Listed,
    Outline,
    Part,
    ProtocolError,
    Question,
    Range,
    RangeAck,
    Resume,
    Statement,
    Verdict,
    Welcome,
)
from replica.core.rows import Cursor
from replica.wire import replication_pb2 as pb
from replica.wire.sessions import (
    answer_message,
    fetched_message,
    from_consumer,
    from_supplier,
    question_message,
    read_answer,
    read_fetched,
    read_question,
    to_consumer,
    to_supplier,
)

ids = st.binary(min_size=16, max_size=16)
incarnations = ids.map(Incarnation)
clusters = st.sampled_from(["eu", "us", "ap", "größe", "a%b/c"])
numbers = st.integers(0, 2**63)
times = st.integers(-(2**60), 2**60).map(Millis)
keys = st.binary(max_size=20)


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, ...]:
    bounds, at = [], draw(st.integers(1, 5))
    for _ in range(draw(st.integers(1, 3))):
        last = at + draw(st.integers(0, 2**40))
        bounds += [at, last]
        at = last + draw(st.integers(2, 9))
    return tuple(bounds)


clocks = st.dictionaries(st.builds(Actor, clusters, incarnations), runs(), max_size=3).map(Clock)
statements = st.builds(
    Statement,
    cluster=clusters,
    incarnation=incarnations,
    clock=clocks,
    knows=st.dictionaries(clusters, incarnations, max_size=2),
    said_at=st.none() | times,
    age=st.none() | st.integers(0, 2**40).map(Millis),
    retired=st.booleans(),
)
knowledge = st.lists(statements, max_size=3).map(tuple)
listed = st.lists(st.builds(Listed, clusters, st.integers(1, 2**60)), max_size=3).map(tuple)
members = st.lists(clusters, max_size=3).map(tuple)
changes = st.dictionaries(keys.filter(bool), st.binary(max_size=50), max_size=3).map(
    lambda found: tuple(Change(key, found[key]) for key in sorted(found))
)
heartbeats = st.builds(Heartbeat, knowledge=knowledge, now=times)
of_consumer = st.one_of(
    st.builds(
        Hello,
        cluster=clusters,
        incarnation=incarnations,
        store_id=ids,
        clock=clocks,
        cursor=st.none() | st.builds(Cursor, ids, numbers),
        resume=st.none() | st.builds(Resume, ids, numbers, keys),
        filling=st.booleans(),
        knowledge=knowledge,
        now=times,
    ),
    st.builds(Ack, store_id=ids, sequence=numbers, knowledge=knowledge, now=times),
    st.builds(
        RangeAck,
        store_id=ids,
        mark=numbers,
        position=keys,
        descend=st.integers(0, 9),
        done=st.booleans(),
        sequence=numbers,
        now=times,
    ),
    heartbeats,
)
verdicts = st.builds(Verdict, st.sampled_from(Kind), st.sampled_from(Cause), st.text(max_size=20))
of_supplier = st.one_of(
    st.builds(
        Welcome,
        verdict=verdicts,
        cluster=clusters,
        incarnation=incarnations,
        store_id=ids,
        sequence=numbers,
        clock=clocks,
        acknowledged=st.none() | numbers,
        resume=st.booleans(),
        mark=numbers,
        must_reconcile=listed,
        knowledge=knowledge,
        now=times,
    ),
    st.builds(
        Batch,
        store_id=ids,
        for_incarnation=incarnations,
        for_store_id=ids,
        after=st.integers(0, 9),
        upto=st.integers(9, 2**60),
        changes=changes,
        clock=clocks,
        complete=st.booleans(),
        must_reconcile=listed,
        members=members,
        now=times,
    ),
    st.builds(
        Outline,
        store_id=ids,
        for_incarnation=incarnations,
        for_store_id=ids,
        mark=numbers,
        level=st.integers(1, 5),
        start=st.just(b""),
        parts=st.just((Part(b"k", b"f" * 16), Part(b"", b"g" * 16))),
        now=times,
    ),
    st.builds(
        Range,
        store_id=ids,
        for_incarnation=incarnations,
        for_store_id=ids,
        mark=numbers,
        start=st.just(b""),
        stop=st.just(b"\xff" * 30) | st.just(b""),
        changes=changes,
        clock=clocks,
        must_reconcile=listed,
        members=members,
        now=times,
    ),
    st.builds(Heartbeat, knowledge=knowledge, now=times, sequence=numbers),
)


@given(of_consumer)
def test_what_a_consumer_says_arrives(message: Hello | Ack | RangeAck | Heartbeat) -> None:
    sent = to_supplier(message).SerializeToString(deterministic=True)
    assert from_consumer(pb.ConsumerMessage.FromString(sent)) == message


@given(of_supplier)
def test_what_a_supplier_says_arrives(message: Welcome | Batch | Outline | Range | Heartbeat) -> None:
    sent = to_consumer(message).SerializeToString(deterministic=True)
    assert from_supplier(pb.SupplierMessage.FromString(sent)) == message


@given(clusters, incarnations, ids, clocks, st.none() | numbers, st.booleans(), st.booleans())
def test_questions_and_answers_arrive(
    cluster: str,
    incarnation: Incarnation,
    store: bytes,
    clock: Clock,
    acknowledged: int | None,
    new: bool,
    connected: bool,
) -> None:
    question = Question(cluster, incarnation, store)
    assert read_question(question_message(question)) == question
    answer = Answer(cluster, store, incarnation, clock, acknowledged, new, connected)
    assert read_answer(answer_message(answer)) == answer
    for register in (None, b"", b"x"):
        fetched = Fetched(b"r\0t\0k", register, clock)
        assert read_fetched(fetched_message(fetched)) == fetched


@pytest.mark.parametrize(
    "wrong",
    [{"cluster": ""}, {"store_id": b"s"}, {"incarnation": b"short"}, {"clock": pb.Clock(actors=[{}])}],
)
def test_an_answer_that_no_honest_replica_gives_is_refused(wrong: dict[str, object]) -> None:
    good = {"cluster": "eu", "store_id": b"s" * 16, "incarnation": b"i" * 16}
    assert read_answer(pb.AskResponse(**good)).cluster == "eu"
    with pytest.raises(ProtocolError):
        read_answer(pb.AskResponse(**(good | wrong)))


def test_a_fetched_register_of_no_key_is_refused() -> None:
    for key in (b"", b"k", b"r\0t\0\xff"):
        with pytest.raises(ProtocolError):
            read_fetched(pb.Fetched(key=key))


ACTOR = pb.ActorRuns(cluster="eu", incarnation=b"i" * 16, runs=[1, 2])
HELLO = pb.Hello(cluster="eu", incarnation=b"i" * 16, store_id=b"s" * 16)


def hello(clock: pb.Clock) -> pb.ConsumerMessage:
    message = pb.ConsumerMessage(hello=HELLO)
    message.hello.clock.CopyFrom(clock)
    return message


def with_runs(*bounds: int) -> pb.Clock:
    return pb.Clock(actors=[pb.ActorRuns(cluster="eu", incarnation=b"i" * 16, runs=bounds)])


@pytest.mark.parametrize(
    "message",
    [
        pb.ConsumerMessage(),
        pb.ConsumerMessage(hello=pb.Hello(cluster="eu")),
        hello(pb.Clock(actors=[ACTOR, ACTOR])),
        hello(pb.Clock(actors=[pb.ActorRuns(cluster="eu", incarnation=b"short", runs=[1, 2])])),
        *(hello(with_runs(*bounds)) for bounds in [(), (1,), (0, 3), (3, 2), (1, 2, 3, 4), (1, 5, 4, 9)]),
        pb.ConsumerMessage(
            heartbeat=pb.ConsumerHeartbeat(
                knowledge=pb.Knowledge(
                    statements=[
                        pb.Statement(
                            cluster="eu",
                            incarnation=b"i" * 16,
                            knows=[pb.Newest(cluster="us", incarnation=b"j" * 16)] * 2,
                        )
                    ]
                )
            )
        ),
    ],
)
def test_what_no_consumer_says_is_a_protocol_error(message: pb.ConsumerMessage) -> None:
    with pytest.raises(ProtocolError):
        from_consumer(message)


@pytest.mark.parametrize(
    "message",
    [
        pb.SupplierMessage(),
        pb.SupplierMessage(welcome=pb.Welcome(cluster="eu")),
        pb.SupplierMessage(batch=pb.Batch(store_id=b"short")),
        pb.SupplierMessage(outline=pb.Outline(store_id=b"s" * 16)),
    ],
)
def test_what_no_supplier_says_is_a_protocol_error(message: pb.SupplierMessage) -> None:
    with pytest.raises(ProtocolError):
        from_supplier(message)


def test_a_verdict_of_a_newer_version_is_a_protocol_error() -> None:
    welcome = pb.Welcome(cluster="eu", incarnation=b"i" * 16, store_id=b"s" * 16)
    unknown = welcome.SerializeToString() + b"\x08\x63"
    with pytest.raises(ProtocolError, match="verdict"):
        from_supplier(pb.SupplierMessage(welcome=pb.Welcome.FromString(unknown)))
