"""What the measurements share: notes as agents write them, replicas in this process, links between them, and
where the figures go.

Time is virtual: a script moves it. Seconds are measured only where a script says so, as processor time of
this process, which other work on the machine disturbs little.
"""

from __future__ import annotations

import json
import os
import platform
import random
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import lmdb

from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import Command, Forget, Remember, Update
from replica.core.consumer_session import ConsumerSession
from replica.core.errors import Refused
from replica.core.identity import Identity, begin_store, read_identity
from replica.core.membership import configure, slowest, wake
from replica.core.messages import Batch, ConsumerMessage, Outline, Range, SupplierMessage
from replica.core.node import Node
from replica.core.purge import Purged, purge
from replica.core.requests import prune_results
from replica.core.session import Attendance, Outcome, Settings, Work
from replica.core.storage import Storage, Transaction
from replica.core.supplier_session import SupplierSession
from replica.storage.lmdb_store import LmdbStorage
from replica.wire import replication_pb2
from replica.wire.sessions import from_consumer, from_supplier, to_consumer, to_supplier

__all__ = [
    "DOCS",
    "GRACE",
    "HOUR",
    "MAX_SILENCE",
    "MINUTE",
    "Cost",
    "Measurement",
    "Notes",
    "Replica",
    "World",
    "kind_of_place",
    "pull",
    "show",
]

DOCS = Path(__file__).resolve().parent.parent / "docs"

MINUTE = Millis(60_000)
HOUR = Millis(60 * MINUTE)
GRACE, MAX_SILENCE = HOUR, Millis(7 * 24 * HOUR)
"""The defaults of `compaction.grace` and `compaction.max_silence`."""
_BUDGET = 200
_START = Millis(1_700_000_000_000)


# --- notes


class Notes:
    """Notes as agents write them: a title, some sentences, a few tags. All of it follows from a seed."""

    def __init__(self, chance: random.Random, *, request_ids: bool = True) -> None:
        self.chance = chance
        self._request_ids = request_ids
        self._words = [
            "".join(chance.choices("aeioubcdfglmnprst", k=chance.randrange(2, 9))) for _ in range(2000)
        ]

    def text(self, least: int, most: int) -> str:
        """So many words."""
        return " ".join(self.chance.choices(self._words, k=self.chance.randrange(least, most)))

    def key(self, number: int) -> EntryKey:
        """The key of a note by its number: in one of twenty topics."""
        return EntryKey.make("repository", f"topic-{number % 20:02}", f"note-{number:08}")

    def _request_id(self) -> str | None:
        # As the client library makes them.
        return str(UUID(int=self.chance.getrandbits(128), version=4)) if self._request_ids else None

    def remember(self, key: EntryKey, ttl: Millis | None = None) -> Remember:
        return Remember(
            key=key,
            title=self.text(3, 8),
            body=self.text(5, 80),
            author="agent",
            tags=(self.chance.choice(self._words[:30]),),
            ttl=ttl,
            request_id=self._request_id(),
        )

    def update(self, key: EntryKey) -> Update:
        return Update(
            key=key,
            body=self.text(5, 80),
            add_tags=(self.chance.choice(self._words[:30]),),
            remove_tags=(self.chance.choice(self._words[30:60]),),
            request_id=self._request_id(),
        )

    def forget(self, key: EntryKey) -> Forget:
        return Forget(key=key, request_id=self._request_id())

    def anything(self, keys: int) -> Command:
        """A call about one of so many keys: mostly remembers, some updates and forgets, some with a TTL."""
        key, kind = self.key(self.chance.randrange(keys)), self.chance.random()
        if kind < 0.6:
            return self.remember(key)
        if kind < 0.8:
            return self.update(key)
        if kind < 0.92:
            return self.forget(key)
        return self.remember(key, Millis(self.chance.randrange(10_000, 300_000)))


# --- replicas


@dataclass
class World:
    """The time, and the chance, of a fleet."""

    chance: random.Random
    now: Millis = _START

    def wait(self, time: int) -> None:
        self.now = Millis(self.now + time)


