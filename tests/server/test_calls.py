"""Every call of Memory and Admin, over a socket, on a store on disk."""

import asyncio

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from crdt.dot import Millis
from replica.wire import admin_pb2 as apb
from replica.wire import memory_pb2 as pb
from tests.server.served import Served, Start

TEXTS = {
    "right to left": "זיכרון متجدد",
    "emoji and four bytes": "🧠𝄞👩‍🚀",
    "lines": "one\ntwo\r\n\tthree\n",
    "escapes": "50% of /path%2Fto%25",
    "largest": "x" * 65536,
}


async def test_remember_and_recall(served: Served) -> None:
    link = pb.Link(relation="about", targets=["https://example.org/", "repo/r/mem/t/b"])
    made = await served.remember(
        "t",
        "a",
        kind="Decision",
        title="Title",
        body="Body",
        author="Ann",
        provenance="here",
        tags=["z", "a"],
        add_links=[link],
        ttl_seconds=3600,
        created_at_ms=5,
    )
    assert (made.key, made.id, made.created, made.kind) == ("repo/r/mem/t/a", "a", True, "Decision")
    assert (made.fields_updated, made.tags_added, made.links_added) == (4, 2, 2)
    entry = await served.recall("t", "a")
    assert entry.exists
    assert (entry.repo_id, entry.topic, entry.id, entry.kind) == ("r", "t", "a", "Decision")
    assert (entry.title, entry.body, entry.author, entry.provenance) == ("Title", "Body", "Ann", "here")
    assert (list(entry.tags), list(entry.links), entry.created_at_ms) == (["a", "z"], [link], 5)
    assert entry.expires_at_ms == made.expires_at_ms
    assert 0 < entry.remaining_seconds <= 3600
    assert (entry.version, entry.sibling_count) == (made.version, 1)


async def test_what_is_absent_is_no_error(served: Served) -> None:
    entry = await served.recall("t", "nowhere")
    assert (entry.exists, entry.key, entry.id) == (False, "repo/r/mem/t/nowhere", "nowhere")
    assert not entry.HasField("expires_at_ms")


async def test_without_an_id_one_is_made_that_sorts_by_time(served: Served) -> None:
    made = [await served.memory.Remember(pb.RememberRequest(repo_id="r", topic="t")) for _ in range(3)]
    assert len({each.id for each in made}) == 3
    assert all(each.created and each.id[14] == "7" for each in made)


async def test_remember_again_with_the_same_request_id_is_the_same_write(served: Served) -> None:
    first = await served.remember("t", "a", title="once", request_id="q")
    assert await served.remember("t", "a", title="once", request_id="q") == first
    assert (await served.status()).sequence == 1


async def test_remember_many_answers_one_by_one(served: Served) -> None:
    entries = [
        pb.RememberRequest(repo_id="r", topic="t", id="a", title="1"),
        pb.RememberRequest(repo_id="r", topic="t", id="a", title="2"),
        pb.RememberRequest(repo_id="r", topic="t", id="b", tags=["x", ""]),
        pb.RememberRequest(repo_id="r", topic="t", id="a", create_only=True),
        pb.RememberRequest(repo_id="r", topic="t", id="c"),
    ]
    answer = await served.memory.RememberMany(pb.RememberManyRequest(entries=entries))
    outcomes = [result.WhichOneof("outcome") for result in answer.results]
    assert outcomes == ["remembered", "remembered", "error", "error", "remembered"]
    assert [answer.results[at].remembered.created for at in (0, 1, 4)] == [True, False, True]
    assert answer.results[2].error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert answer.results[2].error.message == "tags[1]: must not be empty"
    assert answer.results[3].error.code == grpc.StatusCode.ALREADY_EXISTS.value[0]
    assert (await served.recall("t", "a")).title == "2"
    status = await served.status()
    assert (status.sequence, status.storage.commits) == (3, 1)


