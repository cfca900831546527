"""Watching: what events say, and that a broken stream goes on behind the last one."""

from __future__ import annotations

import random
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.client import (
    EventKind,
    InternalError,
    InvalidArgumentError,
    OutOfRangeError,
    Retry,
    UnavailableError,
    WatchEvent,
)
from replica.client.following import Following
from replica.client.memory import watch
from replica.wire import memory_pb2 as pb
from tests.client.conftest import Face, Faces, ScriptedReplica, ending_with, silence

KEY = "repo/r/mem/t/a"
REMOVAL = pb.Removal(key=KEY, repo_id="r", topic="t", id="a")


def response(*tokens: str) -> pb.WatchResponse:
    """A message that forgets an entry for each token."""
    return pb.WatchResponse(events=[pb.WatchEvent(resume_token=each, forgotten=REMOVAL) for each in tokens])


def asked(replica: ScriptedReplica) -> list[str]:
    """The tokens that came, in their order."""
    return [request.resume_token for request in replica.received]


async def test_events_are_what_the_replica_says(replica: ScriptedReplica, client: Face) -> None:
    lapsed = pb.Removal(key=KEY, repo_id="r", topic="t", id="a", expires_at_ms=0)
    put = pb.Entry(key=KEY, exists=True, repo_id="r", topic="t", id="a", title="x")
    replica.streams.append(
        [
            pb.WatchResponse(
                events=[
                    pb.WatchEvent(resume_token="1", put=put),
                    pb.WatchEvent(resume_token="2", forgotten=REMOVAL),
                ]
            ),
            pb.WatchResponse(events=[pb.WatchEvent(resume_token="3", lapsed=lapsed)]),
            pb.WatchResponse(
                events=[
                    pb.WatchEvent(resume_token="4", progress=pb.Progress(at_ms=7)),
                    pb.WatchEvent(resume_token="5"),
                ]
            ),
            silence,
        ]
    )
    events: list[WatchEvent] = await client.take(5, "watch")
    assert [event.kind for event in events] == [
        EventKind.PUT,
        EventKind.FORGOTTEN,
        EventKind.LAPSED,
        EventKind.PROGRESS,
        EventKind.UNKNOWN,
    ]
    assert [event.resume_token for event in events] == ["1", "2", "3", "4", "5"]
    assert [(event.key, event.repo_id, event.topic, event.id) for event in events] == [
        *[(KEY, "r", "t", "a")] * 3,
        *[(None, None, None, None)] * 2,
    ]
    assert [None if event.entry is None else event.entry.title for event in events] == ["x", *[None] * 4]
    assert [event.expires_at_ms for event in events] == [None, None, 0, None, None]
    assert [(event.at_ms, event.caught_up) for event in events[2:]] == [
        (None, None),
        (7, False),
        (None, None),
    ]


async def test_a_request_says_what_was_asked_for_and_no_more(replica: ScriptedReplica, client: Face) -> None:
    replica.streams.extend([[response("1"), silence]] * 2)
    await client.take(1, "watch")
    assert replica.received[-1] == pb.WatchRequest()
    await client.take(1, "watch", "r", "t", initial_state=True, resume_token="0", progress_seconds=0.5)
    assert replica.received[-1] == pb.WatchRequest(
        repo_id="r", topic="t", initial_state=True, resume_token="0", progress_seconds=0.5
    )


async def test_a_stream_that_breaks_goes_on_behind_the_last_event(
    replica: ScriptedReplica, client: Face
) -> None:
    unavailable = ending_with(grpc.StatusCode.UNAVAILABLE)
    replica.streams.extend(
        [
            [unavailable],
            [response("1", "2"), unavailable],
            [unavailable],
            [],
            [response("3")],
            [response("4"), ending_with(grpc.StatusCode.CANCELLED)],
            [response("5"), silence],
        ]
    )
    events = await client.take(5, "watch", resume_token="0")
    assert [event.resume_token for event in events] == ["1", "2", "3", "4", "5"]
    assert asked(replica) == ["0", "0", "2", "2", "2", "3", "4"]


async def test_whoever_stops_reading_ends_the_call(replica: ScriptedReplica, client: Face) -> None:
    replica.streams.append([response("1"), silence])
    await client.take(1, "watch")
    await replica.left.wait()
    assert asked(replica) == [""]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.OUT_OF_RANGE, OutOfRangeError),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgumentError),
    ],
)
async def test_what_would_fail_again_is_raised(
    replica: ScriptedReplica, client: Face, code: grpc.StatusCode, kind: type[Exception]
) -> None:
    replica.streams.append([response("1"), ending_with(code, "because")])
    with pytest.raises(kind, match="because"):
        await client.take(2, "watch")
    assert asked(replica) == [""]


async def test_a_replica_that_stays_away_is_given_up(faces: Faces) -> None:
    client = faces("127.0.0.1:1", Retry(deadline=0.3, first_delay=0.01, max_delay=0.02))
    with pytest.raises(UnavailableError):
        await client.take(1, "watch")


async def test_bytes_that_are_no_events_are_an_internal_error(faces: Faces) -> None:
    async def garbage(request: bytes, context: Any) -> Any:  # noqa: ANN401 - a handler of bytes
        yield b"\xff\xff"

    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    handlers = {"Watch": grpc.unary_stream_rpc_method_handler(garbage)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("ricordo.v1.Memory", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with pytest.raises(InternalError, match="could not be decoded"):
        await faces(f"127.0.0.1:{port}").take(1, "watch")
    await server.stop(None)


@given(st.lists(st.sampled_from(["failed", "ended", "received"]), max_size=40), st.integers())
def test_the_deadline_runs_from_the_first_failure_since_anything_came(steps: list[str], seed: int) -> None:
    retry = Retry(deadline=1.0, first_delay=0.1, max_delay=0.4)
    following = Following(watch(), retry, random.Random(seed))
    metadata = grpc.aio.Metadata()
    gone = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, metadata, metadata, "gone")
    now, failing_since, failures = 100.0, None, 0
    for number, step in enumerate(steps):
        now += 0.05
        if step == "received":
            following.received(response(str(number)).SerializeToString())
            failing_since, failures = None, 0
            continue
        failing_since = now if failing_since is None else failing_since
        longest = min(0.4, 0.1 * 2**failures)
        failures += 1
        try:
            pause = following.failed(gone, now) if step == "failed" else following.ended(now)
        except UnavailableError:
            assert now + longest >= failing_since + 1.0
            return
        assert 0 <= pause <= longest
        now += pause
        assert now < failing_since + 1.0
