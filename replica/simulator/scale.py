"""How the cost of replication grows with a fleet: phases of a large fleet's life, counted (section 11).

A fleet comes together, is left idle, is written to once and then steadily, is cut in two and healed, and is
left alone for so long that everyone has to be told again that the others are alive. For each phase: time,
messages and bytes, those of data apart from those of gossip. A run is a function of its setup alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.membership import grain
from replica.core.session import Settings
from replica.simulator.scale_fleet import HEARTBEAT, Measure, ScaleFleet, Stuck, Tally, Traffic

__all__ = ["PHASES", "SHAPES", "Phase", "ScaleReport", "ScaleSetup", "halves", "measure_scale", "shape"]

SHAPES = ("mesh", "ring", "chain", "star", "tree", "regular")
"""Who peers with whom. A tree is binary; in a regular fleet everyone has four peers, drawn."""

PHASES = ("assembly", "first writes", "idle", "one write", "load", "apart", "healing", "refresh")

_LIMIT = 3_600_000
"""No phase takes so long, in the fleet's time."""

_IDLE_BEATS = 3
_LOAD_BEATS = 3
_LOAD_EVERY = 1_000


@dataclass(frozen=True, slots=True)
class ScaleSetup:
    """What is measured."""

    replicas: int
    topology: str
    seed: int = 0
    writers: int | None = None
    """So many replicas have ever written; None: all."""
    writes: int = 10
    """While the fleet is cut in two, on each side."""
    body_bytes: int = 300
    """Of an entry."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What a phase came to."""

    name: str
    passed: Millis
    """Of the fleet's time."""
    writes: int
    reached: tuple[int, ...]
    """For each write that arrived everywhere in this phase, after how many milliseconds; while the fleet was
    cut in two, since it was whole again.
    """
    data: Traffic
    gossip: Traffic
    beats: Traffic
    greetings: Traffic
    busiest_bytes: int
    """Sent and received by the replica that had most of them."""

    @property
    def messages(self) -> int:
        """Of all kinds."""
        return self.data.messages + self.gossip.messages + self.beats.messages + self.greetings.messages

    @property
    def bytes(self) -> int:
        """Of all kinds."""
        return self.data.bytes + self.gossip.bytes + self.beats.bytes + self.greetings.bytes


@dataclass(frozen=True, slots=True)
class ScaleReport:
    """A run that is over."""

    setup: ScaleSetup
    links: int
    phases: tuple[Phase, ...]
    reopened: int
    """Streams that ended by a decision of a replica."""

    def phase(self, name: str) -> Phase:
        """One of :data:`PHASES`."""
        return next(phase for phase in self.phases if phase.name == name)


