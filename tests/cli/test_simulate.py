"""`ricordo simulate` runs a fleet under a seed, and the same seed again is the same run."""

from __future__ import annotations

import json

import pytest

from replica.cli import simulating
from replica.simulator.run import Failure, Report, simulate
from tests.cli.processes import Run


def test_a_seed_replays_exactly(ricordo: Run) -> None:
    arguments = ("simulate", "--replicas", "3", "--operations", "150", "--seed", "7", "--json")
    first, again = ricordo(*arguments), ricordo(*arguments)
    assert (first.code, first.out) == (0, again.out)
    assert first.value["ok"]
    assert first.value["failure"] is None
    assert (first.value["seed"], first.value["replicas"], first.value["tally"]["steps"]) == (7, 3, 150)
    other = ricordo(*arguments, "--seed", "8").value
    assert other["trace"] != first.value["trace"]


def test_several_seeds_run_one_after_another(ricordo: Run) -> None:
    ended = ricordo(
        "simulate", "--operations", "40", "--seed", "5", "--runs", "3", "--json", "--faults", "none"
    )
    assert [line["seed"] for line in ended.lines] == [5, 6, 7]


def test_a_seed_that_was_drawn_is_told(ricordo: Run) -> None:
    shown = ricordo("simulate", "--operations", "20", "--faults", "none", "--topology", "ring")
    assert shown.code == 0
    assert shown.text.startswith("Simulation, seed ")
    assert "verdict: every check held" in shown.text


def test_a_failing_seed_exits_with_1_in_one_line(ricordo: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object, **named: object) -> Report:
        report = simulate(2, 5, 1, keys=1, topology="mesh", faults="none")
        failure = Failure(3, f"a holds x,\nb does not{' and more' * 100}", "Contradiction", "Traceback …")
        return Report(report.script, report.tally, report.passed, report.live, report.trace, failure)

    monkeypatch.setattr(simulating, "simulate", fails)
    ended = ricordo("simulate", "--seed", "9", "--runs", "5")
    line = ended.complaint(1)
    assert line.startswith("ricordo: seed 9 failed at step 3: Contradiction: a holds x, b does not and")
    assert "--seed" in line
    assert ended.text.count("verdict: failed") == 1
    ended = ricordo("simulate", "--seed", "9", "--json")
    assert ended.value["failure"]["where"] == "Traceback …"
    assert json.loads(ended.error)["error"]["exit_code"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--replicas", "1"), "--replicas"),
        (("--operations", "0"), "--operations"),
        (("--topology", "cube"), "--topology: must be one of mesh"),
        (("--faults", "gremlins"), "--faults: must be one of none"),
        (("--seed", "x"), "--seed"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(ricordo: Run, arguments: tuple[str, ...], words: str) -> None:
    assert words in ricordo("simulate", *arguments).complaint(2)
