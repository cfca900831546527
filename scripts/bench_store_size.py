"""How much room a store takes after many writes, as against one freshly filled with what lives in it.

A replica on LMDB is written to as agents do, in group commits, with the request ids of the client library,
and is compacted every minute of virtual time, as the server does. Then a new replica fills itself from it,
and the two files are compared.

    python -m scripts.bench_store_size --writes 1000000 --keys 10000
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from crdt.dot import Millis
from replica.core.storage import Table
from replica.storage.lmdb_store import LmdbStorage
from scripts.bench_parts import (
    GRACE,
    HOUR,
    MINUTE,
    Measurement,
    Notes,
    Replica,
    World,
    kind_of_place,
    pull,
    show,
)

__all__ = ["Outcome", "Size", "main", "measure"]

_SAMPLES = 100


@dataclass(frozen=True, slots=True)
class Size:
    """A store at a moment."""

    moment: str
    writes: int
    file_bytes: int
    used_bytes: int
    """In pages that hold rows."""
    registers: int
    tombstones: int
    results: int
    """Kept by request id."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a measurement found."""

    timeline: list[Size]
    """While it was written to."""
    after: list[Size]
    """After the last write."""
    filled: Size
    """A new store that filled itself from it."""
    packed: Size
    """The same, written anew into full pages: as small as these rows can be."""
    seconds: float
    """Processor time of all the writes and compactions."""

    @property
    def ratio(self) -> float:
        """The file after the last purge, as against the filled one."""
        return self.after[-1].file_bytes / self.filled.file_bytes

    @property
    def ratio_to_packed(self) -> float:
        """As against the smallest there is."""
        return self.after[-1].file_bytes / min(self.packed.file_bytes, self.filled.file_bytes)


def measure(
    place: Path,
    *,
    writes: int,
    keys: int,
    batch: int = 64,
    per_second: int = 1000,
    request_ids: bool = True,
    seed: int = 1,
) -> Outcome:
    """Write so much, `batch` calls in a transaction, at that rate of virtual time; purge; and compare."""
    world = World(random.Random(seed))
    notes = Notes(random.Random(seed), request_ids=request_ids)
    store = LmdbStorage.open(place / "written")
    replica = Replica(world, "written", store)
    began, done, compacted = time.process_time(), 0, world.now
    timeline = []
    while done < writes:
        count = min(batch, writes - done)
        replica.write([notes.anything(keys) for _ in range(count)])
        if done * _SAMPLES // writes != (done + count) * _SAMPLES // writes:
            timeline.append(_size("writing", done + count, store))
        done += count
        world.wait(count * 1000 // per_second)
        if world.now - compacted >= MINUTE:
            replica.compact()
            compacted = world.now
    seconds = time.process_time() - began
    after = [_size("after the last write", done, store)]
    for moment, wait in (
        ("after a purge at once", Millis(0)),
        ("ten minutes later", Millis(10 * MINUTE)),
        ("past the grace", Millis(GRACE + HOUR)),
    ):
        world.wait(wait)
        replica.compact()
        after.append(_size(moment, done, store))
    new = LmdbStorage.open(place / "filled")
    filling = Replica(world, "filled", new)
    pull(filling, replica)
    filled = _size("freshly filled", 0, new)
    new.shrink()
    packed = _size("freshly filled, in full pages", 0, new)
    new.close()
    store.close()
    return Outcome(timeline, after, filled, packed, seconds)


def _size(moment: str, writes: int, store: LmdbStorage) -> Size:
    stats = store.stats()
    with store.snapshot() as snapshot:
        registers, tombstones, results = (
            snapshot.count(table) for table in (Table.REGISTERS, Table.TOMBSTONES, Table.REQUESTS)
        )
    return Size(moment, writes, stats.file_bytes, stats.used_bytes, registers, tombstones, results)


def main() -> int:
    """Measure, print a table and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--writes", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=64, help="calls that share a transaction")
    parser.add_argument("--per-second", type=int, default=1000, help="calls in a second of virtual time")
    parser.add_argument("--place", type=Path, help="where the stores lie; default: a temporary folder")
    parser.add_argument("--name", default="store-size", help="of the file of figures; empty: none")
    chosen = parser.parse_args()
    runs = {}
    command = (
        f"python -m scripts.bench_store_size --writes {chosen.writes} --keys {chosen.keys} "
        f"--batch {chosen.batch} --per-second {chosen.per_second}"
    )
    measurement = Measurement(chosen.name, command, kind_of_place(chosen.place))
    for label, request_ids in (("with request ids", True), ("without request ids", False)):
        place = Path(tempfile.mkdtemp(dir=chosen.place, prefix="ricordo-bench-"))
        try:
            outcome = measure(
                place,
                writes=chosen.writes,
                keys=chosen.keys,
                batch=chosen.batch,
                per_second=chosen.per_second,
                request_ids=request_ids,
            )
        finally:
            shutil.rmtree(place)
        rows = [asdict(size) for size in (*outcome.after, outcome.filled, outcome.packed)]
        print(f"\n{chosen.writes:,} writes over {chosen.keys:,} keys, {label}")
        print(show(rows, ("moment", "file_bytes", "used_bytes", "registers", "tombstones", "results")))
        print(
            f"{outcome.ratio:.2f} times a freshly filled store,"
            f" {outcome.ratio_to_packed:.2f} times the smallest;"
            f" {outcome.seconds / chosen.writes * 1e6:.0f} µs of processor time a write"
        )
        runs[label] = {
            **asdict(outcome),
            "ratio": round(outcome.ratio, 3),
            "ratio_to_packed": round(outcome.ratio_to_packed, 3),
        }
    measurement.figures = {"writes": chosen.writes, "keys": chosen.keys, "runs": runs}
    if chosen.name:
        print(f"\nwritten: {measurement.write()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
