"""What an operator sees: peers and members, what waits and for whom, what is damaged and what is at fault."""

import grpc
import pytest

from crdt.clock import EMPTY_CLOCK
from crdt.dot import Millis
from crdt.key import EntryKey
from crdt.register import Sibling
from replica.core.rows import put_clock, put_register
from replica.core.storage import Table, Transaction
from replica.server.peer_book import Origin, Peer
from replica.wire import admin_pb2 as apb
from replica.wire import memory_pb2 as pb
from tests.core.one_replica import sibling
from tests.server.served import Served, Start
from tests.server.test_replication import agreed, contents, introduce, status_of, until

KEY = EntryKey("r", "t", "a")


async def full(served: Served) -> apb.GetStatusResponse:
    return await served.admin.GetStatus(apb.GetStatusRequest(full=True))


async def member(served: Served, cluster: str) -> apb.MemberStatus:
    [found] = [each for each in (await served.status()).members if each.cluster == cluster]
    return found


async def refusal(served: Served, cluster: str) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await served.admin.RetireMember(apb.RetireMemberRequest(cluster=cluster))
    return raised.value.code()


async def damage(served: Served) -> None:
    key = KEY.to_store()
    await served.replica.runtime.write(lambda transaction: transaction.put(Table.REGISTERS, key, b"damaged"))


# --- counts


async def test_siblings_are_counted_beside_keys(start: Start) -> None:
    eu, us = await start("eu"), await start("us")
    await eu.remember("t", "a", title="one")
    await eu.remember("t", "b")
    await us.remember("t", "a", title="other")
    await introduce(eu, us)
    await agreed(eu, us)
    for status in (await eu.status(), await full(eu)):
        counts = status.counts
        assert (counts.registers, counts.siblings, counts.concurrent, counts.live) == (2, 3, 1, 2)
    assert not (await eu.status()).counts.HasField("undecodable")
    assert (await full(eu)).counts.HasField("undecodable")


async def test_a_peer_is_tailed_once_the_reconcile_with_it_is_done(start: Start) -> None:
    eu, us = await start("eu"), await start("us")
    await eu.remember("t", "a", title="one")
    await us.remember("t", "b", title="other")
    await introduce(eu, us)
    await agreed(eu, us)
    peer = await status_of(us, "eu", lambda peer: peer.connected and peer.verdict != "RECONCILE")
    assert (peer.verdict, peer.reason, peer.lag) == ("TAIL", "the reconcile is done", 0)


async def test_a_full_status_finds_the_damage_that_nobody_has_come_upon(served: Served) -> None:
    await served.remember("t", "a")
    await damage(served)
    before = await served.status()
    assert (before.counts.damaged, list(before.damaged_keys)) == (0, [])
    walked = await full(served)
    assert (walked.counts.damaged, list(walked.damaged_keys)) == (1, [str(KEY)])
    while not (now := await served.status()).counts.damaged:
        pass
    assert list(now.damaged_keys) == [str(KEY)]


# --- what waits


async def test_what_holds_purges_back_is_known_once_somebody_has_looked(start: Start) -> None:
    time = [1_000_000]
    served = await start(clock=lambda: Millis(time[0]), peers=["us=127.0.0.1:9"], compaction__grace="1s")
    await served.remember("t", "a")
    await served.memory.Forget(pb.ForgetRequest(key=str(KEY)))
    await served.remember("t", "b", ttl_seconds=1)
    time[0] += 1000
    fresh = (await served.status()).purging
    assert (fresh.oldest_tombstone_ms, fresh.oldest_expired_ms, fresh.waiting) == (1_000_000, 1_001_000, 1)
    assert (fresh.HasField("looked_at_ms"), list(fresh.held_by)) == (False, [])
    time[0] += 1000
    assert (await served.status()).purging.waiting == 2
    await served.admin.Compact(apb.CompactRequest())
    time[0] += 5000
    looked = (await served.status()).purging
    assert looked.looked_at_ms == 1_002_000
    assert [(each.cluster, each.reason, each.waiting) for each in looked.held_by] == [
        ("us", "it was never heard", 1),
        ("us", "it has not told its clock since this replica started", 1),
    ]


async def test_where_nothing_is_dead_nothing_is_shown_as_old(served: Served) -> None:
    await served.remember("t", "a")
    purging = (await served.status()).purging
    assert not purging.HasField("oldest_tombstone_ms")
    assert not purging.HasField("oldest_expired_ms")


# --- members


async def test_a_member_is_heard_of_through_others(start: Start) -> None:
    eu, us = await start("eu", peers=["ghost=127.0.0.1:9"]), await start("us")
    await introduce(eu, us)
    await until(lambda: any(key == b"ghost" for key, _ in us.rows()["members"]), us)
    ghost = await member(us, "ghost")
    assert (ghost.state, ghost.must_reconcile) == (apb.MEMBER_STATE_ACTIVE, False)
    assert not ghost.HasField("heard_ms")
    assert not ghost.HasField("incarnation")
    assert [peer.cluster for peer in (await us.status()).peers] == ["eu"]
    heard = await member(us, "eu")
    assert heard.HasField("heard_ms")
    assert heard.HasField("skew_ms")
    assert heard.incarnation == (await eu.status()).incarnation


