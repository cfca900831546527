"""A large fleet converges in every topology, the same way every time, and its costs add up."""

import os
import random
import subprocess
import sys

import pytest

from crdt.key import EntryKey
from replica.core.messages import ConsumerMessage, SupplierMessage
from replica.simulator.scale import PHASES, SHAPES, ScaleSetup, halves, measure_scale, shape
from replica.simulator.scale_fleet import DELAYS, ScaleFleet
from replica.wire.sizes import wire_size

REPORT = """
from replica.simulator.scale import ScaleSetup, measure_scale
from replica.wire.sizes import wire_size
print(measure_scale(ScaleSetup(5, "ring", seed=3, writes=2), wire_size))
"""


def counted(message: ConsumerMessage | SupplierMessage, towards_supplier: bool) -> int:
    """A measure that takes no time: a message is a message."""
    return 1


def run(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-c", REPORT], env=environment, capture_output=True, text=True, check=True
    ).stdout


def names(count: int) -> tuple[str, ...]:
    return tuple(f"r{number}" for number in range(count))


def joined(count: int, links: tuple[tuple[str, str], ...]) -> bool:
    """Whether links hold all replicas together."""
    reached = {"r0"}
    for _ in range(count):
        reached |= {name for link in links if reached & {*link} for name in link}
    return len(reached) == count


def fleet_of(count: int, topology: str) -> ScaleFleet:
    links = shape(topology, names(count), random.Random(1))
    return ScaleFleet(names(count), links, random.Random(2), counted)


def key(number: int) -> EntryKey:
    return EntryKey.make("scale", "test", str(number))


def test_the_same_setup_is_the_same_run_in_every_process() -> None:
    assert run("1") == run("2") != ""


def test_another_seed_is_another_run() -> None:
    reports = [measure_scale(ScaleSetup(5, "ring", seed=seed, writes=1), counted) for seed in (1, 2)]
    assert reports[0].phases != reports[1].phases


@pytest.mark.parametrize("topology", SHAPES)
@pytest.mark.parametrize("count", [2, 3, 4, 17])
def test_a_topology_holds_all_replicas_together_with_no_link_twice(topology: str, count: int) -> None:
    links = shape(topology, names(count), random.Random(1))
    assert joined(count, links)
    assert len({frozenset(link) for link in links}) == len(links)
    assert all(one != other for one, other in links)
    here, there = halves(names(count), links)
    assert sorted(here + there) == sorted(names(count))
    assert 0 <= len(there) - len(here) <= 1


@pytest.mark.parametrize("topology", [topology for topology in SHAPES if topology != "mesh"])
def test_fifty_replicas_converge(topology: str) -> None:
    fleet = fleet_of(50, topology)
    fleet.open_all(within=100)
    fleet.run_until_still(60_000)
    fleet.write("r0", key(0), "x")
    fleet.write("r33", key(1), "y")
    assert not fleet.agree()
    fleet.run_until_reached(60_000)
    assert fleet.agree()
    assert len(fleet.reached) == 2
    assert fleet.reopened == 0


def test_a_write_takes_as_long_as_its_longest_way() -> None:
    fleet = fleet_of(10, "chain")
    fleet.open_all()
    fleet.run_until_quiet(3_600_000)
    fleet.write("r0", key(0), "x")
    fleet.run_until_reached(60_000)
    (ms,) = fleet.reached
    assert 9 * DELAYS[0] <= ms <= 9 * DELAYS[1]


def test_a_star_sends_a_write_once_to_each_replica_and_a_mesh_once_over_each_stream() -> None:
    copies = {}
    for topology in ("star", "mesh"):
        report = measure_scale(ScaleSetup(6, topology, writes=2), counted)
        assert [phase.name for phase in report.phases] == [*PHASES]
        copies[topology] = report.phase("one write").data.copies
        for phase in report.phases:
            assert phase.bytes == phase.messages
            assert phase.busiest_bytes <= phase.bytes
    # What came from a replica is left out of what goes to it, and nothing else is.
    assert copies == {"star": 5, "mesh": 25}


def test_an_idle_fleet_sends_nothing_but_bare_heartbeats() -> None:
    report = measure_scale(ScaleSetup(4, "ring", writes=1), wire_size)
    idle = report.phase("idle")
    assert (idle.data.messages, idle.gossip.messages, idle.greetings.messages) == (0, 0, 0)
    assert idle.beats.messages == 3 * 2 * 2 * report.links


def test_each_side_of_a_cut_fleet_has_its_writes_brought_over_when_it_heals() -> None:
    report = measure_scale(ScaleSetup(6, "chain", writes=3), counted)
    assert report.phase("apart").writes == 6
    assert report.phase("apart").reached == ()
    assert len(report.phase("healing").reached) == 6


@pytest.mark.parametrize(
    ("setup", "words"),
    [
        (ScaleSetup(1, "ring"), "at least 2"),
        (ScaleSetup(3, "cube"), "no topology"),
        (ScaleSetup(3, "ring", writers=4), "no more than"),
        (ScaleSetup(3, "ring", writers=0), "at least 1"),
    ],
)
def test_a_setup_that_makes_no_fleet_is_refused(setup: ScaleSetup, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        measure_scale(setup, counted)
