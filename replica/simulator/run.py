"""Run a script, or as many random ones as you like, and say what came of it.

A run ends in a verdict: nothing, or a :class:`Failure` with the step at which it showed. What a replica must
not do is a Contradiction; any other exception out of a replica is a failure as well.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass

from crdt.dot import Millis
from replica.simulator.checks import check_fleet, drain, heal
from replica.simulator.faults import PROFILES
from replica.simulator.fleet import Fleet, Tally
from replica.simulator.process import EPOCH
from replica.simulator.script import Purge, Script
from replica.simulator.workload import random_script

__all__ = ["Failure", "Report", "replay", "simulate"]

_HEALING = -1


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in a run."""

    step: int
    """The number of the step, from 0; -1: after the last, when the fleet had healed or should have."""
    what: str
    """In one line."""
    kind: str
    """The name of the exception."""
    where: str
    """The traceback."""


@dataclass(frozen=True, slots=True)
class Report:
    """A run that is over."""

    script: Script
    tally: Tally
    passed: Millis
    """How much time passed in the fleet."""
    live: int
    """Entries that were live at the end."""
    trace: str
    """A hash of everything that happened: equal for equal runs."""
    failure: Failure | None

    @property
    def ok(self) -> bool:
        """Whether every check held."""
        return self.failure is None


def replay(script: Script, *, progress: Callable[[int], None] | None = None) -> Report:
    """Run a script, heal the fleet, and check it. ``progress`` is told how many steps are done."""
    fleet = Fleet(script.setup)
    failure = None
    step = _HEALING
    try:
        for step, one in enumerate(script.steps):
            fleet.do(one)
            if progress is not None:
                progress(step + 1)
        step = _HEALING
        heal(fleet)
        check_fleet(fleet)
        if any(isinstance(one, Purge) for one in script.steps):
            drain(fleet)
            check_fleet(fleet)
    except Exception as error:  # noqa: BLE001 - whatever a replica does wrong is what a run is for
        failure = Failure(step, str(error), type(error).__name__, traceback.format_exc())
    fleet.record_stores()
    return Report(
        script=script,
        tally=fleet.tally,
        passed=Millis(fleet.time - EPOCH),
        live=fleet.live(),
        trace=fleet.trace,
        failure=failure,
    )


def simulate(
    replicas: int | None,
    operations: int,
    seed: int,
    *,
    keys: int | None = None,
    topology: str | None = None,
    faults: str = "process",
    progress: Callable[[int], None] | None = None,
) -> Report:
    """A random run of so many operations: a function of its arguments alone.

    ``faults`` names one of :data:`replica.simulator.faults.PROFILES`. What is None is drawn. Raises
    ValueError for a name or number that makes no fleet.
    """
    if faults not in PROFILES:
        raise ValueError(f"{faults!r} is no set of faults; choose one of {', '.join(PROFILES)}")
    script = random_script(
        seed, operations, PROFILES[faults], replicas=replicas, keys=keys, topology=topology
    )
    return replay(script, progress=progress)
