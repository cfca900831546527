"""A run is a function of its script, and a script that fails can be printed, replayed and shrunk."""

import os
import random
import subprocess
import sys

import pytest

from replica.simulator.faults import PROFILES
from replica.simulator.run import Report, replay, simulate
from replica.simulator.script import Malformed, Pull, Remember, Script, Setup, Step
from replica.simulator.shrink import shrink
from replica.simulator.workload import TOPOLOGIES, links_of, random_script
from tests.simulator.mutation import broken

TRACES = """
from replica.simulator.run import simulate
for faults in ("process", "loss"):
    print(simulate(None, 150, 11, faults=faults).trace)
"""


def traces(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", TRACES]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_same_seed_is_the_same_run_in_every_process() -> None:
    assert traces("1") == traces("2") != ""


def test_another_seed_is_another_run() -> None:
    assert simulate(3, 50, 1).trace != simulate(3, 50, 2).trace


@pytest.mark.parametrize("faults", PROFILES)
def test_a_script_says_in_its_text_all_there_is_to_a_run(faults: str) -> None:
    report = simulate(None, 120, 5, faults=faults)
    script = Script.parse(str(report.script))
    assert script == report.script
    assert replay(script).trace == report.trace


def test_any_part_of_a_script_is_a_script() -> None:
    script = random_script(3, 200, PROFILES["loss"])
    assert replay(Script(script.setup, script.steps[::3])).ok


def test_a_text_in_a_script_may_hold_anything() -> None:
    steps: tuple[Step, ...] = (Remember("a", 0, title='a # b = [c] "d"\n 🦉', tags=("null", "x y")),)
    script = Script(Setup(2, 1, ("ab",)), steps)
    assert Script.parse(str(script)) == script


@pytest.mark.parametrize(
    "line",
    [
        "jump at=a",
        "forget at=a",
        "forget at=a key=0 why=x",
        "forget at=a key=x",
        "forget at=a key=[",
        "forget at",
    ],
)
def test_a_line_that_is_no_step_is_refused(line: str) -> None:
    with pytest.raises(Malformed, match=line.split()[0]):
        Script.parse(f'fleet replicas=2 keys=1 links=["ab"]\n{line}')


def test_a_script_without_a_fleet_is_refused() -> None:
    with pytest.raises(Malformed):
        Script.parse("# nothing\n")


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_in_every_topology_every_replica_is_reached(topology: str) -> None:
    for seed in range(5):
        script = random_script(seed, 0, PROFILES["none"], replicas=5, topology=topology)
        reached = {"a"}
        for _ in script.setup.links:
            reached |= {one for link in script.setup.links if reached & {*link} for one in link}
        assert reached == {*"abcde"}


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="topology"):
        simulate(3, 1, 1, topology="heap")
    with pytest.raises(ValueError, match="faults"):
        simulate(3, 1, 1, faults="dragons")


def failing() -> Report:
    for seed in range(100):
        report = simulate(4, 200, seed, faults="network")
        if not report.ok:
            return report
    raise AssertionError("a broken rule was never noticed")


def test_a_failing_run_replays_exactly_and_shrinks_to_a_short_script_that_fails() -> None:
    with broken(
        "replica.core.consumer",
        "joining.store_clock(seen=batch.clock if batch.complete else None)",
        "joining.store_clock(seen=batch.clock)",
    ):
        report = failing()
        again = replay(Script.parse(str(report.script)))
        assert (again.trace, again.failure) == (report.trace, report.failure)
        short = shrink(report.script, lambda script: not replay(script).ok, most=500)
        assert not replay(short).ok
    assert len(short.steps) < 15
    assert replay(short).ok, "the rule is whole again"


def test_progress_is_told_step_by_step() -> None:
    done: list[int] = []
    simulate(2, 7, 1, progress=done.append)
    assert done == [1, 2, 3, 4, 5, 6, 7]


def test_shrinking_leaves_out_replicas_and_keys_that_play_no_part() -> None:
    script = random_script(1, 60, PROFILES["none"], replicas=5, keys=8)

    def fails(part: Script) -> bool:
        return any(isinstance(step, Pull) and step.source == "a" for step in part.steps)

    short = shrink(script, fails)
    assert len(short.steps) == 1
    assert short.setup.keys == 1
    assert short.setup.replicas < 5


def test_links_name_each_pair_once() -> None:
    for topology in TOPOLOGIES:
        links = links_of(topology, "abcde", random.Random(1))
        assert len({frozenset(link) for link in links}) == len(links)
