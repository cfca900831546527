"""Steps of the own clock: found out in the transaction that decides something, and counted once."""

from __future__ import annotations

import pytest

from crdt.dot import Millis
from replica.core.membership import slowest
from replica.core.storage import Transaction
from replica.core.timekeeping import begin_time, settle_time, stepped_by
from replica.storage.memory import MemoryStorage
from tests.core.replication.small_fleet import Site, World, sync

HOUR = 3_600_000
LAPSE = Millis(7 * 24 * HOUR)


def begun() -> MemoryStorage:
    storage = MemoryStorage()
    storage.run(lambda tx: begin_time(tx, Millis(1_000_000), Millis(50)))
    return storage


def settle(storage: MemoryStorage, now: int, elapsed: int) -> int:
    return storage.run(lambda tx: settle_time(tx, Millis(now), Millis(elapsed)))


def test_time_that_goes_by_is_no_step() -> None:
    storage = begun()
    assert settle(storage, 1_000_000 + HOUR, 50 + HOUR) == 0
    assert settle(storage, 1_000_000 + 2 * HOUR + 900, 50 + 2 * HOUR) == 0


@pytest.mark.parametrize("step", [5 * HOUR, -5 * HOUR, 1_001])
def test_a_step_counts_once(step: int) -> None:
    storage = begun()
    with storage.snapshot() as snapshot:
        assert stepped_by(snapshot, Millis(1_000_010 + step), Millis(60)) == step
    assert settle(storage, 1_000_010 + step, 60) == step
    assert settle(storage, 1_000_020 + step, 70) == 0
    assert settle(storage, 1_000_030, 80) == -step


def test_drift_adds_up_to_a_step() -> None:
    storage = begun()
    assert settle(storage, 1_000_900, 50) == 0
    assert settle(storage, 1_001_800, 50) == 1_800


def test_a_transaction_that_is_undone_has_not_taken_the_step_into_account() -> None:
    storage = begun()

    def fail(transaction: Transaction) -> None:
        assert settle_time(transaction, Millis(1_000_000 + HOUR), Millis(50)) == HOUR
        raise ValueError

    with pytest.raises(ValueError):
        storage.run(fail)
    assert settle(storage, 1_000_000 + HOUR, 50) == HOUR


def test_a_store_that_never_noted_a_time_knows_of_no_step() -> None:
    assert settle(MemoryStorage(), 1_000_000, 50) == 0


def test_the_slowest_clock_is_that_of_the_others_also_before_a_step_was_taken_into_account() -> None:
    world = World()
    own, other = Site(world, "A"), Site(world, "B")
    own.remember("k", "v")
    sync(own, other)
    own.storage.run(lambda tx: begin_time(tx, own.now, Millis(0)))
    fast = Millis(own.now + 30 * 24 * HOUR)
    with own.storage.snapshot() as snapshot:
        step = stepped_by(snapshot, fast, Millis(0))
        assert slowest(snapshot, fast, LAPSE, step) == own.now
    own.storage.run(lambda tx: settle_time(tx, fast, Millis(0)))
    with own.storage.snapshot() as snapshot:
        assert slowest(snapshot, fast, LAPSE) == own.now
