"""The tasks that pull: when they try again, and which peers a replica knows."""

import asyncio
import random

import grpc
import pytest

from crdt.dot import Incarnation, Millis
from replica.core.errors import Code, Refused
from replica.core.identity import Identity
from replica.core.peers import add_peer, remove_peer, stored_peers
from replica.server.peer_book import Origin, Peer, PeerBook
from replica.server.peers import Backoff, Peers, PullEnded
from replica.storage.memory import MemoryStorage
from replica.wire import admin_pb2 as apb
from tests.server.served import Served, Start

ME = Identity("eu", Incarnation(b"i" * 16), b"s" * 16)


async def test_a_peer_is_tried_again_and_its_failure_is_told() -> None:
    book, attempts = PeerBook(), asyncio.Queue[str]()

    async def attempt(peer: Peer) -> None:
        await attempts.put(peer.address)
        raise PullEnded("it is down")

    peers = Peers(book, attempt, Backoff(Millis(1), Millis(2)), lambda: Millis(7), random.Random())
    peers.add("us", "a:1", Origin.CONFIGURED)
    assert [await attempts.get() for _ in range(5)] == ["a:1"] * 5
    [peer] = book
    assert (peer.last_error, peer.last_error_at, peer.connected) == ("it is down", 7, False)
    await peers.close()


async def test_a_peer_that_shows_up_is_tried_at_once_unless_it_refuses() -> None:
    book, attempts = PeerBook(), asyncio.Queue[None]()

    async def attempt(peer: Peer) -> None:
        await attempts.put(None)
        raise PullEnded("no", refused=peer.cluster == "ap")

    hour = Millis(3_600_000)
    peers = Peers(book, attempt, Backoff(hour, hour), lambda: Millis(0), random.Random())
    peers.add("us", "a:1", Origin.ADDED)
    await attempts.get()
    for _ in range(3):
        await asyncio.sleep(0)
        peers.wake("us")
        await attempts.get()
    peers.add("ap", "a:2", Origin.ADDED)
    await attempts.get()
    peers.wake("ap")
    for _ in range(20):
        await asyncio.sleep(0)
    assert attempts.empty()
    await peers.close()


async def test_a_fault_in_pulling_from_one_peer_is_that_peers_alone() -> None:
    book, attempts = PeerBook(), asyncio.Queue[str]()

    async def attempt(peer: Peer) -> None:
        await attempts.put(peer.cluster)
        raise RuntimeError("a body that nobody may see")

    peers = Peers(book, attempt, Backoff(Millis(1), Millis(2)), lambda: Millis(0), random.Random())
    peers.add("us", "a:1", Origin.ADDED)
    peers.add("ap", "a:2", Origin.ADDED)
    seen = [await attempts.get() for _ in range(10)]
    assert set(seen) == {"us", "ap"}
    assert all("body" not in (peer.last_error or "") for peer in book)
    await peers.close()


async def test_a_removed_peer_is_not_tried_again() -> None:
    book, started, ended = PeerBook(), asyncio.Event(), asyncio.Event()

    async def attempt(peer: Peer) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    peers = Peers(book, attempt, Backoff(Millis(1), Millis(2)), lambda: Millis(0), random.Random())
    peers.add("us", "a:1", Origin.ADDED)
    await started.wait()
    peers.remove("us")
    await ended.wait()
    assert list(book) == []
    await peers.close()


def test_a_peer_is_stored_once() -> None:
    storage = MemoryStorage()
    assert storage.run(lambda transaction: add_peer(transaction, ME, {}, "us", "a:1"))
    assert not storage.run(lambda transaction: add_peer(transaction, ME, {}, "us", "a:1"))
    with pytest.raises(Refused) as raised:
        storage.run(lambda transaction: add_peer(transaction, ME, {}, "us", "a:2"))
    assert (raised.value.code, raised.value.field) == (Code.ALREADY_EXISTS, "cluster")
    with storage.snapshot() as snapshot:
        assert stored_peers(snapshot) == {"us": "a:1"}
    assert storage.run(lambda transaction: remove_peer(transaction, {}, "us"))
    assert not storage.run(lambda transaction: remove_peer(transaction, {}, "us"))


async def test_a_configured_peer_cannot_be_added_elsewhere_or_removed(start: Start) -> None:
    served = await start(peers=["us=127.0.0.1:9"])
    same = await served.admin.AddPeer(apb.AddPeerRequest(cluster="us", address="127.0.0.1:9"))
    assert not same.added
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await served.admin.AddPeer(apb.AddPeerRequest(cluster="us", address="127.0.0.1:8"))
    assert raised.value.code() is grpc.StatusCode.ALREADY_EXISTS
    with pytest.raises(grpc.aio.AioRpcError, match="take it out there") as raised:
        await served.admin.RemovePeer(apb.RemovePeerRequest(cluster="us"))
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    [peer] = (await served.status()).peers
    assert (peer.cluster, peer.origin) == ("us", apb.PEER_ORIGIN_CONFIGURED)


async def test_an_unknown_peer_is_not_there_to_remove(served: Served) -> None:
    assert not (await served.admin.RemovePeer(apb.RemovePeerRequest(cluster="us"))).removed


async def test_a_replica_is_no_peer_of_its_own(served: Served) -> None:
    own = served.replica.replication_address
    port = own.rpartition(":")[2]
    for cluster, address, field in (
        (served.replica.runtime.identity.cluster, "127.0.0.1:9", "cluster"),
        ("us", own, "address"),
        ("us", f"localhost:{port}", "address"),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=field) as raised:
            await served.admin.AddPeer(apb.AddPeerRequest(cluster=cluster, address=address))
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not (await served.status()).peers
    assert (await served.admin.AddPeer(apb.AddPeerRequest(cluster="us", address=f"us.example:{port}"))).added


def test_the_log_says_that_a_consumer_is_refused_when_the_reason_is_new_or_a_minute_old() -> None:
    peer = Peer("us", Origin.CONSUMER_ONLY)
    said = [
        peer.refused(Millis(now), reason)
        for now, reason in ((0, "a"), (2_000, "a"), (4_000, "b"), (6_000, "b"), (64_000, "b"), (65_000, "b"))
    ]
    assert said == [True, False, True, False, True, False]
    assert (peer.last_error, peer.last_error_at) == ("refused as a consumer: b", 65_000)
