"""What it costs a replica to come back from a long absence, by the size of the store and of the difference.

Two replicas on LMDB hold the same notes. One is away for longer than `compaction.max_silence`; on both sides
notes are made and changed, and the other one forgets some and purges them. Then the one that was away
reconciles. What a replica costs that comes back with nothing, and has to be sent everything, is measured
beside it.

    python -m scripts.bench_reconcile --stored 1000 10000 100000 --differences 0 100 1000
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from replica.core.digest import get_digest
from replica.core.reading import recall
from replica.core.storage import Table, Transaction
from replica.storage.lmdb_store import LmdbStorage
from scripts.bench_parts import (
    HOUR,
    MAX_SILENCE,
    Cost,
    Measurement,
    Notes,
    Replica,
    World,
    kind_of_place,
    pull,
    show,
)

__all__ = ["Return", "main", "measure"]

_BATCH = 500


@dataclass(frozen=True, slots=True)
class Return:
    """What one return cost."""

    stored: int
    """Notes on either side."""
    difference: int
    """Keys at which the two differed."""
    back: Cost
    """What the one that was away pulled from the other."""
    news: Cost
    """What the other pulled from it."""
    whole: Cost | None = None
    """What it costs to send everything to an empty store; none: not measured."""


def measure(place: Path, stored: int, differences: Sequence[int], *, whole: bool = True) -> list[Return]:
    """Absences one after the other, with so many differences each.

    Raises AssertionError unless both sides agree after each, with all the news and nothing that was
    forgotten.
    """
    world = World(random.Random(1))
    notes = Notes(random.Random(1), request_ids=False)
    home = Replica(world, "home", LmdbStorage.open(place / "home"))
    for first in range(0, stored, _BATCH):
        numbers = range(first, min(stored, first + _BATCH))
        home.write([notes.remember(notes.key(number)) for number in numbers])
    home.storage.close()
    shutil.copytree(place / "home", place / "away")
    copy = LmdbStorage.open(place / "away")
    copy.run(_forget_identity)
    home = Replica(world, "home", LmdbStorage.open(place / "home"), ["away"])
    away = Replica(world, "away", copy, ["home"])
    for _ in range(2):
        pull(away, home)
        pull(home, away)
    sent: Cost | None = None
    if whole:
        empty = Replica(world, "empty", LmdbStorage.open(place / "empty"))
        sent = pull(empty, home)
        empty.storage.close()
    fresh, returns = stored, []
    for difference in differences:
        fresh, found = _away(world, notes, home, away, stored, fresh, difference)
        returns.append(Return(stored, difference, *found, sent))
    home.storage.close()
    away.storage.close()
    return returns


def _forget_identity(transaction: Transaction) -> None:
    """Make a copy of a store the store of another replica."""
    for name in (b"cluster", b"incarnation", b"store_id"):
        transaction.delete(Table.META, name)


def _away(
    world: World, notes: Notes, home: Replica, away: Replica, stored: int, fresh: int, difference: int
) -> tuple[int, tuple[Cost, Cost]]:
    """One absence; the first number that is still unused, and what the two pulls cost."""
    world.wait(MAX_SILENCE + HOUR)
    fourth = difference // 4
    touched = notes.chance.sample(range(stored), 3 * fourth)
    changed, forgotten, changed_away = (touched[part * fourth : (part + 1) * fourth] for part in range(3))
    made = range(fresh, fresh + fourth)
    home.write([notes.remember(notes.key(number)) for number in (*changed, *made)])
    home.write([notes.forget(notes.key(number)) for number in forgotten])
    away.write([notes.remember(notes.key(number)) for number in changed_away])
    # The heartbeat of an idle hour: what is purged is purged past the one that is away.
    home.compact()
    back = pull(away, home)
    news = pull(home, away)
    pull(away, home)
    with home.storage.snapshot() as one, away.storage.snapshot() as other:
        assert get_digest(one, world.now) == get_digest(other, world.now)
        assert not any(recall(other, notes.key(number), world.now).exists for number in forgotten)
        assert all(recall(one, notes.key(number), world.now).exists for number in changed_away)
    # Notes that were forgotten are made again, so that every absence begins with as many.
    home.write([notes.remember(notes.key(number)) for number in forgotten])
    world.wait(1000)
    pull(away, home)
    pull(home, away)
    return fresh + fourth, (back, news)


def main() -> int:
    """Measure, print a table and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--stored", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--differences", type=int, nargs="+", default=[0, 100, 1_000])
    parser.add_argument("--place", type=Path, help="where the stores lie; default: a temporary folder")
    parser.add_argument("--name", default="reconcile", help="of the file of figures; empty: none")
    chosen = parser.parse_args()
    command = (
        f"python -m scripts.bench_reconcile --stored {' '.join(map(str, chosen.stored))} "
        f"--differences {' '.join(map(str, chosen.differences))}"
    )
    measurement = Measurement(chosen.name, command, kind_of_place(chosen.place))
    returns = []
    for stored in chosen.stored:
        place = Path(tempfile.mkdtemp(dir=chosen.place, prefix="ricordo-bench-"))
        try:
            differences = [each for each in chosen.differences if each <= stored]
            returns += measure(place, stored, differences)
        finally:
            shutil.rmtree(place)
        print(f"\n{stored:,} notes")
        rows = [
            row
            for each in returns
            if each.stored == stored
            for row in (
                _row(each.difference, "comes back", each.back),
                _row(each.difference, "is pulled from", each.news),
            )
        ]
        if returns[-1].whole is not None:
            rows.append(_row("", "begins empty", returns[-1].whole))
        print(
            show(rows, ("difference", "who was away", "verdict", "messages", "registers", "bytes", "seconds"))
        )
    measurement.figures = {"returns": [asdict(each) for each in returns]}
    if chosen.name:
        print(f"\nwritten: {measurement.write()}")
    return 0


def _row(difference: int | str, what: str, cost: Cost) -> dict[str, object]:
    return {"difference": difference, "who was away": what, **asdict(cost)}


if __name__ == "__main__":
    raise SystemExit(main())