class Replica:
    """A replica in this process: a store, and what a server does with it."""

    def __init__(self, world: World, name: str, storage: Storage, peers: Iterable[str] = ()) -> None:
        self.world, self.name, self.storage = world, name, storage
        self.attendance = Attendance()
        self.settings = Settings(max_silence=MAX_SILENCE)
        others = tuple(peers)

        def start(transaction: Transaction) -> Identity:
            identity = begin_store(transaction, name, world.now, world.chance.randbytes)
            configure(transaction, identity, others, world.now)
            wake(transaction, world.now)
            return identity

        self._node = Node(storage.run(start))

    def write(self, commands: Sequence[Command]) -> None:
        """Calls that share a transaction, as under group commit; those that are refused change nothing."""

        def work(transaction: Transaction) -> None:
            behind = slowest(transaction, self.world.now, MAX_SILENCE)
            identity = read_identity(transaction)
            assert identity is not None
            node = self._node if identity == self._node.identity else Node(identity)
            for command in commands:
                with suppress(Refused):
                    _do(node, transaction, command, self.world.now, behind)

        self.storage.run(work)

    def compact(self) -> Purged:
        """What the server does every minute: purge, clear away old results, give room back to the disk."""
        total, position = Purged(), None
        while True:
            step = self.storage.run(
                lambda tx, at=position: purge(tx, self.world.now, MAX_SILENCE, GRACE, at, _BUDGET)  # type: ignore[misc]
            )
            total, position = total.plus(step), step.position
            if position is None:
                break
        while self.storage.run(lambda tx: prune_results(tx, self.world.now, _BUDGET)) == _BUDGET:
            pass
        if isinstance(self.storage, LmdbStorage):
            self.storage.shrink()
        return total

    def do(self, work: Work | None) -> Outcome | None:
        """Durable work of a session."""
        return None if work is None else self.storage.run(work)


def _do(node: Node, transaction: Transaction, command: Command, now: Millis, behind: Millis) -> None:
    match command:
        case Remember():
            node.remember(transaction, command, now, behind)
        case Update():
            node.update(transaction, command, now, behind)
        case Forget():
            node.forget(transaction, command, now, behind)


# --- links


@dataclass
class Cost:
    """What went over a stream, and the processor time of both ends together."""

    verdict: str = ""
    messages: int = 0
    bytes: int = 0
    registers: int = 0
    outlines: int = 0
    ranges: int = 0
    seconds: float = 0.0


def pull(consumer: Replica, supplier: Replica) -> Cost:
    """One stream, until the consumer has everything. Every message goes through its form on the wire."""
    cost, began = Cost(), time.process_time()
    world, entropy = consumer.world, consumer.world.chance.randbytes
    pulling = ConsumerSession(supplier.name, consumer.settings, entropy, consumer.attendance)
    serving = SupplierSession(supplier.settings, entropy, supplier.attendance)
    up: list[ConsumerMessage] = []
    down: list[SupplierMessage] = []
    pulling.open(world.now)
    with supplier.storage.snapshot() as snapshot:
        serving.open(snapshot, world.now)
    while True:
        with consumer.storage.snapshot() as snapshot:
            up += pulling.poll(snapshot, world.now)
        with supplier.storage.snapshot() as snapshot:
            down += serving.poll(snapshot, world.now)
        if up:
            sent = to_supplier(up.pop(0)).SerializeToString()
            received = from_consumer(replication_pb2.ConsumerMessage.FromString(sent))
            outcome = supplier.do(serving.receive(received, world.now))
            if outcome is not None:
                serving.committed(outcome, world.now)
        elif down:
            sent = to_consumer(down.pop(0)).SerializeToString()
            message = from_supplier(replication_pb2.SupplierMessage.FromString(sent))
            cost.registers += len(message.changes) if isinstance(message, Batch | Range) else 0
            cost.outlines += isinstance(message, Outline)
            cost.ranges += isinstance(message, Range)
            outcome = consumer.do(pulling.receive(message, world.now))
            if outcome is not None:
                pulling.committed(outcome, world.now)
        else:
            break
        cost.messages += 1
        cost.bytes += len(sent)
    cost.seconds = time.process_time() - began
    cost.verdict = "" if pulling.verdict is None else pulling.verdict.kind.name
    pulling.fail("closed")
    serving.fail("closed")
    return cost


# --- figures


@dataclass
class Measurement:
    """Figures, and the machine that they were taken on."""

    name: str
    what: str
    """The command that takes them again."""
    place: str
    """What kind of file system the stores lay on."""
    figures: dict[str, object] = field(default_factory=dict)
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def write(self) -> Path:
        """Write them down, as `docs/bounds-NAME.json`."""
        machine = {
            "processors": os.cpu_count(),
            "load_before": round(self.load_before, 1),
            "load_after": round(os.getloadavg()[0], 1),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "lmdb": ".".join(map(str, lmdb.version(subpatch=False))),
            "stores": self.place,
        }
        path = DOCS / f"bounds-{self.name}.json"
        content = {"command": self.what, "machine": machine, **self.figures}
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return path


def kind_of_place(place: Path | None) -> str:
    """What kind of file system the folder lies on; none: that of temporary folders."""
    in_memory = (place or Path(tempfile.gettempdir())).resolve().is_relative_to("/dev/shm")
    return "in memory (tmpfs)" if in_memory else "on disk"


def show(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> str:
    """A table in text."""
    cells = [list(columns), *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(row[number]) for row in cells) for number in range(len(columns))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells
    )


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
