"""Links that are cut, slow, late, half open or torn again and again: nothing is lost, and it is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from replica.client import PeerStatus
from tests.faults.fleet import Fleet
from tests.faults.member import Member

PATIENT = {"replication-silence": "5m", "replication-heartbeat": "2m"}
"""Under these nothing but the connection itself can tell within a test that the far end has vanished."""


def write(member: Member, count: int, title: str = "") -> None:
    """Entries of the member's own, and a tag of its own on one that all share."""
    for number in range(count):
        member.client.remember("r", member.cluster, id=f"{title}{number}", title=title, body="x" * 500)
    member.client.remember("r", "t", id="shared", tags=[f"{member.cluster}{title}"])


def tags(member: Member) -> set[str]:
    """Of the entry that all share."""
    return set(member.client.recall("repo/r/mem/t/shared").tags)


def test_what_was_written_on_both_sides_of_a_cut_is_everywhere_when_it_heals(tmp_path: Path) -> None:
    with Fleet(tmp_path, ("eu", "us", "ap")) as fleet:
        fleet.start()
        fleet.until_connected()
        fleet.links.cut(fleet.links.of("ap"))
        cut = fleet.until_peer("ap", "eu", "cut off", lambda peer: not peer.connected)
        assert cut.last_error
        assert "not available" in cut.last_error
        for member in fleet.running:
            write(member, 20)
        # What can reach each other goes on.
        fleet.until_peer("us", "eu", "at the end", lambda peer: peer.lag == 0)
        fleet.links.heal()
        fleet.until_agreed()
        assert all(tags(member) == {"eu", "us", "ap"} for member in fleet.running)
        assert not fleet.unexplained()


def test_links_that_are_late_slow_and_torn_again_and_again_lose_and_reorder_nothing(tmp_path: Path) -> None:
    with Fleet(tmp_path, ("eu", "us")) as fleet:
        fleet.start()
        fleet.until_connected()
        fleet.links.delay([("us", "eu")], 0.1)
        fleet.links.slow([("eu", "us")], 50_000)
        for number in range(8):
            for member in fleet.running:
                write(member, 5, title=f"{number}-")
                member.client.remember("r", "t", id="latest", body=f"{number}")
            fleet.links.break_connections(fleet.links.all)
        fleet.links.heal()
        fleet.until_agreed()
        expected = {f"{cluster}{number}-" for cluster in ("eu", "us") for number in range(8)}
        for member in fleet.running:
            assert tags(member) == expected
            # The one who wrote last, or both at once, and nothing earlier.
            latest = member.client.recall("repo/r/mem/t/latest")
            assert {latest.body, *(value.value for value in latest.concurrent.get("body", ()))} <= {"6", "7"}
            assert latest.body == "7"
        assert not fleet.unexplained()


def test_a_half_open_link_is_noticed_by_the_connection_itself(tmp_path: Path) -> None:
    with Fleet(tmp_path, ("eu", "us"), PATIENT) as fleet:
        fleet.start()
        fleet.until_connected()
        fleet.links.stall(fleet.links.all)

        def gone(peer: PeerStatus) -> bool:
            return not peer.connected

        for here, there in (("eu", "us"), ("us", "eu")):
            noticed = fleet.until_peer(here, there, "gone", gone)
            assert "ping timeout" in (noticed.last_error or "")
        for member in fleet.running:
            write(member, 3)
        fleet.links.heal()
        fleet.until_agreed()
        assert not fleet.unexplained()


@pytest.mark.parametrize("frozen", ["eu", "us"])
def test_a_process_that_hangs_is_noticed_and_goes_on_where_it_was(tmp_path: Path, frozen: str) -> None:
    other = "us" if frozen == "eu" else "eu"
    with Fleet(tmp_path, ("eu", "us"), {"replication-silence": "1s"}) as fleet:
        fleet.start()
        write(fleet[frozen], 3)
        fleet.until_agreed()
        before = fleet[frozen].client.get_status().incarnation
        fleet[frozen].freeze()
        silent = fleet.until_peer(other, frozen, "silent", lambda peer: not peer.connected)
        assert "silent" in (silent.last_error or "") or "taken nothing" in (silent.last_error or "")
        write(fleet[other], 3)
        fleet[frozen].thaw()
        fleet.until_agreed()
        assert fleet[frozen].client.get_status().incarnation == before
        assert not fleet.unexplained()