async def test_update_leaves_what_it_does_not_name(served: Served) -> None:
    await served.remember("t", "a", title="old", body="stays", tags=["x", "y"])
    done = await served.memory.Update(
        pb.UpdateRequest(key="repo/r/mem/t/a", title="", add_tags=["z"], remove_tags=["x", "never"])
    )
    assert (done.fields_updated, done.tags_added, done.tags_removed) == (1, 1, 1)
    entry = await served.recall("t", "a")
    assert (entry.title, entry.body, list(entry.tags)) == ("", "stays", ["y", "z"])
    assert entry.version == done.version


async def test_forget_at_once_and_by_lapse(served: Served) -> None:
    await served.remember("t", "a")
    lapsing = await served.memory.Forget(pb.ForgetRequest(key="repo/r/mem/t/a", lapse=True, lapse_seconds=30))
    assert (lapsing.mode, lapsing.existed) == (pb.FORGET_MODE_LAPSE, True)
    assert (await served.recall("t", "a")).expires_at_ms == lapsing.expires_at_ms
    gone = await served.memory.Forget(pb.ForgetRequest(key="repo/r/mem/t/a"))
    assert (gone.mode, gone.existed) == (pb.FORGET_MODE_FORGET, True)
    assert not (await served.recall("t", "a")).exists
    assert not (await served.memory.Forget(pb.ForgetRequest(key="repo/r/mem/t/a"))).existed


async def test_recall_many_keeps_the_order_asked_for(served: Served) -> None:
    for id in "abc":
        await served.remember("t", id)
    keys = [f"repo/r/mem/t/{id}" for id in "cxa"]
    answer = await served.memory.RecallMany(pb.RecallManyRequest(keys=keys))
    assert [(entry.id, entry.exists) for entry in answer.entries] == [("c", True), ("x", False), ("a", True)]


async def test_history_says_who_wrote_what(served: Served) -> None:
    await served.remember("t", "a", title="T")
    history = await served.memory.History(pb.HistoryRequest(key="repo/r/mem/t/a"))
    assert [each.field for each in history.fields] == ["kind", "title", "created_at"]
    assert (history.fields[1].shown.text, history.fields[1].shown.cluster) == ("T", "eu")


async def test_scan_by_pages_finds_each_entry_once_and_ends_a_topic_at_its_component(served: Served) -> None:
    ids = [f"{number:03}" for number in range(25)]
    for topic in ("svc", "svc-api"):
        entries = [pb.RememberRequest(repo_id="r", topic=topic, id=id) for id in ids]
        await served.memory.RememberMany(pb.RememberManyRequest(entries=entries))
    found, token = [], ""
    while True:
        page = await served.memory.Scan(
            pb.ScanRequest(repo_id="r", topic="svc", page_size=10, page_token=token)
        )
        found += [(entry.topic, entry.id) for entry in page.entries]
        token = page.next_page_token
        if not token:
            break
    assert found == [("svc", id) for id in ids]
    whole = await served.memory.Scan(pb.ScanRequest(repo_id="r", page_size=500))
    assert len(whole.entries) == 50
    assert not whole.next_page_token


async def test_a_page_of_large_entries_is_cut_by_its_bytes(served: Served) -> None:
    for number in range(40):
        await served.remember("t", f"{number:02}", body="x" * 65536)
    page = await served.memory.Scan(pb.ScanRequest(repo_id="r", page_size=500))
    assert 1 < len(page.entries) < 40
    assert page.ByteSize() <= 2 << 20
    rest = await served.memory.Scan(
        pb.ScanRequest(repo_id="r", page_size=500, page_token=page.next_page_token)
    )
    assert len(page.entries) + len(rest.entries) == 40


async def test_topics_and_repositories_count_what_lives(served: Served) -> None:
    for topic, id in (("b", "1"), ("a", "1"), ("a", "2"), ("c", "1")):
        await served.remember(topic, id)
    await served.memory.Forget(pb.ForgetRequest(key="repo/r/mem/c/1"))
    await served.memory.Remember(pb.RememberRequest(repo_id="other", topic="t", id="1"))
    topics = await served.memory.ListTopics(pb.ListTopicsRequest(repo_id="r"))
    assert [(each.topic, each.live) for each in topics.topics] == [("a", 2), ("b", 1)]
    repos = await served.memory.ListRepos(pb.ListReposRequest())
    assert [(each.repo_id, each.live) for each in repos.repos] == [("other", 1), ("r", 3)]
    page = await served.memory.ListTopics(pb.ListTopicsRequest(repo_id="r", page_size=1))
    rest = await served.memory.ListTopics(
        pb.ListTopicsRequest(repo_id="r", page_size=1, page_token=page.next_page_token)
    )
    assert [each.topic for each in (*page.topics, *rest.topics)] == ["a", "b"]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_any_text_comes_back_as_it_was(served: Served, text: str) -> None:
    id = "".join(character for character in text if character.isprintable())[:20]
    made = await served.remember("t", id, body=text, tags=["🏷"])
    answer = await served.memory.Recall(pb.RecallRequest(key=made.key))
    assert (answer.entry.body, answer.entry.id, list(answer.entry.tags)) == (text, id, ["🏷"])


