"""The rules of repeating, without a connection."""

import itertools
import random

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt.dot import Millis
from replica.client import Call, Entry, InternalError, Retry, UnavailableError, batches, remember
from replica.client.memory import recall, remember_many
from replica.client.retry import MAX_DEADLINE, Exchange, identified
from replica.wire.memory_pb2 import RecallRequest, RememberManyRequest

WALL = Millis(1_700_000_000_000)


def unavailable() -> grpc.RpcError:
    metadata = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, metadata, metadata, "gone")


def exchange(retry: Retry, seed: int = 0, call: Call[RecallRequest, Entry] | None = None) -> Exchange[Entry]:
    return Exchange(call or recall("k"), retry, now=100.0, wall=WALL, random=random.Random(seed))


@given(
    st.builds(
        Retry,
        deadline=st.floats(0.001, MAX_DEADLINE),
        attempt_timeout=st.floats(0.001, 100),
        first_delay=st.floats(0.001, 10),
        max_delay=st.floats(0.001, 10),
    ),
    st.integers(),
    st.lists(st.floats(0, 20), max_size=30),
)
def test_no_attempt_and_no_pause_goes_beyond_its_bound_or_the_deadline(
    retry: Retry, seed: int, attempts: list[float]
) -> None:
    running = exchange(retry, seed)
    now, ends = 100.0, 100.0 + retry.deadline
    for number, took in enumerate(attempts):
        timeout = running.timeout(now)
        assert 0 <= timeout <= retry.attempt_timeout
        assert now + timeout <= ends + 1e-9 or now > ends
        now += took
        try:
            delay = running.failed(unavailable(), now)
        except UnavailableError:
            assert now + min(retry.max_delay, retry.first_delay * 2**number) >= ends
            return
        assert 0 <= delay <= min(retry.max_delay, retry.first_delay * 2**number)
        now += delay
        assert now < ends


class Highest(random.Random):
    """Chance that always gives the most."""

    def uniform(self, a: float, b: float) -> float:
        return b


def test_the_longest_pause_doubles_up_to_its_bound() -> None:
    retry = Retry(first_delay=0.5, max_delay=3.0)
    running = Exchange(recall("k"), retry, now=100.0, wall=WALL, random=Highest(0))
    assert [running.failed(unavailable(), 100.0) for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_any_number_of_attempts_may_fail() -> None:
    running = exchange(Retry(max_delay=0.001))
    assert all(running.failed(unavailable(), 100.0) <= 0.001 for _ in range(5000))


def test_pauses_of_two_clients_differ() -> None:
    assert exchange(Retry(), 1).failed(unavailable(), 100.0) != exchange(Retry(), 2).failed(
        unavailable(), 100.0
    )


@pytest.mark.parametrize("name", ["deadline", "attempt_timeout", "first_delay", "max_delay"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_a_bound_that_is_none_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        Retry(**{name: value})


def test_a_call_is_never_repeated_after_its_request_id_is_forgotten() -> None:
    Retry(deadline=MAX_DEADLINE)
    with pytest.raises(ValueError, match="deadline"):
        Retry(deadline=MAX_DEADLINE + 1)


def test_bytes_that_are_no_answer_are_an_error_of_ours() -> None:
    with pytest.raises(InternalError, match="Ricordo replica"):
        exchange(Retry()).answered(b"\xff\xff")


def test_the_ids_of_a_request_are_a_function_of_time_and_chance() -> None:
    call = remember_many([remember("r", "t"), remember("r", "t", id="mine", request_id="mine")])
    one, two, other = (identified(call.request, WALL, random.Random(seed)) for seed in (1, 1, 2))
    assert one == two != other
    assert isinstance(one, RememberManyRequest)
    assert (one.entries[1].id, one.entries[1].request_id) == ("mine", "mine")
    assert not call.request.entries[0].HasField("id"), "the call itself stays as it was built"


def test_a_batch_has_room_for_the_ids_that_its_writes_are_given_on_the_way() -> None:
    for batch in batches([remember("r", "t")] * 300, size=10_000):
        sent = identified(remember_many(batch).request, WALL, random.Random(0))
        assert 5_000 < sent.ByteSize() <= 10_000 or len(batch) < 50


@given(
    st.lists(st.integers(0, 3000), max_size=60), st.integers(1, 10), st.integers(500, 10_000), st.integers()
)
def test_batches_are_the_whole_row_in_order_and_each_within_the_limits(
    bodies: list[int], entries: int, size: int, seed: int
) -> None:
    writes = [remember("r", "t", body="x" * length) for length in bodies]
    cut = list(batches(writes, entries=entries, size=size))
    assert [write for batch in cut for write in batch] == writes
    for batch in cut:
        assert 1 <= len(batch) <= entries
        sent = identified(remember_many(batch).request, WALL, random.Random(seed))
        assert sent.ByteSize() <= size or len(batch) == 1
    for before, after in itertools.pairwise(cut):
        joined = remember_many([*before, after[0]]).request.ByteSize()
        assert len(before) == entries or joined + 128 * (len(before) + 1) > size, (
            "cut no earlier than need be"
        )
