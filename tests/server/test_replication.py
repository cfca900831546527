"""Replicas that replicate over sockets: they agree, whatever happens to the links and processes between."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from crdt.dot import Millis
from replica.config import load_config
from replica.core.storage import Table
from replica.server.replica import Replica
from replica.wire import admin_pb2 as apb
from replica.wire import memory_pb2 as pb
from replica.wire.admin_pb2_grpc import AdminStub
from replica.wire.memory_pb2_grpc import MemoryStub
from tests.server.link import Lay, Link
from tests.server.served import QUICK, Served, Start


async def until(condition: Callable[[], bool], *served: Served) -> None:
    """Return when the condition holds; it is looked at after every commit and message."""
    stirred = asyncio.Event()
    for each in served:
        each.replica.runtime.stirred.add(stirred)
    while not condition():
        stirred.clear()
        await stirred.wait()
    for each in served:
        each.replica.runtime.stirred.discard(stirred)


def contents(served: Served) -> list[tuple[bytes, bytes]]:
    """Every register with its key, without the place in the log."""
    return [(key, frame[12:]) for key, frame in served.rows()["registers"]]


async def agreed(*served: Served) -> None:
    """Return when all hold the same registers and have seen the same writes."""

    def same() -> bool:
        first, *others = ((contents(each), each.rows()["clock"]) for each in served)
        return all(other == first for other in others)

    await until(same, *served)


async def status_of(served: Served, cluster: str, holds: Callable[[apb.PeerStatus], bool]) -> apb.PeerStatus:
    """The status of a peer, once something holds of it."""
    while True:
        for peer in (await served.status()).peers:
            if peer.cluster == cluster and holds(peer):
                return peer


async def introduce(one: Served, other: Served) -> None:
    """Let two replicas pull from each other."""
    for here, there in ((one, other), (other, one)):
        address = there.replica.replication_address
        cluster = there.replica.runtime.identity.cluster
        await here.admin.AddPeer(apb.AddPeerRequest(cluster=cluster, address=address))


async def fill(served: Served, name: str, count: int, **fields: object) -> None:
    entries = [
        pb.RememberRequest(repo_id="r", topic="t", id=f"{name}-{number}", **fields) for number in range(count)
    ]
    for at in range(0, count, 50):
        await served.memory.RememberMany(pb.RememberManyRequest(entries=entries[at : at + 50]))


async def test_a_replica_that_was_alone_and_its_new_peer_converge(start: Start) -> None:
    eu, us = await start("eu"), await start("us")
    made = await eu.remember("t", "brief", ttl_seconds=3600)
    await fill(eu, "eu", 700)
    await fill(us, "us", 300)
    await eu.remember("t", "both", title="from eu", tags=["eu"])
    await us.remember("t", "both", title="from us", tags=["us"])
    await introduce(eu, us)
    await agreed(eu, us)
    for served in (eu, us):
        both = await served.recall("t", "both")
        assert sorted(both.tags) == ["eu", "us"]
        assert {value.text for value in both.concurrent[0].values} == {"from eu", "from us"}
        assert (await served.recall("t", "brief")).expires_at_ms == made.expires_at_ms
        assert (await served.status()).counts.live == 1002
    assert await eu.digest(0) == await us.digest(0)


async def test_an_empty_replica_fills_itself_and_then_hears_of_every_write(start: Start) -> None:
    eu, us = await start("eu"), await start("us")
    await fill(eu, "eu", 1200, body="x" * 4000)
    await introduce(eu, us)
    await agreed(eu, us)
    peer = await status_of(us, "eu", lambda peer: peer.connected)
    assert (peer.verdict, peer.lag, peer.origin) == ("EMPTY", 0, apb.PEER_ORIGIN_ADDED)
    assert peer.received_changes == peer.applied_changes == 1200
    assert peer.received_bytes > 1200 * 4000
    seen = await status_of(eu, "us", lambda peer: peer.acknowledged == 1200)
    assert seen.HasField("last_contact_ms")
    await eu.remember("t", "late", title="now")
    await agreed(eu, us)
    assert (await us.recall("t", "late")).title == "now"
    await us.memory.Forget(pb.ForgetRequest(key="repo/r/mem/t/late"))
    await agreed(eu, us)
    assert not (await eu.recall("t", "late")).exists


async def test_three_replicas_agree_on_what_is_written_everywhere_at_once(start: Start) -> None:
    clusters = [await start(name) for name in ("eu", "us", "ap")]
    for at, one in enumerate(clusters):
        for other in clusters[:at]:
            await introduce(one, other)
    await asyncio.gather(
        *(
            served.remember("t", f"{number % 20}", title=f"{name} {number}", tags=[f"{name}-{number}"])
            for name, served in zip(("eu", "us", "ap"), clusters, strict=True)
            for number in range(60)
        )
    )
    await agreed(*clusters)
    entries = [await served.recall("t", "7") for served in clusters]
    assert len(entries[0].tags) == 9
    assert all(entry.SerializeToString() == entries[0].SerializeToString() for entry in entries)


async def test_what_was_written_while_a_link_was_cut_arrives_when_it_is_mended(
    start: Start, lay: Lay
) -> None:
    eu, us = await start("eu"), await start("us")
    to_us, to_eu = (
        await lay(us.replica.replication_address),
        await lay(eu.replica.replication_address),
    )
    await eu.admin.AddPeer(apb.AddPeerRequest(cluster="us", address=to_us.address))
    await us.admin.AddPeer(apb.AddPeerRequest(cluster="eu", address=to_eu.address))
    await eu.remember("t", "a", title="before")
    await agreed(eu, us)
    to_us.cut()
    to_eu.cut()
    cut = await status_of(eu, "us", lambda peer: bool(peer.last_error))
    assert not cut.connected
    await eu.remember("t", "a", title="from eu")
    await us.remember("t", "a", title="from us")
    await fill(us, "us", 50)
    assert (await eu.recall("t", "a")).title == "from eu"
    to_us.mend()
    to_eu.mend()
    await agreed(eu, us)
    assert len((await eu.recall("t", "a")).concurrent[0].values) == 2
    again = await status_of(eu, "us", lambda peer: peer.connected)
    assert again.verdict == "TAIL"


async def test_a_peer_that_falls_silent_is_noticed_and_found_again(start: Start, lay: Lay) -> None:
    quick = {"replication__heartbeat": "50ms", "replication__silence": "300ms"}
    eu, us = await start("eu", **quick), await start("us", **quick)
    to_us = await lay(us.replica.replication_address)
    await eu.admin.AddPeer(apb.AddPeerRequest(cluster="us", address=to_us.address))
    await us.remember("t", "a")
    await status_of(eu, "us", lambda peer: peer.connected)
    to_us.stall()
    silent = await status_of(eu, "us", lambda peer: bool(peer.last_error))
    assert "silent" in silent.last_error or "taken nothing" in silent.last_error
    await us.remember("t", "b")
    to_us.mend()
    await until(lambda: len(contents(eu)) == 2, eu, us)


class Pair:
    """Two replicas that can be stopped and started again, behind links that stay."""

    def __init__(self, folder: Path, links: dict[str, Link]) -> None:
        self._folder = folder
        self._links = links
        self._stacks: dict[str, AsyncExitStack] = {}

    async def start(self, cluster: str) -> Served:
        """Start one of them, on the data it left."""
        peers = [f"{name}={link.address}" for name, link in self._links.items() if name != cluster]
        given = {
            "cluster": cluster,
            "data_dir": str(self._folder / cluster),
            "listen": "127.0.0.1:0",
            "replication_listen": "127.0.0.1:0",
            "peers": peers,
            **QUICK,
        }
        stack = self._stacks[cluster] = AsyncExitStack()
        replica = await stack.enter_async_context(Replica.serving(load_config(given, environ={})))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(replica.listen_address))
        self._links[cluster].target = replica.replication_address
        return Served(replica, channel, MemoryStub(channel), AdminStub(channel), self._folder / cluster)

    async def stop(self, cluster: str) -> None:
        """Stop one of them."""
        await self._stacks.pop(cluster).aclose()

    async def close(self) -> None:
        """Stop what runs."""
        for cluster in list(self._stacks):
            await self.stop(cluster)


@pytest.fixture
async def pair(tmp_path: Path, lay: Lay) -> AsyncIterator[Pair]:
    made = Pair(tmp_path, {"eu": await lay(), "us": await lay()})
    yield made
    await made.close()


@pytest.mark.parametrize("restarted", ["eu", "us"])
async def test_a_replica_that_was_down_catches_up_and_is_caught_up_with(pair: Pair, restarted: str) -> None:
    running = {cluster: await pair.start(cluster) for cluster in ("eu", "us")}
    other = "us" if restarted == "eu" else "eu"
    await running["eu"].remember("t", "a", title="eu")
    await running["us"].remember("t", "b", title="us")
    await agreed(*running.values())
    before = await running[restarted].status()
    await pair.stop(restarted)
    await running[other].remember("t", "c", title="meanwhile")
    running[restarted] = await pair.start(restarted)
    await agreed(*running.values())
    after = await running[restarted].status()
    # The peer could be asked and vouched for its past.
    assert (after.incarnation, after.store_id) == (before.incarnation, before.store_id)
    await running[restarted].remember("t", "d", title="again")
    await agreed(*running.values())
    assert (await running[other].recall("t", "d")).title == "again"


async def test_a_replica_that_can_ask_nobody_at_its_start_begins_a_new_incarnation(pair: Pair) -> None:
    eu, us = await pair.start("eu"), await pair.start("us")
    await eu.remember("t", "a", title="kept")
    await agreed(eu, us)
    before = await eu.status()
    await pair.stop("us")
    await pair.stop("eu")
    eu = await pair.start("eu")
    after = await eu.status()
    assert after.incarnation > before.incarnation
    assert after.store_id != before.store_id
    assert (await eu.recall("t", "a")).title == "kept"
    await eu.remember("t", "b", title="new")
    us = await pair.start("us")
    await agreed(eu, us)
    assert (await us.recall("t", "b")).title == "new"


async def test_a_replica_that_lost_its_disk_is_filled_again(pair: Pair, tmp_path: Path) -> None:
    eu, us = await pair.start("eu"), await pair.start("us")
    await fill(eu, "eu", 100)
    await fill(us, "us", 100)
    await agreed(eu, us)
    await pair.stop("us")
    (tmp_path / "us").rename(tmp_path / "lost")
    us = await pair.start("us")
    await agreed(eu, us)
    assert (await us.status()).counts.live == 200


async def test_a_removed_peer_is_pulled_from_no_more(start: Start) -> None:
    eu, us = await start("eu"), await start("us")
    await introduce(eu, us)
    await us.remember("t", "a")
    await agreed(eu, us)
    assert (await eu.admin.RemovePeer(apb.RemovePeerRequest(cluster="us"))).removed
    await us.remember("t", "b")
    await eu.remember("t", "c")
    await until(lambda: len(contents(us)) == 3, us, eu)
    assert len(contents(eu)) == 2
    [peer] = (await eu.status()).peers
    assert (peer.cluster, peer.origin, peer.address) == ("us", apb.PEER_ORIGIN_CONSUMER_ONLY, "")


async def test_two_replicas_of_one_cluster_refuse_each_other_on_both_sides(
    start: Start, tmp_path: Path
) -> None:
    eu, twin = await start("eu"), await start("eu", data_dir=str(tmp_path / "twin"))
    # At the address that `eu` was given for `us` there is another replica of its own cluster.
    await eu.admin.AddPeer(apb.AddPeerRequest(cluster="us", address=twin.replica.replication_address))
    refused = await status_of(eu, "us", lambda peer: bool(peer.last_error))
    assert refused.verdict == "REFUSED"
    assert not refused.connected
    assert "cluster eu" in refused.last_error
    supplier = await status_of(twin, "eu", lambda peer: bool(peer.last_error))
    assert "refused as a consumer" in supplier.last_error
    assert (await twin.status()).counts.registers == 0


async def test_a_second_store_that_claims_a_connected_cluster_is_refused_on_both_sides(
    start: Start, tmp_path: Path
) -> None:
    eu, us = await start("eu"), await start("us")
    await introduce(eu, us)
    await eu.remember("t", "a")
    await agreed(eu, us)
    impostor = await start("us", data_dir=str(tmp_path / "impostor"))
    await impostor.remember("t", "b")
    await impostor.admin.AddPeer(apb.AddPeerRequest(cluster="eu", address=eu.replica.replication_address))
    refused = await status_of(impostor, "eu", lambda peer: peer.verdict == "REFUSED")
    assert "us" in refused.reason
    told = await status_of(eu, "us", lambda peer: "refused as a consumer" in peer.last_error)
    assert told.connected
    assert len(contents(impostor)) == 1


async def test_a_wrong_address_is_told_in_one_line(start: Start) -> None:
    eu = await start("eu")
    await eu.admin.AddPeer(apb.AddPeerRequest(cluster="us", address="127.0.0.1:9"))
    unreachable = await status_of(eu, "us", lambda peer: bool(peer.last_error))
    assert unreachable.last_error.startswith("not available: failed to connect")
    # The address of the clients' listener.
    await eu.admin.AddPeer(apb.AddPeerRequest(cluster="ap", address=eu.replica.listen_address))
    wrong = await status_of(eu, "ap", lambda peer: bool(peer.last_error))
    assert "no replica's replication listener" in wrong.last_error


async def test_a_clock_that_is_ahead_is_seen_and_may_not_destroy_what_lives(start: Start) -> None:
    time = [Millis(10_000_000)]
    eu = await start("eu", clock=lambda: time[0])
    us = await start("us", clock=lambda: Millis(time[0] + 600_000))
    await introduce(eu, us)
    await eu.remember("t", "a", title="lives", ttl_seconds=300)
    await agreed(eu, us)
    await status_of(us, "eu", lambda peer: peer.skew_ms == -600_000)
    assert not (await us.recall("t", "a")).exists
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await us.remember("t", "a", title="over it")
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (await eu.recall("t", "a")).title == "lives"


async def test_what_every_member_has_seen_is_dropped_everywhere_and_stays_gone(start: Start) -> None:
    eu, us = await start("eu"), await start("us")
    await introduce(eu, us)
    await eu.remember("t", "a")
    await agreed(eu, us)
    await us.memory.Forget(pb.ForgetRequest(key="repo/r/mem/t/a"))
    await agreed(eu, us)
    for served in (eu, us):
        # The next heartbeats tell what each has seen.
        while not (await served.admin.Compact(apb.CompactRequest())).purged_tombstones:
            pass
    assert contents(eu) == contents(us) == []
    await eu.remember("t", "b")
    await agreed(eu, us)
    assert len(contents(us)) == 1


async def test_a_damaged_row_is_fetched_again_from_a_peer(start: Start) -> None:
    eu, us = await start("eu"), await start("us")
    await introduce(eu, us)
    await eu.remember("t", "a", title="whole")
    await eu.remember("t", "b")
    await agreed(eu, us)
    whole = contents(eu)
    key = b"r\0t\0a"
    await eu.replica.runtime.write(lambda transaction: transaction.put(Table.REGISTERS, key, b"damaged"))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await eu.recall("t", "a")
    assert raised.value.code() is grpc.StatusCode.DATA_LOSS
    await until(lambda: contents(eu) == whole, eu)
    assert (await eu.recall("t", "a")).title == "whole"
    assert (await eu.status()).counts.damaged == 0
