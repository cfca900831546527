"""However much was written, a purge leaves a store about as large as one freshly filled with what lives.

The law of docs/bounds.md in small: its figures are of a million writes over ten thousand keys.
"""

from __future__ import annotations

import pytest

from scripts.bench_store_size import Outcome, measure


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """20 writes a key, with the request ids of the client library."""
    return measure(tmp_path_factory.mktemp("store"), writes=12_000, keys=600)


def test_it_is_at_most_half_as_large_again(outcome: Outcome) -> None:
    assert outcome.after[-1].registers == outcome.filled.registers > 100
    assert outcome.ratio <= 1.5
    assert outcome.ratio_to_packed <= 1.5


def test_nothing_dead_is_left(outcome: Outcome) -> None:
    last = outcome.after[-1]
    assert (last.tombstones, last.results) == (0, 0)


def test_before_that_it_takes_room_for_ten_minutes_of_results_and_gives_it_back(outcome: Outcome) -> None:
    at_once, later = outcome.after[1:3]
    assert at_once.results > 10_000
    assert at_once.file_bytes <= 1.5 * (later.used_bytes + 300 * at_once.results)
    assert later.results == 0
    assert later.file_bytes < 0.5 * at_once.file_bytes