async def test_a_silent_member_is_shown_as_lapsed(start: Start) -> None:
    served = await start(peers=["ghost=127.0.0.1:9"], compaction__max_silence="1ms")
    while (await member(served, "ghost")).state != apb.MEMBER_STATE_LAPSED:
        pass


async def test_retiring_ends_the_waiting_and_the_fleet_hears_of_it(start: Start) -> None:
    eu, us = await start("eu", peers=["ghost=127.0.0.1:9"]), await start("us")
    await introduce(eu, us)
    await eu.remember("t", "a")
    await eu.memory.Forget(pb.ForgetRequest(key=str(KEY)))
    await until(lambda: contents(us) == contents(eu), us)
    assert (await eu.admin.Compact(apb.CompactRequest())).waiting == 1
    assert (await eu.admin.RetireMember(apb.RetireMemberRequest(cluster="ghost"))).retired
    while not (await eu.admin.Compact(apb.CompactRequest())).purged_tombstones:
        pass
    ghost = await member(eu, "ghost")
    assert (ghost.state, ghost.must_reconcile) == (apb.MEMBER_STATE_RETIRED, True)
    while (await member(us, "ghost")).state != apb.MEMBER_STATE_RETIRED:
        pass
    assert not (await us.admin.RetireMember(apb.RetireMemberRequest(cluster="ghost"))).retired


async def test_who_cannot_be_retired_is_not(start: Start) -> None:
    eu, us = await start("eu"), await start("us")
    await us.admin.AddPeer(apb.AddPeerRequest(cluster="eu", address=eu.replica.replication_address))
    # It pulls from here: that, too, is a stream.
    await status_of(eu, "us", lambda peer: peer.consuming)
    before = eu.rows()["members"]
    assert await refusal(eu, "us") is grpc.StatusCode.FAILED_PRECONDITION
    assert await refusal(eu, "eu") is grpc.StatusCode.INVALID_ARGUMENT
    assert await refusal(eu, "") is grpc.StatusCode.INVALID_ARGUMENT
    assert await refusal(eu, "unheard") is grpc.StatusCode.NOT_FOUND
    assert [key for key, _ in eu.rows()["members"]] == [key for key, _ in before]
    assert (await member(eu, "us")).state == apb.MEMBER_STATE_ACTIVE


# --- peers


async def test_a_peer_whose_changes_are_all_here_is_not_behind(start: Start) -> None:
    eu, us = await start("eu"), await start("us")
    await introduce(eu, us)
    await eu.remember("t", "a")
    await agreed(eu, us)
    peer = await status_of(us, "eu", lambda peer: peer.lag_ms == 0 and peer.HasField("lag_ms"))
    assert (peer.lag, peer.connected, peer.faults) == (0, True, 0)


async def test_of_a_peer_that_was_never_reached_nothing_is_claimed(start: Start) -> None:
    served = await start(peers=["us=127.0.0.1:9"])
    peer = await status_of(served, "us", lambda peer: peer.HasField("last_error"))
    said = {field.name for field, _ in peer.ListFields()}
    assert said == {"cluster", "address", "origin", "last_error", "last_error_at_ms"}


def test_the_time_that_a_peer_is_behind_runs_from_when_it_last_was_not() -> None:
    peer = Peer("us", Origin.ADDED, connected=True)
    assert peer.lag_time(Millis(5)) is None
    peer.behind(Millis(10), 3)
    assert peer.lag_time(Millis(20)) is None
    peer.behind(Millis(30), 0)
    assert peer.lag_time(Millis(90)) == 0
    peer.behind(Millis(100), 2)
    assert peer.lag_time(Millis(130)) == 100
    peer.behind(Millis(140), 0)
    peer.connected = False
    assert peer.lag_time(Millis(150)) == 10
    assert peer.lag_time(Millis(139)) == 0


async def test_one_dot_with_two_contents_is_counted_and_named(start: Start) -> None:
    eu, us = await start("eu"), await start("us")

    for served, title in ((eu, "one"), (us, "other")):
        one = sibling("ap", fields={"title": title})

        def forge(transaction: Transaction, one: Sibling = one) -> None:
            put_register(transaction, KEY.to_store(), (one,), origin=None)
            put_clock(transaction, EMPTY_CLOCK, EMPTY_CLOCK.with_dots([one.dot]))

        await served.replica.runtime.write(forge)
    await introduce(eu, us)
    await agreed(eu, us)
    faulty = [peer for served in (eu, us) for peer in (await served.status()).peers if peer.faults]
    assert faulty
    assert all(peer.last_fault.startswith(f"{KEY}: write 1 of ap, incarnation ") for peer in faulty)
