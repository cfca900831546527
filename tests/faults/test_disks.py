"""Disks that are full, lost or damaged: what was acknowledged is there, and everything goes on afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from replica.client import DataLossError, ResourceExhaustedError
from tests.faults import disks
from tests.faults.fleet import Fleet, until

LARGE = "x" * 60_000


@dataclass(frozen=True)
class FullDisk:
    """A replica's disk on which there can be no room."""

    home: Path | None
    fill: Callable[[Fleet], None]
    clear: Callable[[Fleet], None]


@pytest.fixture(params=["file system", "limit"])
def full_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FullDisk]:
    """Of the replica `eu`."""
    if request.param == "limit":
        yield FullDisk(
            None,
            lambda fleet: disks.leave_no_room(fleet["eu"].pid, fleet["eu"].data),
            lambda fleet: disks.make_room(fleet["eu"].pid),
        )
        return
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(disks.small_disk(tmp_path / "disk", 16 << 20))
        except disks.NoMount as error:
            pytest.skip(f"no file system can be mounted here: {error}")
        filler = disks.Filler(disk)
        yield FullDisk(disk / "eu", lambda _: filler.fill(), lambda _: filler.clear())


def test_on_a_full_disk_writes_are_refused_reads_go_on_and_replication_resumes_when_there_is_room(
    tmp_path: Path, full_disk: FullDisk
) -> None:
    homes = {} if full_disk.home is None else {"eu": full_disk.home}
    with Fleet(tmp_path, ("eu", "us"), homes=homes) as fleet:
        fleet.start()
        eu, us = fleet["eu"], fleet["us"]
        eu.client.remember("r", "t", id="before", title="kept")
        fleet.until_agreed()
        full_disk.fill(fleet)
        acknowledged: list[str] = []
        refused: ResourceExhaustedError | None = None
        while refused is None:
            try:
                acknowledged.append(eu.client.remember("r", "eu", body=LARGE).key)
            except ResourceExhaustedError as error:
                refused = error
        assert "nothing was written" in refused.message
        assert eu.client.recall("repo/r/mem/t/before").title == "kept"
        # The other one is not held up, and what it writes waits for room here.
        written = [us.client.remember("r", "us", body=LARGE).key for _ in range(20)]
        waiting = fleet.until_peer(
            "eu", "us", "waiting for room", lambda peer: "the store refuses" in (peer.last_error or "")
        )
        assert waiting.lag != 0, "nothing that was not measured passes for none"
        assert eu.client.recall(us.client.recall("repo/r/mem/t/before").key).exists
        full_disk.clear(fleet)
        fleet.until_agreed()
        found = {entry.key for member in fleet.running for entry in member.client.scan("r")}
        assert found == {"repo/r/mem/t/before", *acknowledged, *written}
        assert eu.client.remember("r", "t", id="after").created
        assert not fleet.unexplained()


def test_a_replica_that_lost_its_directory_is_filled_again(tmp_path: Path) -> None:
    with Fleet(tmp_path, ("eu", "us", "ap"), {"compaction-interval": "300ms"}) as fleet:
        fleet.start()
        for member in fleet.running:
            for number in range(30):
                member.client.remember("r", member.cluster, id=f"{number}")
        fleet["eu"].client.remember("r", "t", id="forgotten")
        fleet.until_agreed()
        fleet["us"].client.forget("repo/r/mem/t/forgotten")
        fleet.until_agreed()
        fleet.kill("eu")
        shutil.rmtree(fleet["eu"].data)
        fleet.start("eu")
        fleet["eu"].client.remember("r", "eu", id="again")
        fleet.until_agreed()
        for member in fleet.running:
            counted = {count.topic: count.live for count in member.client.list_topics("r")}
            assert counted == {"eu": 31, "us": 30, "ap": 30}
        assert not fleet.unexplained()


def test_a_row_that_is_damaged_on_the_disk_is_healed_from_peers(tmp_path: Path) -> None:
    with Fleet(tmp_path, ("eu", "us")) as fleet:
        fleet.start()
        made = fleet["eu"].client.remember("r", "t", id="a", title="a title to damage")
        fleet["us"].client.remember("r", "t", id="b", title="another one")
        fleet.until_agreed()
        fleet.kill("eu")
        assert disks.damage_row(fleet["eu"].data, made.key, "a title to damage")
        # Nobody can heal it for now; it is not shown, and not replicated.
        fleet.links.cut(fleet.links.all)
        fleet.start("eu")
        with pytest.raises(DataLossError):
            fleet["eu"].client.recall(made.key)
        assert [entry.id for entry in fleet["eu"].client.scan("r")] == ["b"]
        fleet.links.heal()
        until("it is healed", lambda: bool(fleet.logged("eu", "healed a damaged row")))
        fleet.until_agreed()
        assert fleet["eu"].client.recall(made.key).title == "a title to damage"
        assert fleet.logged("eu", "a row is damaged")
        assert fleet["eu"].client.get_status().counts.damaged == 0
        assert not fleet.unexplained()
