"""What a replica answers arrives whole: results, pages, and what is absent."""

import asyncio
import inspect
import re
from typing import Any

import grpc
import pytest

import replica.client as ricordo_client
from replica.client import (
    AsyncClient,
    Client,
    Compacted,
    Entry,
    FieldHistory,
    FieldValue,
    ForgetMode,
    Forgotten,
    HeldBy,
    InternalError,
    MemberState,
    MemberStatus,
    PeerOrigin,
    Purging,
    RepoCount,
    Retry,
    TopicCount,
    Updated,
)
from replica.wire import admin_pb2, memory_pb2
from tests.client.conftest import Context, Face, Faces, ScriptedReplica, ending_with, silence, unexpected

KEY = "repo/r/mem/t/1"
SERVICES = (memory_pb2.DESCRIPTOR.services_by_name["Memory"], admin_pb2.DESCRIPTOR.services_by_name["Admin"])


async def test_every_field_of_a_remember_is_sent_and_what_is_not_given_is_absent(
    replica: ScriptedReplica, client: Face
) -> None:
    await client.ask(
        "remember",
        "r",
        "t",
        id="1",
        kind="Decision",
        title="",
        body="عربي 🙂\n",
        author="a",
        provenance="p",
        tags=["x", "y"],
        add_links={"touches": ["b", "a"]},
        remove_links={"cites": ["c"]},
        ttl_seconds=1.5,
        durable=True,
        create_only=True,
        if_version="",
        created_at_ms=0,
        request_id="q",
    )
    await client.ask("remember", "r", "t", id="1", request_id="q")
    full, bare = replica.received
    assert full == memory_pb2.RememberRequest(
        repo_id="r",
        topic="t",
        id="1",
        kind="Decision",
        title="",
        body="عربي 🙂\n",
        author="a",
        provenance="p",
        tags=["x", "y"],
        add_links=[memory_pb2.Link(relation="touches", targets=["b", "a"])],
        remove_links=[memory_pb2.Link(relation="cites", targets=["c"])],
        ttl_seconds=1.5,
        durable=True,
        create_only=True,
        if_version="",
        created_at_ms=0,
        request_id="q",
    )
    assert full.HasField("title")
    assert full.HasField("if_version")
    assert full.HasField("created_at_ms")
    assert bare == memory_pb2.RememberRequest(repo_id="r", topic="t", id="1", request_id="q")


async def test_an_update_tells_absent_from_empty(replica: ScriptedReplica, client: Face) -> None:
    replica.answers["Update"] = lambda request: memory_pb2.UpdateResponse(
        key=request.key,
        version="v",
        fields_updated=1,
        tags_added=2,
        tags_removed=3,
        links_added=4,
        links_removed=5,
    )
    result = await client.ask("update", KEY, title="", add_tags=["a"], remove_tags=["b"], request_id="q")
    assert result == Updated(KEY, "v", 1, 2, 3, 4, 5, expires_at_ms=None, undecodable=0)
    (sent,) = replica.received
    assert sent.HasField("title")
    assert not sent.HasField("body")


async def test_an_entry_arrives_whole(replica: ScriptedReplica, client: Face) -> None:
    shown = memory_pb2.FieldValue(text="one", cluster="eu", written_at_ms=5)
    other = memory_pb2.FieldValue(text="two", cluster="us", written_at_ms=4)
    made = [memory_pb2.FieldValue(time_ms=at, cluster="ap", written_at_ms=0) for at in (0, 7)]
    replica.answers["Recall"] = lambda request: memory_pb2.RecallResponse(
        entry=memory_pb2.Entry(
            key=request.key,
            exists=True,
            repo_id="r",
            topic="t",
            id="1",
            kind="Note",
            title="one",
            body="b",
            author="a",
            provenance="p",
            created_at_ms=0,
            tags=["x", "y"],
            links=[memory_pb2.Link(relation="touches", targets=["a", "b"])],
            expires_at_ms=9,
            remaining_seconds=1,
            version="v",
            sibling_count=2,
            concurrent=[
                memory_pb2.ConcurrentField(field="title", values=[shown, other]),
                memory_pb2.ConcurrentField(field="created_at", values=made),
            ],
            undecodable=1,
        )
    )
    assert await client.ask("recall", KEY) == Entry(
        key=KEY,
        exists=True,
        repo_id="r",
        topic="t",
        id="1",
        kind="Note",
        title="one",
        body="b",
        author="a",
        provenance="p",
        created_at_ms=0,
        tags=("x", "y"),
        links={"touches": ("a", "b")},
        expires_at_ms=9,
        remaining_seconds=1,
        version="v",
        sibling_count=2,
        concurrent={
            "title": (FieldValue("one", "eu", 5), FieldValue("two", "us", 4)),
            "created_at": (FieldValue(0, "ap", 0), FieldValue(7, "ap", 0)),
        },
        undecodable=1,
    )