async def test_an_entry_is_hidden_everywhere_from_the_millisecond_it_expires(start: Start) -> None:
    time = [1_000_000]
    served = await start(clock=lambda: Millis(time[0]))
    made = await served.remember("t", "a", title="brief", ttl_seconds=1)
    assert made.expires_at_ms == 1_001_000

    async def seen() -> tuple[bool, ...]:
        many = await served.memory.RecallMany(pb.RecallManyRequest(keys=[made.key]))
        history = await served.memory.History(pb.HistoryRequest(key=made.key))
        scan = await served.memory.Scan(pb.ScanRequest(repo_id="r"))
        topics = await served.memory.ListTopics(pb.ListTopicsRequest(repo_id="r"))
        repos = await served.memory.ListRepos(pb.ListReposRequest())
        status = await served.status()
        return (
            (await served.recall("t", "a")).exists,
            many.entries[0].exists,
            history.exists,
            bool(scan.entries),
            bool(topics.topics),
            bool(repos.repos),
            status.counts.live == 1,
        )

    time[0] = 1_000_999
    assert all(await seen())
    assert (await served.recall("t", "a")).remaining_seconds == 1
    time[0] = 1_001_000
    assert not any(await seen())
    status = await served.status()
    assert (status.counts.expired, status.counts.registers) == (1, 1)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await served.memory.Update(pb.UpdateRequest(key=made.key, title="x"))
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    assert (await served.remember("t", "a")).created


async def test_the_ttl_of_a_repository_is_the_configured_one(start: Start) -> None:
    served = await start(
        clock=lambda: Millis(1000), ttl__default="1h", ttl__repositories=["r=2s", "keep=none"]
    )
    assert (await served.remember("t", "a")).expires_at_ms == 3000
    assert not (await served.remember("t", "b", durable=True)).HasField("expires_at_ms")
    kept = await served.memory.Remember(pb.RememberRequest(repo_id="keep", topic="t", id="a"))
    assert not kept.HasField("expires_at_ms")
    other = await served.memory.Remember(pb.RememberRequest(repo_id="other", topic="t", id="a"))
    assert other.expires_at_ms == 3_601_000


async def test_a_configured_limit_binds(start: Start) -> None:
    served = await start(limits__body_bytes="10")
    await served.remember("t", "a", body="x" * 10)
    with pytest.raises(grpc.aio.AioRpcError, match="body: is 11 bytes of UTF-8; at most 10 are allowed"):
        await served.remember("t", "a", body="x" * 11)


async def test_status_says_who_and_where_and_how_much(served: Served) -> None:
    await served.remember("t", "a")
    await served.remember("t", "b")
    await served.memory.Forget(pb.ForgetRequest(key="repo/r/mem/t/b"))
    status = await served.status()
    assert (status.cluster, status.data_dir) == ("eu", str(served.folder))
    assert len(status.incarnation) == len(status.store_id) == 16
    assert status.listen_address == served.replica.listen_address
    assert status.replication_address == served.replica.replication_address
    assert status.started_at_ms <= status.now_ms
    assert (status.counts.live, status.counts.tombstones, status.counts.registers) == (1, 1, 2)
    assert (status.sequence, status.storage.engine, status.storage.commits) == (3, "lmdb", 3)
    assert status.storage.used_bytes > 0
    assert (status.storage.HasField("writes"), status.storage.writes) == (True, 3)


