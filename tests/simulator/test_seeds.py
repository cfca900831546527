"""Random fleets, judged by the oracle at every step and once they have healed."""

import gc
from collections.abc import Iterator

import pytest

from replica.simulator.run import Report, simulate

PROFILES = ("network", "process", "purge", "loss")
"""Every fourth seed has each of them."""

OPERATIONS = 200
CHUNK = 50


@pytest.fixture(autouse=True)
def _rare_collections() -> Iterator[None]:
    """A run makes many small values and hardly a cycle: looking for cycles is a fifth of the time."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000, *usual[1:])
    yield
    gc.set_threshold(*usual)


def run_chunk(first: int) -> None:
    for seed in range(first, first + CHUNK):
        faults = PROFILES[seed % len(PROFILES)]
        report = simulate(None, OPERATIONS, seed, faults=faults)
        assert report.ok, said(report, seed, faults)


def said(report: Report, seed: int, faults: str) -> str:
    assert report.failure is not None
    command = f"ricordo simulate --operations {OPERATIONS} --seed {seed} --faults {faults}"
    return f"{command}\nfails at step {report.failure.step}: {report.failure.what}\n{report.failure.where}"


@pytest.mark.parametrize("first", range(0, 2_000, CHUNK))
def test_a_fleet_agrees_with_the_oracle_and_with_itself(first: int) -> None:
    run_chunk(first)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(2_000, 100_000, CHUNK))
def test_many_more_fleets_do(first: int) -> None:
    run_chunk(first)