async def test_an_absent_entry_is_an_answer(replica: ScriptedReplica, client: Face) -> None:
    replica.answers["RecallMany"] = lambda request: memory_pb2.RecallManyResponse(
        entries=[memory_pb2.Entry(key=key) for key in request.keys]
    )
    first, second = await client.ask("recall_many", [KEY, "repo/r/mem/t/2"])
    assert (first.key, first.exists, first.expires_at_ms, first.created_at_ms) == (KEY, False, None, None)
    assert second.key == "repo/r/mem/t/2"


async def test_a_history_arrives_by_field(replica: ScriptedReplica, client: Face) -> None:
    shown, lost = (memory_pb2.FieldValue(text=text, cluster="eu", written_at_ms=1) for text in ("new", "old"))
    replica.answers["History"] = lambda request: memory_pb2.HistoryResponse(
        key=request.key,
        exists=True,
        version="v",
        fields=[
            memory_pb2.FieldHistory(field="title", shown=shown, revisions=[lost]),
            memory_pb2.FieldHistory(field="body", revisions=[lost]),
        ],
    )
    history = await client.ask("history", KEY)
    new, old = FieldValue("new", "eu", 1), FieldValue("old", "eu", 1)
    assert history.fields == {"title": FieldHistory(new, (), (old,)), "body": FieldHistory(None, (), (old,))}


async def test_a_forget_says_how_it_went(replica: ScriptedReplica, client: Face) -> None:
    replica.answers["Forget"] = lambda request: memory_pb2.ForgetResponse(
        key=request.key,
        mode=memory_pb2.FORGET_MODE_LAPSE if request.lapse else memory_pb2.FORGET_MODE_FORGET,
        existed=True,
        expires_at_ms=7 if request.lapse else None,
    )
    assert await client.ask("forget", KEY) == Forgotten(KEY, ForgetMode.FORGET, True, None, 0)
    assert await client.ask("forget", KEY, lapse=True, lapse_seconds=2.5) == Forgotten(
        KEY, ForgetMode.LAPSE, True, 7, 0
    )
    plain, lapse = replica.received
    assert not plain.HasField("lapse_seconds")
    assert lapse.lapse_seconds == 2.5


async def test_a_scan_walks_every_page_by_the_token_of_the_one_before(
    replica: ScriptedReplica, client: Face
) -> None:
    pages = {"": (("a", "b"), "p1"), "p1": ((), "p2"), "p2": (("c",), "")}

    def page(request: memory_pb2.ScanRequest) -> memory_pb2.ScanResponse:
        keys, token = pages[request.page_token]
        return memory_pb2.ScanResponse(
            entries=[memory_pb2.Entry(key=key) for key in keys], next_page_token=token
        )

    replica.answers["Scan"] = page
    assert [entry.key for entry in await client.walk("scan", "r", page_size=2)] == ["a", "b", "c"]
    assert [request.page_token for request in replica.received] == ["", "p1", "p2"]
    assert {request.page_size for request in replica.received} == {2}
    assert not any(request.HasField("topic") for request in replica.received)
    await client.walk("scan", "r", "")
    assert replica.received[-1].HasField("topic")


async def test_topics_and_repositories_come_with_their_counts(replica: ScriptedReplica, client: Face) -> None:
    replica.answers["ListTopics"] = lambda request: memory_pb2.ListTopicsResponse(
        topics=[memory_pb2.TopicCount(topic="t" + request.page_token, live=3)],
        next_page_token="" if request.page_token else "2",
    )
    replica.answers["ListRepos"] = lambda request: memory_pb2.ListReposResponse(
        repos=[memory_pb2.RepoCount(repo_id="r", live=4)]
    )
    assert await client.walk("list_topics", "r") == [TopicCount("t", 3), TopicCount("t2", 3)]
    assert await client.walk("list_repos") == [RepoCount("r", 4)]


