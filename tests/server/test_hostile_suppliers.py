"""What a replica makes of a supplier that is none: it says what is wrong, and nothing else happens."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import pytest

from replica.wire import admin_pb2 as apb
from replica.wire import replication_pb2 as pb
from tests.server.served import Served
from tests.server.test_replication import status_of

STORE, INCARNATION = b"s" * 16, b"\x01" * 16
WELCOME = {
    "verdict": pb.VERDICT_EMPTY,
    "cause": pb.CAUSE_NOTHING_SEEN,
    "protocol_version": 1,
    "cluster": "us",
    "incarnation": INCARNATION,
    "store_id": STORE,
    "now_ms": 1,
}


def welcome(**changed: object) -> bytes:
    message = pb.SupplierMessage(welcome=pb.Welcome(**{**WELCOME, **changed}))
    return message.SerializeToString()


def batch(me: apb.GetStatusResponse, **changed: object) -> bytes:
    given = {
        "store_id": STORE,
        "for_incarnation": me.incarnation,
        "for_store_id": me.store_id,
        "upto_sequence": 1,
        "now_ms": 1,
        **changed,
    }
    return pb.SupplierMessage(batch=pb.Batch(**given)).SerializeToString()


@asynccontextmanager
async def supplier(*messages: bytes) -> AsyncIterator[str]:
    """A server that answers every Pull with these bytes."""

    async def pull(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
        await anext(aiter(requests))
        for message in messages:
            yield message
        await asyncio.Event().wait()

    handler = grpc.stream_stream_rpc_method_handler(pull)
    service = grpc.method_handlers_generic_handler("ricordo.v1.Replication", {"Pull": handler})
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([service])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


CASES: dict[str, tuple[Callable[[apb.GetStatusResponse], list[bytes]], str]] = {
    "no message": (lambda me: [b"\xff\xff\xff"], "cannot be decoded"),
    "no known message": (lambda me: [b""], "broke the protocol"),
    "another cluster": (lambda me: [welcome(cluster="ap")], "the replica at this address is ap"),
    "another version": (lambda me: [welcome(protocol_version=2)], "version 2"),
    "an unknown verdict": (lambda me: [welcome(verdict=pb.VERDICT_UNSPECIFIED)], "verdict"),
    "an unknown cause": (lambda me: [welcome() + b"\x0a\x03\x58\xe3\x00"], "verdict"),
    "no welcome": (lambda me: [batch(me)], "its first message is no welcome"),
    "a batch of another store": (
        lambda me: [welcome(), batch(me, store_id=b"o" * 16)],
        "from another store",
    ),
    "a register that does not open": (
        lambda me: [welcome(), batch(me, changes=[pb.Change(key=b"r\0t\0b", register=b"garbage")])],
        "broke the protocol",
    ),
    "a key that is none": (
        lambda me: [welcome(), batch(me, changes=[pb.Change(key=b"\xff", register=b"garbage")])],
        "broke the protocol",
    ),
    "a batch that goes back": (
        lambda me: [welcome(), batch(me, after_sequence=5, upto_sequence=3)],
        "ends before the cursor",
    ),
    "a reason that rewrites the screen": (
        lambda me: [
            welcome(verdict=pb.VERDICT_REFUSED, cause=pb.CAUSE_UNTRUSTED, reason="no\x1b[2J\nway" * 1000)
        ],
        "no?[2J way",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_no_supplier_says_ends_the_stream_and_changes_nothing(served: Served, case: str) -> None:
    messages, words = CASES[case]
    await served.remember("t", "a", title="kept")
    before = served.rows()
    async with supplier(*messages(await served.status())) as address:
        await served.admin.AddPeer(apb.AddPeerRequest(cluster="us", address=address))
        told = await status_of(served, "us", lambda peer: words in peer.last_error)
        assert not told.connected
        assert told.last_error.isprintable()
        assert len(told.last_error) <= 500
    for table in ("registers", "changes", "clock", "cursors"):
        assert served.rows()[table] == before[table]
    assert (await served.recall("t", "a")).title == "kept"
