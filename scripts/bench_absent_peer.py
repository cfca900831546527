"""What a peer costs the others that never comes back, day by day of virtual time.

Two replicas on LMDB are written to around the clock: notes are made, changed, forgotten, and lapse, so that
about as many live at any time. They replicate and compact every hour. A third member has gone silent. The
same two without a third member are measured beside them.

    python -m scripts.bench_absent_peer --days 21
"""

from __future__ import annotations

import argparse
import gc
import random
import shutil
import tempfile
import tracemalloc
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path

from crdt.codec import encode_clock
from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import Command
from replica.core.rows import get_clock
from replica.core.storage import Table
from replica.storage.lmdb_store import LmdbStorage
from scripts.bench_parts import HOUR, Measurement, Notes, Replica, World, kind_of_place, pull, show

__all__ = ["Day", "main", "measure"]

_HOURS = 24


@dataclass(frozen=True, slots=True)
class Day:
    """What one of the two replicas keeps at the end of a day."""

    day: int
    live: int
    """Notes that live, on both sides together."""
    registers: int
    changes: int
    tombstones: int
    waiting: int
    """What is dead and could not be purged."""
    results: int
    clock_bytes: int
    members: int
    file_bytes: int
    memory_bytes: int
    """What Python has allocated since the beginning, in this process, for all replicas."""


@dataclass
class _Agents:
    """Who writes to a replica."""

    notes: Notes
    replica: Replica
    live: int
    """How many notes they keep."""
    first: int
    keys: deque[EntryKey] = field(default_factory=deque)
    made: int = 0

    def _key(self) -> EntryKey:
        self.made += 1
        return self.notes.key(self.first + self.made)

    def work(self, made: int) -> None:
        """An hour."""
        calls: list[Command] = []
        for _ in range(made):
            key = self._key()
            self.keys.append(key)
            calls += (self.notes.remember(key), self.notes.remember(self._key(), Millis(2 * HOUR)))
        calls += (self.notes.update(self.keys[-1 - number]) for number in range(min(made, len(self.keys))))
        while len(self.keys) > self.live:
            calls.append(self.notes.forget(self.keys.popleft()))
        self.replica.write(calls)


def measure(place: Path, *, days: int, live: int, made: int, with_absent: bool) -> list[Day]:
    """So many days, in which each of the two keeps `live` notes and makes `made` an hour."""
    world = World(random.Random(1))
    names = ["eu", "us", *(["gone"] if with_absent else [])]
    fleet = [
        Replica(world, name, LmdbStorage.open(place / name), [peer for peer in names if peer != name])
        for name in names
    ]
    notes = Notes(random.Random(1))
    fleet[-1].write([notes.remember(notes.key(0))])
    for _ in range(2):
        for consumer in fleet:
            for supplier in fleet:
                if consumer is not supplier:
                    pull(consumer, supplier)
    pair = fleet[:2]
    agents = [_Agents(notes, replica, live, number * 10_000_000) for number, replica in enumerate(pair)]
    tracemalloc.start()
    found = []
    for day in range(1, days + 1):
        for _ in range(_HOURS):
            world.wait(HOUR)
            for each in agents:
                each.work(made)
            for _ in range(2):
                pull(pair[0], pair[1])
                pull(pair[1], pair[0])
            purged = [replica.compact() for replica in pair]
        found.append(_day(day, pair[0], sum(len(each.keys) for each in agents), purged[0].waiting))
    tracemalloc.stop()
    for replica in fleet:
        replica.storage.close()
    return found


def _day(day: int, replica: Replica, live: int, waiting: int) -> Day:
    gc.collect()
    memory, _ = tracemalloc.get_traced_memory()
    assert isinstance(replica.storage, LmdbStorage)
    with replica.storage.snapshot() as snapshot:
        count = snapshot.count
        return Day(
            day=day,
            live=live,
            registers=count(Table.REGISTERS),
            changes=count(Table.CHANGES),
            tombstones=count(Table.TOMBSTONES),
            waiting=waiting,
            results=count(Table.REQUESTS),
            clock_bytes=len(encode_clock(get_clock(snapshot))),
            members=count(Table.MEMBERS),
            file_bytes=replica.storage.stats().file_bytes,
            memory_bytes=memory,
        )


def main() -> int:
    """Measure, print a table and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--days", type=int, default=21)
    parser.add_argument("--live", type=int, default=500, help="notes that live on each side")
    parser.add_argument("--made", type=int, default=10, help="notes made an hour on each side")
    parser.add_argument("--place", type=Path, help="where the stores lie; default: a temporary folder")
    parser.add_argument("--name", default="absent-peer", help="of the file of figures; empty: none")
    chosen = parser.parse_args()
    command = (
        f"python -m scripts.bench_absent_peer --days {chosen.days} --live {chosen.live} --made {chosen.made}"
    )
    measurement = Measurement(chosen.name, command, kind_of_place(chosen.place))
    runs: dict[str, list[dict[str, object]]] = {}
    for label, with_absent in (("one peer down for ever", True), ("without that peer", False)):
        place = Path(tempfile.mkdtemp(dir=chosen.place, prefix="ricordo-bench-"))
        try:
            days = measure(
                place, days=chosen.days, live=chosen.live, made=chosen.made, with_absent=with_absent
            )
        finally:
            shutil.rmtree(place)
        runs[label] = [asdict(day) for day in days]
        print(f"\n{label}")
        print(show(runs[label], list(runs[label][0])))
    measurement.figures = {"runs": runs}
    if chosen.name:
        print(f"\nwritten: {measurement.write()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