async def test_a_status_tells_not_measured_from_none(replica: ScriptedReplica, client: Face) -> None:
    replica.answers["GetStatus"] = lambda request: admin_pb2.GetStatusResponse(
        cluster="eu",
        incarnation=b"i" * 16,
        counts=admin_pb2.Counts(live=0, siblings=0),
        damaged_keys=["repo/r/mem/t/x"],
        purging=admin_pb2.Purging(
            oldest_expired_ms=0, waiting=2, held_by=[admin_pb2.HeldBy(cluster="us", reason="r", waiting=2)]
        ),
        members=[
            admin_pb2.MemberStatus(
                cluster="us", state=admin_pb2.MEMBER_STATE_LAPSED, heard_ms=0, skew_ms=0, incarnation=b"n"
            ),
            admin_pb2.MemberStatus(cluster="ap", state=99, must_reconcile=True),
        ],
        storage=admin_pb2.Storage(engine="lmdb", used_bytes=0),
        peers=[
            admin_pb2.PeerStatus(
                cluster="us",
                origin=admin_pb2.PEER_ORIGIN_ADDED,
                skew_ms=0,
                lag=0,
                lag_ms=0,
                consuming=True,
                faults=0,
                last_fault="f",
            ),
            admin_pb2.PeerStatus(cluster="ap", origin=99),
        ],
    )
    status = await client.ask("get_status")
    assert (status.cluster, status.incarnation, status.replication_address) == ("eu", b"i" * 16, None)
    assert (status.counts.live, status.counts.damaged) == (0, None)
    assert (status.storage.used_bytes, status.storage.map_bytes) == (0, None)
    us, ap = status.peers
    assert (us.origin, us.skew_ms, us.lag, us.cursor) == (PeerOrigin.ADDED, 0, 0, None)
    assert (us.lag_ms, us.consuming, us.faults, us.last_fault) == (0, True, 0, "f")
    assert (ap.origin, ap.skew_ms) == (PeerOrigin.UNKNOWN, None)
    assert (ap.lag_ms, ap.consuming, ap.faults, ap.last_fault) == (None, False, None, None)
    assert (status.counts.siblings, status.counts.undecodable) == (0, None)
    assert status.damaged_keys == ("repo/r/mem/t/x",)
    assert status.purging == Purging(None, 0, 2, None, (HeldBy("us", "r", 2),))
    assert status.members == (
        MemberStatus("us", MemberState.LAPSED, 0, 0, b"n", must_reconcile=False),
        MemberStatus("ap", MemberState.UNKNOWN, None, None, None, must_reconcile=True),
    )
    assert not replica.received[-1].full
    await client.ask("get_status", full=True)
    assert replica.received[-1].full


async def test_the_other_calls_of_admin(replica: ScriptedReplica, client: Face) -> None:
    replica.answers["GetDigest"] = lambda request: admin_pb2.GetDigestResponse(
        digest=b"d" * 32, live=2, at_ms=request.at_ms
    )
    replica.answers["AddPeer"] = lambda request: admin_pb2.AddPeerResponse(added=request.address == "h:1")
    replica.answers["RemovePeer"] = lambda request: admin_pb2.RemovePeerResponse(removed=True)
    replica.answers["RetireMember"] = lambda request: admin_pb2.RetireMemberResponse(retired=True)
    replica.answers["Compact"] = lambda request: admin_pb2.CompactResponse(
        purged_tombstones=1,
        waiting=2,
        held_by=[admin_pb2.HeldBy(cluster="us", reason="has not been heard of")],
    )
    digest = await client.ask("get_digest", at_ms=0)
    assert (digest.digest, digest.live, digest.at_ms) == (b"d" * 32, 2, 0)
    assert replica.received[-1].HasField("at_ms")
    assert not replica.received[-1].HasField("repo_id")
    assert await client.ask("add_peer", "us", "h:1") is True
    assert await client.ask("add_peer", "us", "h:2") is False
    assert await client.ask("remove_peer", "us") is True
    assert await client.ask("retire_member", "us") is True
    assert replica.received[-1] == admin_pb2.RetireMemberRequest(cluster="us")
    assert await client.ask("compact") == Compacted(1, 0, 2, (HeldBy("us", "has not been heard of", None),))


