"""The faults that may befall a fleet, by name, and the profiles of a run: which of them do.

Each injector draws one step. What the step does is said by :mod:`replica.simulator.fleet`; that the fleet
heals from it, by :mod:`replica.simulator.checks`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from replica.simulator.script import (
    NEVER,
    Crash,
    Cut,
    Damage,
    Drop,
    Duplicate,
    Full,
    Mend,
    Pass,
    Rollback,
    Save,
    Setup,
    Step,
    Stray,
    Swap,
    Turn,
    Wipe,
)

__all__ = ["FAULTS", "PROFILES", "Profile", "draw_fault"]


@dataclass(frozen=True, slots=True)
class Profile:
    """Which faults a run has."""

    faults: Mapping[str, int]
    """Names of :data:`FAULTS` with their weights."""
    skews: tuple[int, ...] = (0,)
    purges: bool = False
    max_silence: int = NEVER
    forgiving: bool = False
    """See `Setup.forgiving`."""


@dataclass(frozen=True, slots=True)
class _Target:
    chance: random.Random
    replicas: Sequence[str]
    setup: Setup

    @property
    def one(self) -> str:
        return self.chance.choice(self.replicas)

    @property
    def pair(self) -> tuple[str, str]:
        link = self.chance.choice(self.setup.links)
        return (link[0], link[1]) if self.chance.random() < 0.5 else (link[1], link[0])


FAULTS: Mapping[str, Callable[[_Target], Step]] = {
    "partition": lambda target: Cut(*target.pair),
    "mending": lambda target: Mend(*target.pair),
    "disconnect": lambda target: Drop(*target.pair),
    "duplicate": lambda target: Duplicate(*target.pair),
    "reordering": lambda target: Swap(*target.pair),
    "stray message": lambda target: Stray(*target.pair),
    "crash": lambda target: Crash(target.one),
    "full disk": lambda target: Full(target.one, target.chance.choice((1, 2))),
    "clock step": lambda target: Turn(target.one, target.chance.choice((-2_000, -300, 0, 300, 2_000))),
    "wild clock": lambda target: Turn(target.one, target.chance.choice((-600_000, -90_000, 90_000, 600_000))),
    "damaged row": lambda target: Damage(target.one, target.chance.randrange(target.setup.keys)),
    "silence": lambda target: Pass(150_000),
    "lost disk": lambda target: Wipe(target.one),
    "copied disk": lambda target: Save(target.one),
    "rolled-back disk": lambda target: Rollback(target.one),
}
"""Every injector, by name."""

_NETWORK = {
    "partition": 3,
    "mending": 4,
    "disconnect": 2,
    "duplicate": 2,
    "reordering": 2,
    "stray message": 2,
}
_PROCESS = {**_NETWORK, "crash": 2, "full disk": 1, "clock step": 1, "damaged row": 1}
_SKEWS = (0, 0, 0, -2_000, 2_000, 90_000, -90_000)

PROFILES: Mapping[str, Profile] = {
    "none": Profile({}),
    "network": Profile(_NETWORK, _SKEWS),
    "process": Profile({**_PROCESS, "wild clock": 1}, _SKEWS),
    "purge": Profile(_PROCESS, (0, 0, 0, -2_000, 2_000, 90_000), purges=True),
    "loss": Profile(
        {
            **_NETWORK,
            "crash": 2,
            "full disk": 1,
            "clock step": 1,
            "silence": 3,
            "lost disk": 2,
            "copied disk": 2,
            "rolled-back disk": 2,
        },
        (0, 0, -2_000, 2_000),
        purges=True,
        max_silence=120_000,
        forgiving=True,
    ),
}
"""What a run may be asked for, by name; each goes further than the one before."""


def draw_fault(profile: Profile, chance: random.Random, replicas: Sequence[str], setup: Setup) -> Step | None:
    """A fault, or none where the profile has none."""
    if not profile.faults:
        return None
    name = chance.choices([*profile.faults], weights=[*profile.faults.values()])[0]
    return FAULTS[name](_Target(chance, replicas, setup))
