"""Whatever a caller sends: the error is named, nothing is changed, and the replica goes on serving."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status

from replica.wire import admin_pb2, memory_pb2
from replica.wire import admin_pb2 as apb
from replica.wire import memory_pb2 as pb
from tests.server.served import Served

INVALID = grpc.StatusCode.INVALID_ARGUMENT
KEY = "repo/r/mem/t/a"


def remember(**fields: object) -> tuple[str, Message]:
    given = {"repo_id": "r", "topic": "t", "id": "a", **fields}
    return "Memory/Remember", pb.RememberRequest(**given)


def update(**fields: object) -> tuple[str, Message]:
    return "Memory/Update", pb.UpdateRequest(**{"key": KEY, **fields})


def links(*relations: str, targets: list[str] | None = None) -> list[pb.Link]:
    return [pb.Link(relation=relation, targets=targets or ["x"]) for relation in relations]


MANY = [str(number) for number in range(257)]

CASES: dict[str, tuple[tuple[str, Message], grpc.StatusCode, str]] = {
    # keys
    "no repo": (remember(repo_id=""), INVALID, "repo_id"),
    "no topic": (remember(topic=""), INVALID, "topic"),
    "an empty id": (remember(id=""), INVALID, "id"),
    "a long topic": (remember(topic="x" * 129), INVALID, "topic"),
    "a long topic of few characters": (remember(topic="🧠" * 33), INVALID, "topic"),
    "a control character": (remember(id="a\0b"), INVALID, "id"),
    "a line end": (remember(id="a\nb"), INVALID, "id"),
    "not NFC": (remember(topic="e\u0301"), INVALID, "topic"),
    "no key": (("Memory/Recall", pb.RecallRequest()), INVALID, "key"),
    "a key of another form": (("Memory/Recall", pb.RecallRequest(key="r/t/a")), INVALID, "key"),
    "a bare percent sign": (("Memory/Recall", pb.RecallRequest(key="repo/r/mem/t/50%")), INVALID, "key"),
    "an empty component": (("Memory/History", pb.HistoryRequest(key="repo/r/mem//a")), INVALID, "key"),
    "a bad key to update": (update(key="x"), INVALID, "key"),
    "a bad key to forget": (("Memory/Forget", pb.ForgetRequest(key="x")), INVALID, "key"),
    "one bad key of many": (
        ("Memory/RecallMany", pb.RecallManyRequest(keys=[KEY, "x"])),
        INVALID,
        "keys[1]",
    ),
    "too many keys": (("Memory/RecallMany", pb.RecallManyRequest(keys=[KEY] * 501)), INVALID, "keys"),
    # limits
    "a long title": (remember(title="x" * 1025), INVALID, "title"),
    "a long author": (remember(author="x" * 1025), INVALID, "author"),
    "a long provenance": (remember(provenance="x" * 1025), INVALID, "provenance"),
    "a long body": (remember(body="x" * 65537), INVALID, "body"),
    "a long body of few characters": (update(body="🧠" * 16385), INVALID, "body"),
    "many tags": (remember(tags=MANY[:65]), INVALID, "tags"),
    "a long tag": (remember(tags=["x", "x" * 129]), INVALID, "tags[1]"),
    "an empty tag": (remember(tags=["x", ""]), INVALID, "tags[1]"),
    "a tag with a bell": (update(add_tags=["\a"]), INVALID, "add_tags[0]"),
    "a tag both ways": (update(add_tags=["x"], remove_tags=["x"]), INVALID, "remove_tags"),
    "many targets": (remember(add_links=links("r", targets=MANY)), INVALID, "add_links"),
    "a long relation": (remember(add_links=links("x", "x" * 65)), INVALID, "add_links[1].relation"),
    "no relation": (remember(add_links=links("")), INVALID, "add_links[0].relation"),
    "a relation without targets": (
        remember(add_links=[pb.Link(relation="x")]),
        INVALID,
        "add_links[0].targets",
    ),
    "a long target": (
        update(add_links=links("x", targets=["x", "x" * 513])),
        INVALID,
        "add_links[0].targets[1]",
    ),
    "a target both ways": (
        remember(add_links=links("x"), remove_links=links("x")),
        INVALID,
        "remove_links",
    ),
    "a long request id": (remember(request_id="x" * 129), INVALID, "request_id"),
    "an unknown kind": (remember(kind="note"), INVALID, "kind"),
    "no kind": (remember(kind=""), INVALID, "kind"),
    # times
    "no life": (remember(ttl_seconds=0), INVALID, "ttl_seconds"),
    "a life before now": (remember(ttl_seconds=-1), INVALID, "ttl_seconds"),
    "an endless life": (remember(ttl_seconds=float("inf")), INVALID, "ttl_seconds"),
    "a life of no number": (remember(ttl_seconds=float("nan")), INVALID, "ttl_seconds"),
    "a life beyond time": (remember(ttl_seconds=1e300), INVALID, "ttl_seconds"),
    "a window of nothing": (
        ("Memory/Forget", pb.ForgetRequest(key=KEY, lapse=True, lapse_seconds=0)),
        INVALID,
        "lapse_seconds",
    ),
    "a window without a lapse": (
        ("Memory/Forget", pb.ForgetRequest(key=KEY, lapse_seconds=3)),
        INVALID,
        "lapse_seconds",
    ),
    "made beyond time": (remember(created_at_ms=2**62), INVALID, "created_at_ms"),
    # conditions
    "it exists": (remember(create_only=True), grpc.StatusCode.ALREADY_EXISTS, "key"),
    "it has moved on": (remember(if_version="other"), grpc.StatusCode.ABORTED, "if_version"),
    "it was never there": (update(key="repo/r/mem/t/none"), grpc.StatusCode.NOT_FOUND, "key"),
    "another call of that name": (
        remember(request_id="used", title="different"),
        INVALID,
        "request_id",
    ),
    # pages
    "a scan of nothing": (("Memory/Scan", pb.ScanRequest()), INVALID, "repo_id"),
    "a scan of an empty topic": (("Memory/Scan", pb.ScanRequest(repo_id="r", topic="")), INVALID, "topic"),
    "a large page": (("Memory/Scan", pb.ScanRequest(repo_id="r", page_size=501)), INVALID, "page_size"),
    "a page of less than nothing": (
        ("Memory/ListRepos", pb.ListReposRequest(page_size=-1)),
        INVALID,
        "page_size",
    ),
    "a token of nobody": (
        ("Memory/Scan", pb.ScanRequest(repo_id="r", page_token="bm9uZQ")),
        INVALID,
        "page_token",
    ),
    "a token of no alphabet": (
        ("Memory/ListTopics", pb.ListTopicsRequest(repo_id="r", page_token="🧠")),
        INVALID,
        "page_token",
    ),
    # many
    "too many entries": (
        ("Memory/RememberMany", pb.RememberManyRequest(entries=[pb.RememberRequest()] * 501)),
        INVALID,
        "entries",
    ),
    "too many bytes": (
        (
            "Memory/RememberMany",
            pb.RememberManyRequest(entries=[pb.RememberRequest(body="x" * 65536)] * 33),
        ),
        INVALID,
        "entries",
    ),
    # admin
    "a digest of no repository": (
        ("Admin/GetDigest", apb.GetDigestRequest(repo_id="")),
        INVALID,
        "repo_id",
    ),
    "a peer without a name": (("Admin/AddPeer", apb.AddPeerRequest(address="a:1")), INVALID, "cluster"),
    "itself as a peer": (
        ("Admin/AddPeer", apb.AddPeerRequest(cluster="eu", address="a:1")),
        INVALID,
        "cluster",
    ),
    "a peer without a port": (
        ("Admin/AddPeer", apb.AddPeerRequest(cluster="us", address="a")),
        INVALID,
        "address",
    ),
    "a peer at port 0": (
        ("Admin/AddPeer", apb.AddPeerRequest(cluster="us", address="a:0")),
        INVALID,
        "address",
    ),
    "a peer to remove without a name": (("Admin/RemovePeer", apb.RemovePeerRequest()), INVALID, "cluster"),
}


def raw(channel: grpc.aio.Channel, method: str) -> Callable[[bytes], Awaitable[bytes]]:
    """A method that takes and gives bytes."""
    return channel.unary_unary(f"/ricordo.v1.{method}")


async def still_serves(served: Served) -> None:
    assert (await served.recall("t", "a")).title == "kept"
    await served.status()


@pytest.mark.parametrize("case", CASES)
async def test_what_is_refused_is_named_and_changes_nothing(served: Served, case: str) -> None:
    (method, request), code, field = CASES[case]
    await served.remember("t", "a", title="kept", request_id="used")
    before, digest = served.rows(), await served.digest(0)

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await raw(served.channel, method)(request.SerializeToString())

    assert raised.value.code() is code
    info = ErrorInfo()
    status = rpc_status.from_call(raised.value)
    assert status.details[-1].Unpack(info)
    assert (info.reason, info.domain, info.metadata["field"]) == (code.name, "ricordo", field)
    assert info.metadata["remedy"]
    if code is INVALID:
        violations = BadRequest()
        assert status.details[0].Unpack(violations)
        assert [violation.field for violation in violations.field_violations] == [field]
    assert "xxxxx" not in str(status)
    assert len(status.SerializeToString()) < 8192
    assert served.rows() == before
    assert await served.digest(0) == digest
    await still_serves(served)


METHODS = [
    f"{service.name}/{method.name}"
    for file in (memory_pb2, admin_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


@pytest.mark.parametrize("method", METHODS)
async def test_bytes_that_are_no_message_are_an_invalid_argument(served: Served, method: str) -> None:
    await served.remember("t", "a", title="kept")
    before = served.rows()
    for garbage in (b"\xff\xff\xff", b"\x0a\x05ab", b"\x0f"):
        with pytest.raises(grpc.aio.AioRpcError, match="cannot be decoded") as raised:
            await raw(served.channel, method)(garbage)
        assert raised.value.code() is INVALID
    assert served.rows() == before
    await still_serves(served)


async def test_text_that_is_no_utf8_is_an_invalid_argument(served: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="cannot be decoded") as raised:
        await raw(served.channel, "Memory/Recall")(b"\x0a\x02\xc3\x28")
    assert raised.value.code() is INVALID


async def test_a_method_that_is_none_is_unimplemented(served: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await raw(served.channel, "Memory/Dream")(b"")
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_message_beyond_the_listeners_bound_is_refused(served: Served) -> None:
    await served.remember("t", "a", title="kept")
    before = served.rows()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await served.remember("t", "a", body="x" * (5 << 20))
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert served.rows() == before
    await still_serves(served)


@pytest.mark.parametrize("port", ["listen_address", "replication_address"])
@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0" * 4096,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4096,
    ],
    ids=["another protocol", "encrypted", "zeros", "a broken frame"],
)
async def test_garbage_on_a_port_disturbs_nobody(served: Served, port: str, garbage: bytes) -> None:
    await served.remember("t", "a", title="kept")
    before = served.rows()
    host, _, number = getattr(served.replica, port).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(number))
    writer.write(garbage)
    await writer.drain()
    writer.write_eof()
    # The replica ends the connection.
    await reader.read()
    writer.close()
    assert served.rows() == before
    await still_serves(served)


async def test_unknown_fields_are_ignored(served: Served) -> None:
    request = pb.RecallRequest(key=KEY).SerializeToString() + b"\xf8\x3f\x01"
    answer = pb.RecallResponse.FromString(await raw(served.channel, "Memory/Recall")(request))
    assert answer.entry.key == KEY