async def test_an_answer_larger_than_grpc_expects_by_itself_arrives(
    replica: ScriptedReplica, client: Face
) -> None:
    body = "x" * (6 * 1024 * 1024)
    replica.answers["Recall"] = lambda request: memory_pb2.RecallResponse(entry=memory_pb2.Entry(body=body))
    assert (await client.ask("recall", KEY)).body == body


async def test_bytes_that_are_no_answer_are_an_internal_error(faces: Faces) -> None:
    async def garbage(request: bytes, context: Context) -> bytes:
        return b"\xff\xff"

    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    handlers = {"Recall": grpc.unary_unary_rpc_method_handler(garbage)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("ricordo.v1.Memory", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with pytest.raises(InternalError, match="could not be decoded"):
        await faces(f"127.0.0.1:{port}").ask("recall", KEY)
    await server.stop(None)


async def test_a_proxy_for_the_web_is_not_asked(
    replica: ScriptedReplica, faces: Faces, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    client = faces(replica.address, Retry(deadline=5))
    assert (await client.ask("remember", "r", "t")).created


@pytest.mark.parametrize(
    "wrong", [{"title": "\ud800"}, {"title": 3}, {"created_at_ms": 2**63}, {"tags": [1]}]
)
async def test_what_no_request_can_carry_is_refused_before_anything_is_sent(
    replica: ScriptedReplica, client: Face, wrong: dict[str, Any]
) -> None:
    replica.answers["Remember"] = unexpected
    with pytest.raises((TypeError, ValueError)):
        await client.ask("remember", "r", "t", **wrong)
    assert not replica.received


async def test_a_cancelled_task_cancels_its_call(replica: ScriptedReplica) -> None:
    async with AsyncClient(replica.address) as client:
        cancelled = asyncio.Event()

        async def watched(context: Context) -> None:
            try:
                await silence(context)
            finally:
                cancelled.set()

        replica.faults.append(watched)
        task = asyncio.create_task(client.remember("r", "t"))
        await replica.silenced.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await cancelled.wait()
    assert len(replica.received) == 1


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def methods(kind: type) -> dict[str, list[inspect.Parameter]]:
        return {
            name: list(inspect.signature(member).parameters.values())
            for name, member in vars(kind).items()
            if not name.startswith("_")
        }

    blocking, asynchronous = methods(Client), methods(AsyncClient)
    assert blocking == asynchronous
    called = {
        re.sub("(?<!^)(?=[A-Z])", "_", method.name).lower()
        for service in SERVICES
        for method in service.methods
    }
    assert set(blocking) == called | {"run", "follow", "close", "get_range_digests"}
    assert all(getattr(Client, name).__doc__ for name in blocking)


async def test_the_example_of_the_documentation_runs(
    replica: ScriptedReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    held: dict[str, memory_pb2.Entry] = {}

    def made(request: memory_pb2.RememberRequest) -> memory_pb2.RememberResponse:
        response = replica.make(request)
        held[response.key] = memory_pb2.Entry(key=response.key, title=request.title, tags=request.tags)
        return response

    def many(request: memory_pb2.RememberManyRequest) -> memory_pb2.RememberManyResponse:
        return memory_pb2.RememberManyResponse(
            results=[memory_pb2.RememberResult(remembered=made(entry)) for entry in request.entries]
        )

    replica.answers["Remember"] = made
    replica.answers["RememberMany"] = many
    replica.answers["Recall"] = lambda request: memory_pb2.RecallResponse(entry=held[request.key])
    replica.answers["Scan"] = lambda request: memory_pb2.ScanResponse(entries=held.values())

    def updated(request: memory_pb2.UpdateRequest) -> memory_pb2.UpdateResponse:
        if request.key not in held:
            replica.faults.append(ending_with(grpc.StatusCode.NOT_FOUND, "key: no such entry"))
        return memory_pb2.UpdateResponse(key=request.key)

    replica.answers["Update"] = updated
    documented = ricordo_client.__doc__
    assert documented is not None
    lines = [line[4:] for line in documented.splitlines() if line.startswith("    ") or not line]
    source = "\n".join(lines).replace("127.0.0.1:7600", replica.address)
    await asyncio.to_thread(exec, compile(source, "example", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "Keep retries at the edge"
    assert "('grpc',)" in printed[1]
    assert "no such entry" in printed[-1]
    assert len(held) == 3
