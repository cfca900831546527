"""What happens to a fleet in a random run: a script, made of nothing but a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from replica.simulator.faults import Profile, draw_fault
from replica.simulator.script import (
    Again,
    Forget,
    Lapse,
    Pass,
    Pull,
    Purge,
    Remember,
    Script,
    Setup,
    Step,
    Tick,
    Update,
    Write,
    names,
)

__all__ = ["TOPOLOGIES", "links_of", "random_script"]

TOPOLOGIES = ("mesh", "ring", "chain", "star", "random")

_TITLES = ("x", "y", "z", "")
_TAGS = ("red", "green", "blue")
_LINKS = ("cites>u", "cites>v", "blocks>u")
_KINDS = ("Decision", "Note", "Memory")
_TTLS = (10_000, 30_000, 80_000)
_PASSES = (1, 5, 1_000, 5_000, 20_000)
_MESSAGES = (1, 2, 3, 5, 100)
_BATCHES = (1, 300, 1 << 20)


def links_of(topology: str, replicas: Sequence[str], chance: random.Random) -> tuple[str, ...]:
    """The pairs of peers of a topology. A random one is a random tree and a few links more."""
    if topology == "mesh":
        pairs = list(combinations(replicas, 2))
    elif topology == "ring":
        pairs = [*pairwise(replicas)]
        if len(replicas) > 2:
            pairs.append((replicas[0], replicas[-1]))
    elif topology == "chain":
        pairs = [*pairwise(replicas)]
    elif topology == "star":
        pairs = [(replicas[0], other) for other in replicas[1:]]
    elif topology == "random":
        chosen = {(chance.choice(replicas[:at]), replicas[at]) for at in range(1, len(replicas))}
        chosen |= {pair for pair in combinations(replicas, 2) if chance.random() < 0.3}
        pairs = sorted(chosen)
    else:
        raise ValueError(f"{topology!r} is no topology; choose one of {', '.join(TOPOLOGIES)}")
    return tuple(a + b for a, b in pairs)


@dataclass(frozen=True, slots=True)
class _Draw:
    """Chooses what a step is about."""

    chance: random.Random
    replicas: tuple[str, ...]
    setup: Setup

    def replica(self) -> str:
        return self.chance.choice(self.replicas)

    def key(self) -> int:
        return self.chance.randrange(self.setup.keys)

    def pair(self) -> tuple[str, str]:
        link = self.chance.choice(self.setup.links)
        return (link[0], link[1]) if self.chance.random() < 0.5 else (link[1], link[0])

    def few(self, among: Sequence[str], odds: float) -> tuple[str, ...]:
        if self.chance.random() >= odds:
            return ()
        return tuple(one for one in among if self.chance.random() < 0.5)

    def text(self, odds: float) -> str | None:
        return self.chance.choice(_TITLES) if self.chance.random() < odds else None

    def apart(self, added: tuple[str, ...], among: Sequence[str], odds: float) -> tuple[str, ...]:
        return tuple(one for one in self.few(among, odds) if one not in added)

    def write(self) -> Write:
        chance = self.chance
        roll = chance.random()
        if roll < 0.5:
            ttl = chance.choice(_TTLS) if chance.random() < 0.45 else 0
            links = self.few(_LINKS, 0.25)
            return Remember(
                at=self.replica(),
                key=self.key(),
                title=self.text(0.6),
                body=self.text(0.3),
                kind=chance.choice(_KINDS) if chance.random() < 0.2 else None,
                tags=self.few(_TAGS, 0.35),
                links=links,
                unlink=self.apart(links, _LINKS, 0.1),
                ttl=ttl,
                durable=not ttl and chance.random() < 0.15,
                created_at=chance.randrange(1000) if chance.random() < 0.05 else None,
            )
        if roll < 0.75:
            tags, links = self.few(_TAGS, 0.3), self.few(_LINKS, 0.2)
            return Update(
                at=self.replica(),
                key=self.key(),
                title=self.text(0.6),
                body=self.text(0.3),
                tags=tags,
                untag=self.apart(tags, _TAGS, 0.3),
                links=links,
                unlink=self.apart(links, _LINKS, 0.2),
            )
        if roll < 0.92:
            return Forget(at=self.replica(), key=self.key())
        return Lapse(at=self.replica(), key=self.key(), window=chance.choice(_TTLS))

    def pull(self) -> Pull:
        at, source = self.pair()
        return Pull(at=at, source=source, messages=self.chance.choice(_MESSAGES))


def random_script(
    seed: int,
    operations: int,
    profile: Profile,
    *,
    replicas: int | None = None,
    keys: int | None = None,
    topology: str | None = None,
) -> Script:
    """A run of so many steps. What is not given is drawn: 2 to 5 replicas, 1 to 8 keys, any topology."""
    chance = random.Random(seed)
    count = chance.choice((2, 2, 3, 3, 4, 5)) if replicas is None else replicas
    shape = chance.choice(TOPOLOGIES) if topology is None else topology
    setup = Setup(
        replicas=count,
        keys=chance.choice((1, 2, 3, 8)) if keys is None else keys,
        links=links_of(shape, names(Setup(count, 1, ())), chance),
        skews=tuple(chance.choice(profile.skews) for _ in range(count)),
        batch_bytes=chance.choice(_BATCHES),
        default_ttl=chance.choice((0, 0, 40_000)),
        max_silence=profile.max_silence,
        forgiving=profile.forgiving,
    )
    draw = _Draw(chance, names(setup), setup)
    ordinary: Sequence[tuple[float, Callable[[], Step]]] = (
        (0.36, draw.write),
        (0.02, lambda: Again(at=draw.replica())),
        (0.38, draw.pull),
        (0.03, lambda: Tick(at=draw.replica())),
        (0.05 if profile.purges else 0.0, lambda: Purge(at=draw.replica())),
        (0.08, lambda: Pass(ms=chance.choice(_PASSES))),
    )
    steps: list[Step] = []
    for _ in range(operations):
        roll = chance.random()
        for odds, make in ordinary:
            roll -= odds
            if roll < 0:
                steps.append(make())
                break
        else:
            steps.append(draw_fault(profile, chance, draw.replicas, setup) or draw.pull())
    return Script(setup, tuple(steps))