def shape(topology: str, names: Sequence[str], chance: random.Random) -> tuple[tuple[str, str], ...]:
    """The links of a topology. Raises ValueError for a name that is none."""
    count = len(names)
    match topology:
        case "mesh":
            pairs = [*combinations(range(count), 2)]
        case "ring":
            pairs = _ring(range(count))
        case "chain":
            pairs = [*pairwise(range(count))]
        case "star":
            pairs = [(0, other) for other in range(1, count)]
        case "tree":
            pairs = [((other - 1) // 2, other) for other in range(1, count)]
        case "regular":
            # Two rings over all, each in an order of its own.
            orders = [chance.sample(range(count), count) for _ in range(2)]
            pairs = sorted({pair for order in orders for pair in _ring(order)})
        case _:
            raise ValueError(f"{topology!r} is no topology; choose one of {', '.join(SHAPES)}")
    return tuple((names[one], names[other]) for one, other in pairs)


def _ring(order: Sequence[int]) -> list[tuple[int, int]]:
    closed = [*order, order[0]] if len(order) > 2 else order
    return [(min(pair), max(pair)) for pair in pairwise(closed)]


def halves(names: Sequence[str], links: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Half of a fleet that hangs together, from the first replica on, depth first; and the rest."""
    peers: Mapping[str, list[str]] = {name: [] for name in names}
    for one, other in links:
        peers[one].append(other)
        peers[other].append(one)
    found: dict[str, None] = {}
    open_ends = [names[0]]
    while open_ends:
        name = open_ends.pop()
        if name not in found:
            found[name] = None
            open_ends += reversed(peers[name])
    order = [*found]
    return tuple(order[: len(order) // 2]), tuple(order[len(order) // 2 :])


def measure_scale(
    setup: ScaleSetup, measure: Measure, *, progress: Callable[[str], None] | None = None
) -> ScaleReport:
    """Run all phases. ``progress`` is told the name of each as it begins.

    Raises ValueError for a setup that makes no fleet, and Stuck if a fleet does not converge.
    """
    return _Run(setup, measure, progress).run()


class _Run:
    def __init__(self, setup: ScaleSetup, measure: Measure, progress: Callable[[str], None] | None) -> None:
        if setup.replicas < 2:
            raise ValueError("a fleet has at least 2 replicas")
        if setup.writers is not None and not 1 <= setup.writers <= setup.replicas:
            raise ValueError("there is at least 1 writer, and no more than there are replicas")
        self._setup = setup
        self._progress = progress
        self._chance = random.Random(f"{setup.seed} {setup.topology} {setup.replicas}")
        width = len(str(setup.replicas - 1))
        self._names = tuple(f"r{number:0{width}}" for number in range(setup.replicas))
        self._links = shape(setup.topology, self._names, self._chance)
        self._fleet = ScaleFleet(self._names, self._links, self._chance, measure)
        self._writers = sorted(self._chance.sample(self._names, setup.writers or setup.replicas))
        self._written = 0
        self._phases: list[Phase] = []

    def run(self) -> ScaleReport:
        fleet = self._fleet
        self._phase("assembly", self._assemble)
        self._phase("first writes", self._write_first)
        self._phase("idle", lambda: fleet.run_for(_IDLE_BEATS * HEARTBEAT))
        self._phase("one write", self._write_once)
        self._phase("load", self._load)
        fleet.run_until_quiet(_LIMIT)
        self._phase("apart", self._part)
        self._phase("healing", self._heal)
        self._phase("refresh", self._refresh)
        if not fleet.agree():
            raise Stuck("the replicas do not hold the same")
        if not fleet.acquainted():
            raise Stuck("not every replica has heard of every other one")
        return ScaleReport(self._setup, len(self._links), tuple(self._phases), fleet.reopened)

    def _phase(self, name: str, act: Callable[[], object]) -> None:
        if self._progress is not None:
            self._progress(name)
        fleet = self._fleet
        fleet.tally, fleet.reached = Tally(), []
        begun, written = fleet.time, self._written
        act()
        tally = fleet.tally
        self._phases.append(
            Phase(
                name=name,
                passed=Millis(fleet.time - begun),
                writes=self._written - written,
                reached=tuple(fleet.reached),
                data=tally.data,
                gossip=tally.gossip,
                beats=tally.beats,
                greetings=tally.greetings,
                busiest_bytes=tally.busiest,
            )
        )

    def _write(self, at: str) -> None:
        key = EntryKey.make("scale", "writes", f"{self._written:06}")
        self._written += 1
        self._fleet.write(at, key, self._chance.randbytes(self._setup.body_bytes // 2).hex())

    def _assemble(self) -> None:
        self._fleet.open_all()
        self._fleet.run_until_quiet(_LIMIT)

    def _write_first(self) -> None:
        """Everyone who ever writes, once."""
        for name in self._writers:
            self._write(name)
            self._fleet.run_for(HEARTBEAT // len(self._writers))
        self._fleet.run_until_reached(_LIMIT)
        self._fleet.run_until_quiet(_LIMIT)

    def _write_once(self) -> None:
        self._write(self._chance.choice(self._writers))
        self._fleet.run_until_quiet(_LIMIT)

    def _load(self) -> None:
        for _ in range(_LOAD_BEATS * HEARTBEAT // _LOAD_EVERY):
            self._write(self._chance.choice(self._writers))
            self._fleet.run_for(_LOAD_EVERY)

    def _part(self) -> None:
        fleet = self._fleet
        here, there = halves(self._names, self._links)
        fleet.cut(there)
        for side in (here, there):
            for _ in range(self._setup.writes):
                self._write(self._chance.choice([name for name in side if name in self._writers] or side))
        fleet.run_until_still(_LIMIT)

    def _heal(self) -> None:
        fleet = self._fleet
        fleet.mend()
        fleet.run_until_reached(_LIMIT)
        fleet.run_until_quiet(_LIMIT)

    def _refresh(self) -> None:
        """So much time passes that every member is worth a statement again."""
        self._fleet.skip(grain(Settings().max_silence))
        self._fleet.run_for(2 * HEARTBEAT)
        self._fleet.run_until_quiet(_LIMIT)