async def test_the_digest_is_of_what_lives_at_a_moment(start: Start) -> None:
    served = await start(clock=lambda: Millis(1000))
    empty = await served.admin.GetDigest(apb.GetDigestRequest())
    assert (len(empty.digest), empty.live, empty.at_ms) == (32, 0, 1000)
    await served.remember("t", "a", ttl_seconds=1)
    assert await served.digest(1999) != empty.digest
    assert await served.digest(2000) == empty.digest
    other = await served.admin.GetDigest(apb.GetDigestRequest(at_ms=1999, repo_id="other"))
    assert (other.digest, other.live) == (empty.digest, 0)


async def test_compact_drops_what_nobody_waits_for(start: Start) -> None:
    time = [1_000_000]
    served = await start(clock=lambda: Millis(time[0]), compaction__grace="1s")
    await served.remember("t", "a")
    await served.remember("t", "b", ttl_seconds=1)
    await served.memory.Forget(pb.ForgetRequest(key="repo/r/mem/t/a"))
    time[0] += 1999
    first = await served.admin.Compact(apb.CompactRequest())
    assert (first.purged_tombstones, first.purged_expired, first.waiting) == (1, 0, 0)
    time[0] += 1
    second = await served.admin.Compact(apb.CompactRequest())
    assert (second.purged_tombstones, second.purged_expired, second.waiting) == (0, 1, 0)
    assert (await served.status()).counts.registers == 0


async def test_compact_says_who_is_waited_for(start: Start) -> None:
    served = await start(peers=["us=127.0.0.1:9"])
    await served.remember("t", "a")
    await served.memory.Forget(pb.ForgetRequest(key="repo/r/mem/t/a"))
    answer = await served.admin.Compact(apb.CompactRequest())
    assert (answer.purged_tombstones, answer.waiting) == (0, 1)
    assert [(each.cluster, each.reason, each.waiting) for each in answer.held_by] == [
        ("us", "it was never heard", 1)
    ]


async def test_each_service_says_that_it_is_healthy(served: Served) -> None:
    channels = {
        served.replica.listen_address: ("", "ricordo.v1.Memory", "ricordo.v1.Admin"),
        served.replica.replication_address: ("", "ricordo.v1.Replication"),
    }
    for address, services in channels.items():
        async with grpc.aio.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for service in services:
                answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await health.Check(health_pb2.HealthCheckRequest(service="unheard"))
            assert raised.value.code() is grpc.StatusCode.NOT_FOUND


async def test_reflection_lists_the_services_of_the_client_listener(served: Served) -> None:
    reflection = reflection_pb2_grpc.ServerReflectionStub(served.channel)

    async def ask() -> list[str]:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        async for answer in reflection.ServerReflectionInfo(iter([request])):
            return [service.name for service in answer.list_services_response.service]
        return []

    names = await ask()
    assert {"ricordo.v1.Memory", "ricordo.v1.Admin", "grpc.health.v1.Health"} <= set(names)
    assert "ricordo.v1.Replication" not in names


async def test_a_refusal_names_code_field_and_remedy(served: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await served.remember("t", "a", tags=["fine", "x" * 129])
    status = rpc_status.from_call(raised.value)
    assert isinstance(status, Status)
    violations, info = BadRequest(), ErrorInfo()
    assert status.details[0].Unpack(violations)
    assert status.details[1].Unpack(info)
    assert [violation.field for violation in violations.field_violations] == ["tags[1]"]
    assert (info.domain, info.reason, info.metadata["field"]) == ("ricordo", "INVALID_ARGUMENT", "tags[1]")
    assert "at most 128" in info.metadata["remedy"]


async def test_a_thousand_writes_of_one_key_at_once_are_all_kept(served: Served) -> None:
    made = await asyncio.gather(*(served.remember("t", "a", tags=[f"tag {n}"]) for n in range(1000)))
    assert len({each.version for each in made}) == 1000
    assert sum(each.created for each in made) == 1
    entry = await served.recall("t", "a")
    assert sorted(entry.tags) == sorted(f"tag {n}" for n in range(1000))
    status = await served.status()
    assert status.sequence == 1000
    assert status.storage.commits < 500
    assert status.storage.writes == 1000
