"""kill -9 at the worst moments: in the middle of a commit, in the middle of a reconcile."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from replica.client import Client, KeyRange, Retry, RicordoError, remember
from tests.faults import deaths
from tests.faults.fleet import Fleet, until

KILLS = 6


class Writers:
    """Threads that write as fast as they are answered, until the replica is gone."""

    def __init__(self, address: str, name: str, threads: int = 3) -> None:
        self.acknowledged: set[str] = set()
        self._client = Client(address, retry=Retry(deadline=3.0))
        self._gone = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(f"{name}-{number}",)) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, name: str) -> None:
        number = 0
        while not self._gone.is_set():
            id = f"{name}-{number}"
            number += 1
            try:
                # Of a size that makes some rows overflow their pages.
                self._client.remember("r", "t", id=id, title=id, body="x" * (number % 9 * 1000))
            except RicordoError:
                return
            self.acknowledged.add(id)

    def until_busy(self, enough: int) -> None:
        """Until so many writes are acknowledged."""
        until("writes are acknowledged", lambda: len(self.acknowledged) >= enough)

    def ended(self) -> set[str]:
        """What was acknowledged, once the replica is gone."""
        self._gone.set()
        for thread in self._threads:
            thread.join(60)
        self._client.close()
        return self.acknowledged


@pytest.fixture
def slow_disk() -> Iterator[Path]:
    """A folder on a disk that takes its time: in memory no call that writes is ever seen."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="ricordo-test-") as folder:
        yield Path(folder)


def test_kills_inside_commits_lose_no_acknowledged_write(tmp_path: Path, slow_disk: Path) -> None:
    chance = random.Random(9)
    acknowledged: set[str] = set()
    inside = 0
    with Fleet(tmp_path, ("eu",), homes={"eu": slow_disk / "eu"}) as fleet:
        member = fleet["eu"]
        for life in range(KILLS):
            fleet.start()
            writers = Writers(member.listen, f"life-{life}")
            writers.until_busy(chance.randrange(3, 30))
            inside += deaths.kill_while_writing(member.pid, member.data, 5.0)
            member.kill()
            acknowledged |= writers.ended()
        fleet.start()
        found = {entry.id: entry.title for entry in member.client.scan("r")}
        assert found.keys() >= acknowledged
        assert all(id == title for id, title in found.items())
        [whole] = member.client.get_range_digests([KeyRange()]).parts
        assert not whole.damaged
        assert not fleet.unexplained()
    if not inside:
        pytest.skip("the kills hit no commit: the system does not show what calls a process is in")


@pytest.mark.parametrize("killed", ["consumer", "supplier"])
def test_a_reconcile_goes_on_or_starts_over_when_either_end_is_killed_in_the_middle(
    tmp_path: Path, killed: str
) -> None:
    with Fleet(tmp_path, ("eu", "us")) as fleet:
        fleet.links.cut(fleet.links.all)
        fleet.start()
        for member in fleet.running:
            notes = [
                remember("r", member.cluster, id=f"{number}", title=member.cluster, body="x" * 4000)
                for number in range(400)
            ]
            for at in range(0, len(notes), 100):
                member.client.remember_many(notes[at : at + 100])
        # Both have data of their own, and neither a cursor: eu compares its whole store with that of us.
        fleet.links.heal([("eu", "us")])
        fleet.links.slow([("eu", "us")], 400_000)
        midway = fleet.until_peer(
            "eu", "us", "midway in a reconcile", lambda peer: (peer.received_changes or 0) > 0
        )
        assert midway.verdict == "RECONCILE"
        assert (midway.received_changes or 0) < 400
        fleet.kill("eu" if killed == "consumer" else "us")
        fleet["eu" if killed == "supplier" else "us"].client.remember("r", "t", id="meanwhile")
        fleet.links.heal()
        fleet.start("eu" if killed == "consumer" else "us")
        fleet.until_agreed()
        for member in fleet.running:
            counted = {count.topic: count.live for count in member.client.list_topics("r")}
            assert counted == {"eu": 400, "us": 400, "t": 1}
        assert not fleet.unexplained()
