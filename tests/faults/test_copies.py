"""Data directories that are copied, rolled back or lost: nothing is minted twice, and nothing is ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from replica.client import Client
from tests.faults import disks
from tests.faults.fleet import Fleet, until
from tests.faults.member import Member

TOPIC = "t"


def write(member: Member, name: str, count: int) -> dict[str, str]:
    """Entries, by key, with the titles they were given; and a tag for each on an entry that all share."""
    made = {}
    for number in range(count):
        title = f"{name}-{number}"
        made[member.client.remember("r", TOPIC, id=title, title=title).key] = title
        member.client.remember("r", TOPIC, id="shared", tags=[title])
    return made


def held(client: Client) -> tuple[dict[str, str], set[str]]:
    """The titles by key, and the tags of the shared entry."""
    found = {entry.key: entry for entry in client.scan("r")}
    shared = found.pop("repo/r/mem/t/shared", None)
    return {key: entry.title for key, entry in found.items()}, set(() if shared is None else shared.tags)


def assert_everywhere(fleet: Fleet, written: dict[str, str]) -> None:
    """Each replica holds these and their tags, and nothing else."""
    fleet.until_agreed()
    for member in fleet.running:
        titles, tags = held(member.client)
        assert titles == written, member.cluster
        assert tags == set(written.values()), member.cluster


@pytest.mark.parametrize("peers", ["reachable", "unreachable"])
def test_nothing_is_ignored_that_a_replica_writes_at_once_on_an_earlier_copy_of_its_directory(
    tmp_path: Path, peers: str
) -> None:
    with Fleet(tmp_path, ("eu", "us", "ap")) as fleet:
        fleet.start()
        written = write(fleet["eu"], "early", 5) | write(fleet["us"], "us", 5)
        fleet.until_agreed()
        fleet.kill("eu")
        disks.copy(fleet["eu"].data, tmp_path / "copy")
        fleet.start("eu")
        # What the copy lacks; it is known elsewhere.
        written |= write(fleet["eu"], "late", 20) | write(fleet["us"], "us-late", 5)
        fleet.until_agreed()
        fleet.kill("eu")
        disks.roll_back(fleet["eu"].data, tmp_path / "copy")
        if peers == "unreachable":
            fleet.links.cut(fleet.links.of("eu"))
        fleet.start("eu")
        written |= write(fleet["eu"], "restored", 20)
        fleet.links.heal()
        written |= write(fleet["eu"], "healed", 5) | write(fleet["ap"], "ap", 5)
        assert_everywhere(fleet, written)
        assert fleet.logged("eu", "began a new incarnation")
        assert not fleet.unexplained()


@pytest.mark.parametrize("original", ["running", "started after the copy"])
@pytest.mark.parametrize("made", ["of the files", "of the volume"])
def test_a_copy_that_runs_beside_the_original_loses_nothing_and_both_are_told(
    tmp_path: Path, made: str, original: str
) -> None:
    with Fleet(tmp_path, ("eu", "us")) as fleet:
        fleet.start()
        written = write(fleet["eu"], "eu", 5) | write(fleet["us"], "us", 5)
        fleet.until_agreed()
        fleet.kill("eu")
        (disks.copy if made == "of the files" else disks.clone)(fleet["eu"].data, tmp_path / "beside")
        beside = fleet.copy_of("eu", tmp_path / "beside")
        if original == "running":
            fleet.start("eu")
            fleet.until_connected()
            beside.start()
        else:
            beside.start()
            until("the copy pulls", lambda: beside.client.get_status().peers[0].connected)
            fleet.start("eu")
        copied = write(beside, "beside", 10)
        written |= write(fleet["eu"], "original", 10)

        def told(client: Client, peer: str) -> str:
            return next(each.last_error or "" for each in client.get_status().peers if each.cluster == peer)

        # Whichever comes second is refused, and the one that refuses says so, too.
        until(
            "one of the two is refused",
            lambda: "two replicas" in told(beside.client, "us") + told(fleet["eu"].client, "us"),
        )
        until("the supplier says so", lambda: "two replicas" in told(fleet["us"].client, "eu"))
        beside.kill()
        fleet.links.lead_to("eu", fleet["eu"].replication_listen)
        fleet.until_connected()
        assert_everywhere(fleet, written)
        # What was written to the copy is not ignored: instead of the original it gives it to everyone.
        fleet.kill("eu")
        beside.start()
        fleet.links.lead_to("eu", beside.replication_listen)
        until("the copy's writes arrive", lambda: held(fleet["us"].client)[0].items() >= copied.items())
        titles, tags = held(fleet["us"].client)
        assert titles == written | copied
        assert tags == {*titles.values()}
        assert not fleet.unexplained()
