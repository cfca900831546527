"""`ricordo simulate scale` measures a large fleet, and leaves `ricordo simulate` as it is."""

from __future__ import annotations

import pytest

from replica.simulator.scale import PHASES
from tests.cli.processes import Run

SMALL = ("simulate", "scale", "--replicas", "4", "--writes", "1", "--topology", "tree")


def test_a_run_is_a_function_of_its_options(ricordo: Run) -> None:
    first, again = ricordo(*SMALL, "--json"), ricordo(*SMALL, "--json")
    assert (first.code, first.out) == (0, again.out)
    assert first.value["setup"]["topology"] == "tree"
    assert [phase["name"] for phase in first.value["phases"]] == [*PHASES]


def test_people_get_a_table(ricordo: Run) -> None:
    shown = ricordo(*SMALL, "--writers", "2")
    assert shown.code == 0
    assert shown.text.startswith("A tree of 4, seed 0")
    assert "writers: 2" in shown.text
    assert all(f"\n{phase}\t" in shown.text for phase in PHASES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--replicas", "1"), "--replicas"),
        (("--topology", "cube"), "--topology: must be one of mesh"),
        (("--replicas", "3", "--writers", "4"), "--writers: must be no more than"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(ricordo: Run, arguments: tuple[str, ...], words: str) -> None:
    assert words in ricordo("simulate", "scale", *arguments).complaint(2)
