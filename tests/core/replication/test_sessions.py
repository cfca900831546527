"""Sessions: the two state machines by plain calls, without sockets and without waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crdt.clock import Clock
from crdt.codec import encode_register, seal_frame
from crdt.dot import Actor, Incarnation, Millis
from replica.core.identity import begin_anew
from replica.core.messages import (
    Ack,
    Batch,
    Cause,
    Change,
    Heartbeat,
    Hello,
    Kind,
    Listed,
    Outline,
    Part,
    Question,
    Range,
    RangeAck,
    Statement,
    SupplierMessage,
    Welcome,
)
from replica.core.rows import get_cursor
from replica.core.session import retry_delay
from replica.core.supplier import answer
from replica.core.underway import busy_with
from tests.core.replication.small_fleet import (
    SETTINGS,
    Site,
    Stream,
    World,
    one_by_one,
    pull,
    store_key,
    sync,
)


def pair(notes: int = 0) -> tuple[Site, Site]:
    """A consumer, and a supplier with some notes."""
    world = World()
    consumer, supplier = Site(world, "C", ["S"]), Site(world, "S", ["C"])
    for number in range(notes):
        supplier.remember(f"k{number}", f"note {number}")
    return consumer, supplier


def welcomed(consumer: Site, supplier: Site, **settings: int) -> Stream:
    """A stream whose handshake is done; what the supplier sent after its welcome is still on the way."""
    stream = Stream(consumer, supplier, **settings)
    stream.poll()
    stream.deliver_up()
    stream.poll()
    assert isinstance(stream.down[0], Welcome)
    stream.deliver_down()
    return stream


def first(stream: Stream, kind: type[SupplierMessage]) -> SupplierMessage:
    """The first message of a kind from the supplier; everything before it is delivered."""
    for _ in range(100):
        stream.poll()
        while stream.up:
            stream.deliver_up()
        if stream.down:
            if isinstance(stream.down[0], kind):
                return stream.down[0]
            stream.deliver_down()
    raise AssertionError("the supplier never sent one")


# --- batches


def test_no_more_batches_are_on_the_way_than_the_window_allows() -> None:
    consumer, supplier = pair(10)
    stream = welcomed(consumer, supplier, batch_bytes=1, window=3)
    for _ in range(5):
        stream.poll()
    assert len([message for message in stream.down if isinstance(message, Batch)]) == 3
    stream.deliver_down()
    stream.poll()
    stream.deliver_up()
    stream.poll()
    assert len([message for message in stream.down if isinstance(message, Batch)]) == 3


def test_a_batch_holds_at_least_one_register_and_ends_at_its_size() -> None:
    consumer, supplier = pair()
    supplier.remember("large", "x" * 5000)
    for number in range(6):
        supplier.remember(f"k{number}", "y" * 300)
    stream = welcomed(consumer, supplier, batch_bytes=1000, window=10)
    stream.poll()
    batches = [message for message in stream.down if isinstance(message, Batch)]
    assert len(batches[0].changes) == 1
    assert [len(batch.changes) for batch in batches[1:]] == [2, 2, 2]
    assert [batch.complete for batch in batches] == [False, False, False, True]


def test_the_clock_is_taken_over_only_from_a_complete_batch() -> None:
    consumer, supplier = pair(3)
    supplier.remember("k0", "again")
    one_by_one(consumer, supplier, 1)
    assert not supplier.clock().leq(consumer.clock())
    assert consumer.clock().extras() == 1
    pull(consumer, supplier)
    assert consumer.clock() == supplier.clock()


def test_what_a_sibling_replaces_counts_as_seen_by_its_highest_dots() -> None:
    consumer, supplier = pair()
    supplier.remember("k", "1")
    sync(consumer, supplier)
    supplier.remember("k", "2")
    replaced = supplier.remember("k", "3")
    supplier.remember("other", "4")
    supplier.remember("k", "5")
    supplier.remember("other", "6")
    one_by_one(consumer, supplier, 1)
    assert consumer.titles("k") == {"5"}
    assert consumer.clock().has(replaced)
    assert not consumer.clock().has(replaced._replace(counter=replaced.counter - 1))


def test_a_write_is_pushed_on_an_open_stream() -> None:
    consumer, supplier = pair(1)
    stream = welcomed(consumer, supplier)
    first(stream, Batch)
    stream.deliver_down()
    supplier.remember("new", "news")
    batch = first(stream, Batch)
    assert isinstance(batch, Batch)
    assert [change.key for change in batch.changes] == [store_key("new")]
    stream.deliver_down()
    assert consumer.titles("new") == {"news"}


def test_a_batch_that_does_not_continue_the_cursor_is_dropped_whole_and_asked_for_again() -> None:
    consumer, supplier = pair(4)
    stream = welcomed(consumer, supplier, batch_bytes=1, window=4)
    stream.poll()
    del stream.down[0]
    before = consumer.storage.copy()
    outcome = stream.deliver_down()
    assert outcome is not None
    assert outcome.applied is not None
    assert outcome.applied.dropped is not None
    assert consumer.everything() == {}
    assert before is not consumer.storage
    stream.run()
    assert consumer.everything() == supplier.everything()


def test_a_batch_for_another_incarnation_or_store_changes_nothing() -> None:
    consumer, supplier = pair(2)
    stream = welcomed(consumer, supplier)
    batch = first(stream, Batch)
    assert isinstance(batch, Batch)
    for wrong in (
        replace(batch, for_incarnation=Incarnation(bytes(16))),
        replace(batch, for_store_id=bytes(16)),
    ):
        stream.consumer_does(stream.pulling.receive(wrong, consumer.now))
        assert consumer.everything() == {}


def test_a_batch_that_arrives_twice_is_applied_once() -> None:
    consumer, supplier = pair(2)
    stream = welcomed(consumer, supplier)
    batch = first(stream, Batch)
    stream.deliver_down()
    state = consumer.everything(), consumer.clock()
    stream.consumer_does(stream.pulling.receive(batch, consumer.now))
    assert (consumer.everything(), consumer.clock()) == state
    assert not stream.ended


def test_a_first_filling_lasts_until_the_end_of_the_log() -> None:
    consumer, supplier = pair(5)
    stream = welcomed(consumer, supplier, batch_bytes=1, window=2)
    kinds = []
    while not stream.ended and supplier.clock() != consumer.clock():
        stream.poll()
        if stream.up:
            stream.deliver_up()
        else:
            message = stream.down[0]
            if isinstance(message, Batch):
                kinds.append(bool(message.members))
            stream.deliver_down()
            with consumer.storage.snapshot() as snapshot:
                assert (busy_with(snapshot) == "S") == (supplier.clock() != consumer.clock())
    assert kinds == [True] * 5


def test_what_a_consumer_sent_itself_does_not_come_back() -> None:
    a, b = pair()
    sync(a, b)
    a.remember("k", "mine")
    pull(b, a)
    stream = welcomed(a, b)
    stream.poll()
    assert all(not message.changes for message in stream.down if isinstance(message, Batch))
    stream.run(beats=1)
    with a.storage.snapshot() as snapshot:
        cursor = get_cursor(snapshot, "S")
    assert cursor is not None
    assert cursor.sequence == 1, "the cursor moves over it all the same, once a heartbeat is due"


def test_an_idle_stream_says_nothing_but_heartbeats() -> None:
    a, b = pair(3)
    sync(a, b)
    stream = welcomed(a, b)
    stream.run(beats=2)
    stream = welcomed(a, b)
    for _ in range(3):
        stream.poll()
    assert stream.down == []
    assert stream.up == []


def test_faults_are_counted_and_everyone_agrees() -> None:
    consumer, supplier = pair()
    sync(consumer, supplier)
    dot = supplier.remember("k", "one")
    pull(consumer, supplier)
    (sibling,) = supplier.read("k")
    greater = replace(sibling, payload=b"\xff" + sibling.payload)
    stream = welcomed(consumer, supplier)
    batch = Batch(
        supplier.identity.store_id,
        consumer.identity.incarnation,
        consumer.identity.store_id,
        1,
        2,
        (Change(store_key("k"), seal_frame(store_key("k"), encode_register((greater,)))),),
        supplier.clock(),
        True,
        (),
        (),
        supplier.now,
    )
    outcome = stream.consumer_does(stream.pulling.receive(batch, consumer.now))
    assert outcome is not None
    assert outcome.applied is not None
    assert [fault.dot for fault in outcome.applied.faults] == [dot]
    assert consumer.read("k") == (greater,)


# --- identity and rollbacks


def test_a_cursor_from_the_future_is_refused_by_name_and_the_next_attempt_reconciles() -> None:
    consumer, supplier = pair(1)
    sync(consumer, supplier)
    old = supplier.copy()
    supplier.remember("lost", "lost")
    pull(consumer, supplier)
    consumer.remember("kept", "kept")
    supplier.roll_back(old, noticed=False)
    before = supplier.identity
    state = supplier.everything()

    stream = pull(consumer, supplier)
    assert stream.pulling.ended is not None
    assert stream.pulling.ended.cause is Cause.SUPPLIER_ROLLED_BACK
    assert stream.serving.ended is not None
    assert supplier.everything() == state
    assert supplier.identity.incarnation > before.incarnation
    assert supplier.identity.store_id != before.store_id

    again = pull(consumer, supplier)
    assert again.pulling.verdict is not None
    assert again.pulling.verdict.kind is Kind.RECONCILE
    sync(consumer, supplier)
    assert supplier.titles("lost") == {"lost"}
    assert supplier.everything() == consumer.everything()


def test_a_rolled_back_consumer_begins_anew_before_it_writes_or_applies() -> None:
    consumer, supplier = pair(1)
    sync(consumer, supplier)
    old = consumer.copy()
    consumer.remember("lost here", "lost")
    supplier.remember("x", "x")
    sync(consumer, supplier)
    consumer.world.wait(1)
    consumer.roll_back(old, noticed=False)
    before = consumer.identity
    stream = pull(consumer, supplier)
    assert stream.pulling.ended is not None
    assert consumer.identity.incarnation > before.incarnation
    consumer.remember("new", "not ignored")
    sync(consumer, supplier)
    assert supplier.titles("new") == {"not ignored"}
    assert consumer.titles("lost here") == {"lost"}


def test_a_consumer_that_acknowledged_more_than_its_cursor_says_begins_anew() -> None:
    consumer, supplier = pair(1)
    sync(consumer, supplier)
    old = consumer.copy()
    supplier.remember("x", "x")
    pull(consumer, supplier)
    consumer.roll_back(old, noticed=False)
    before = consumer.identity.incarnation
    stream = pull(consumer, supplier)
    assert stream.serving.verdict is not None
    assert stream.serving.verdict.cause is Cause.CONSUMER_ROLLED_BACK
    assert consumer.identity.incarnation > before


def test_a_consumer_judges_itself_by_what_the_welcome_says_of_it() -> None:
    consumer, supplier = pair(1)
    sync(consumer, supplier)
    stream = Stream(consumer, supplier)
    stream.poll()
    stream.deliver_up()
    stream.poll()
    welcome = stream.down[0]
    assert isinstance(welcome, Welcome)
    assert welcome.acknowledged == 1
    before = consumer.identity.incarnation
    outcome = stream.consumer_does(stream.pulling.receive(replace(welcome, acknowledged=2), consumer.now))
    assert outcome is not None
    assert outcome.begun == consumer.identity
    assert consumer.identity.incarnation > before
    assert stream.pulling.ended is not None


def test_every_other_session_ends_when_a_new_incarnation_begins() -> None:
    consumer, supplier = pair(1)
    stream = welcomed(consumer, supplier)
    consumer.storage.run(lambda tx: begin_anew(tx, consumer.now, consumer.world.entropy))
    stream.run()
    assert stream.pulling.ended is not None
    assert "new incarnation" in stream.pulling.ended.reason
    assert consumer.everything() == {}


def test_a_second_store_of_a_connected_cluster_is_refused() -> None:
    consumer, supplier = pair(1)
    twin = Site(consumer.world, "C", ["S"])
    stream = welcomed(consumer, supplier)
    second = pull(twin, supplier)
    assert second.pulling.ended is not None
    assert second.pulling.ended.cause in (Cause.SECOND_STORE, Cause.OLD_INCARNATION)
    stream.close()
    consumer.world.wait(1)
    twin.wipe()
    assert pull(twin, supplier).pulling.verdict is not None


def test_a_replica_that_is_pointed_at_itself_is_told() -> None:
    world = World()
    a, b = Site(world, "A"), Site(world, "A")
    stream = pull(a, b)
    assert stream.pulling.ended is not None
    assert stream.pulling.ended.cause is Cause.OWN_CLUSTER


def test_a_replica_that_is_not_who_its_peer_expects_is_told() -> None:
    world = World()
    a, b = Site(world, "A"), Site(world, "B")
    b.name = "C"
    stream = pull(a, b)
    assert stream.pulling.ended is not None
    assert "is B" in stream.pulling.ended.reason


# --- time


def test_a_silent_peer_counts_as_gone() -> None:
    consumer, supplier = pair(1)
    stream = welcomed(consumer, supplier)
    consumer.world.wait(SETTINGS.silence / 1000)
    with consumer.storage.snapshot() as snapshot:
        stream.pulling.poll(snapshot, consumer.now)
    with supplier.storage.snapshot() as snapshot:
        stream.serving.poll(snapshot, supplier.now)
    assert stream.pulling.ended is not None
    assert "silent" in stream.pulling.ended.reason
    assert stream.serving.ended is not None
    assert "C has been silent" in stream.serving.ended.reason


def test_a_peer_that_only_beats_is_not_gone() -> None:
    consumer, supplier = pair(1)
    stream = welcomed(consumer, supplier)
    for _ in range(30):
        consumer.world.now = min(stream.pulling.deadline(), stream.serving.deadline())
        stream.poll()
        while stream.up or stream.down:
            if stream.up:
                stream.deliver_up()
            else:
                stream.deliver_down()
    assert not stream.ended
    assert consumer.world.now > SETTINGS.silence * 3


def test_the_wait_after_a_failure_doubles_up_to_a_bound_and_is_never_nothing() -> None:
    waits = [retry_delay(failures, Millis(1000), Millis(60_000), 0.999) for failures in range(1, 12)]
    assert waits[:4] == [999, 1999, 3998, 7996]
    assert waits[-1] == 59_970
    assert retry_delay(1, Millis(1000), Millis(60_000), 0.0) == 500
    assert retry_delay(10**9, Millis(1000), Millis(60_000), 0.0) == 30_000


# --- peers that break the protocol


K = store_key("k")
IDS = (bytes(16), Incarnation(bytes(16)), bytes(16))

HOSTILE_TO_CONSUMER: list[tuple[str, dict[str, object]]] = [
    ("clock", {"clock": Clock({Actor("bad\ncluster", Incarnation(bytes(16))): (1, 1)})}),
    ("incarnation", {"clock": Clock({Actor("x", Incarnation(b"short")): (1, 1)})}),
    ("register", {"changes": (Change(store_key("k"), b"garbage"),)}),
    (
        "empty register",
        {"changes": (Change(K, seal_frame(K, encode_register(()))),)},
    ),
    ("key", {"changes": (Change(b"no key", b"garbage"),)}),
    ("backwards", {"after": 5, "upto": 3}),
    ("twice", {"changes": (Change(store_key("k"), b"x"), Change(store_key("k"), b"x"))}),
    ("list", {"must_reconcile": (Listed("x", 0),)}),
    ("members", {"members": ("",)}),
    ("store", {"store_id": b"another store id"}),
    ("ids", {"for_incarnation": Incarnation(b"")}),
]


@pytest.mark.parametrize(
    ("what", "changes"), HOSTILE_TO_CONSUMER, ids=[what for what, _ in HOSTILE_TO_CONSUMER]
)
def test_a_batch_that_no_honest_supplier_sends_ends_that_session_and_changes_nothing(
    what: str, changes: dict[str, object]
) -> None:
    consumer, supplier = pair(2)
    stream = welcomed(consumer, supplier)
    batch = first(stream, Batch)
    assert isinstance(batch, Batch)
    bad = replace(batch, **changes)  # type: ignore[arg-type]
    stream.consumer_does(stream.pulling.receive(bad, consumer.now))
    assert stream.pulling.ended is not None, what
    assert "broke the protocol" in stream.pulling.ended.reason
    assert consumer.everything() == {}
    pull(consumer, supplier)
    assert consumer.everything() == supplier.everything()


def test_a_register_with_writes_that_its_supplier_has_not_seen_is_refused() -> None:
    consumer, supplier = pair(2)
    stream = welcomed(consumer, supplier)
    batch = first(stream, Batch)
    assert isinstance(batch, Batch)
    bad = replace(batch, clock=Clock())
    outcome = stream.consumer_does(stream.pulling.receive(bad, consumer.now))
    assert outcome is not None
    assert outcome.error is not None
    assert consumer.everything() == {}


@pytest.mark.parametrize("message", [Heartbeat((), Millis(0)), Ack(bytes(16), 1, (), Millis(0))])
def test_a_consumer_that_does_not_say_hello_first_is_dropped(message: Heartbeat | Ack) -> None:
    consumer, supplier = pair(1)
    stream = Stream(consumer, supplier)
    assert stream.serving.receive(message, supplier.now) is None
    assert stream.serving.ended is not None
    assert "no hello" in stream.serving.ended.reason


def test_a_supplier_that_does_not_welcome_first_is_dropped() -> None:
    consumer, supplier = pair(1)
    stream = Stream(consumer, supplier)
    stream.poll()
    assert stream.pulling.receive(Heartbeat((), Millis(0)), consumer.now) is None
    assert stream.pulling.ended is not None
    assert "no welcome" in stream.pulling.ended.reason


def test_an_acknowledgement_of_what_was_not_sent_ends_the_session() -> None:
    consumer, supplier = pair(1)
    stream = welcomed(consumer, supplier)
    stream.poll()
    ack = Ack(supplier.identity.store_id, 99, (), consumer.now)
    assert stream.serving.receive(ack, supplier.now) is None
    assert stream.serving.ended is not None
    assert "not sent" in stream.serving.ended.reason


@pytest.mark.parametrize(
    "statement",
    [
        Statement("bad\ncluster", None),
        Statement("x", None, said_at=Millis(1), age=Millis(-5)),
        Statement("x", Incarnation(b"short")),
        Statement("x", None, knows={"y": Incarnation(bytes(16))}),
        Statement("x", Incarnation(bytes(16)), knows={"y": Incarnation(b"short")}),
    ],
)
def test_a_statement_that_makes_no_sense_ends_the_session(statement: Statement) -> None:
    consumer, supplier = pair(1)
    stream = welcomed(consumer, supplier)
    stream.serving.receive(Heartbeat((statement,), consumer.now), supplier.now)
    stream.pulling.receive(Heartbeat((statement,), consumer.now), consumer.now)
    assert stream.serving.ended is not None
    assert stream.pulling.ended is not None


def test_a_hello_as_somebody_else_on_the_same_stream_ends_it() -> None:
    consumer, supplier = pair(1)
    stream = Stream(consumer, supplier)
    stream.poll()
    (hello,) = stream.up
    assert isinstance(hello, Hello)
    stream.deliver_up()
    stream.serving.receive(replace(hello, cluster="other"), supplier.now)
    assert stream.serving.ended is not None


@pytest.mark.parametrize(
    "message",
    [
        Outline(*IDS, 0, 1, b"", (), Millis(0)),
        Outline(*IDS, 0, 1, b"m", (Part(b"k", b""), Part(b"", b"")), Millis(0)),
        Range(*IDS, 0, b"m", b"k", (), Clock(), (), (), Millis(0)),
    ],
)
def test_an_outline_or_range_that_makes_no_sense_ends_the_session(message: Outline | Range) -> None:
    consumer, supplier = pair(1)
    stream = welcomed(consumer, supplier)
    stream.pulling.receive(message, consumer.now)
    assert stream.pulling.ended is not None
    assert "broke the protocol" in stream.pulling.ended.reason


# --- one at a time


def test_while_one_supplier_fills_a_replica_the_others_wait_and_then_go_on() -> None:
    world = World()
    n, x, y = (Site(world, name, []) for name in "NXY")
    for number in range(4):
        x.remember(f"x{number}", "x")
        y.remember(f"y{number}", "y")
    from_x, from_y = welcomed(n, x, batch_bytes=1, window=1), welcomed(n, y)
    first(from_x, Batch)
    from_x.deliver_down()
    from_y.run()
    with n.storage.snapshot() as snapshot:
        assert busy_with(snapshot) == "X"
    assert not any(n.titles(f"y{number}") for number in range(4))
    waiting = welcomed(n, y)
    from_x.run()
    waiting.pulling.wake()
    waiting.run()
    assert all(n.titles(f"y{number}") == {"y"} for number in range(4))


def test_who_asks_at_its_start_is_told_what_is_known_of_it() -> None:
    a, b = pair(2)
    sync(a, b)
    with b.storage.snapshot() as snapshot:
        told = answer(snapshot, b.identity, Question("C", a.identity.incarnation, a.identity.store_id))
        unknown = answer(snapshot, b.identity, Question("X", Incarnation(bytes(16)), bytes(16)))
    assert told.incarnation == a.identity.incarnation
    assert told.clock == a.clock()
    assert told.acknowledged == 2
    assert not told.filling
    assert unknown.incarnation is None


def test_a_range_ack_beyond_the_log_ends_the_session() -> None:
    consumer, supplier = pair(2)
    consumer.remember("mine", "c")
    stream = welcomed(consumer, supplier)
    stream.poll()
    stream.deliver_up()
    ack = RangeAck(supplier.identity.store_id, 0, b"", 0, True, 99, consumer.now)
    stream.supplier_does(stream.serving.receive(ack, supplier.now))
    assert stream.serving.ended is not None
    assert "broke the protocol" in stream.serving.ended.reason
