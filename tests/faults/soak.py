"""Random faults under load on real replicas, then healed: nothing is lost, and nothing rises from the dead.

    python -m tests.faults.soak --minutes 30 --replicas 3..5 --seed 7

Afterwards all replicas hold the same, the ledger of what clients were told is satisfied on each, nothing is
damaged, and no log holds an error that an operator could not act on. The seed decides which faults strike
whom and when; what replicas make of it depends on the machine.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from replica.client import KeyRange
from tests.faults.fleet import Fleet, now_ms, until
from tests.faults.injectors import INJECTORS, Stage, Strike
from tests.faults.ledger import Ledger
from tests.faults.load import REPO, Load

__all__ = ["Report", "main", "soak"]

_NAMES = ("eu", "us", "ap", "sa", "af")
_AT_ONCE = 2
"""Faults that are not healed yet, at most, when another one strikes."""
_HEALED_WITHIN = 180.0
_FLAGS = {
    "compaction-interval": "1s",
    "compaction-grace": "1s",
    "reconcile-timeout": "10s",
    "stop-timeout": "2s",
    # Half a dozen processes share the machine: none is silent because it had to wait for its turn.
    "replication-heartbeat": "500ms",
    "replication-silence": "6s",
}
_NEVER = "one dot has two contents: some replica is at fault"
"""An operator can act on it, but no fault of a soak may bring it about."""
_SILENCES = {"never": "7d", "soon": "15s"}
"""When a member that is away is waited for no more, by name."""


@dataclass
class Report:
    """What happened, and what is wrong."""

    seed: int
    replicas: int
    silence: str
    struck: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    forgotten: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    converged_after: float = 0.0
    """Seconds from the last fault to equal digests."""
    violations: list[str] = field(default_factory=list)

    def text(self) -> str:
        """In some lines."""
        faults = ", ".join(f"{count} × {name}" for name, count in sorted(self.struck.items()))
        refused = ", ".join(f"{count} × {name}" for name, count in sorted(self.refused.items()))
        return "\n".join(
            (
                f"seed {self.seed}, {self.replicas} replicas, silent members given up: {self.silence}",
                f"faults: {faults}",
                f"writes: {self.acknowledged} acknowledged, {self.forgotten} of them forgets for good",
                f"refused meanwhile: {refused or 'nothing'}",
                f"converged {self.converged_after:.1f} s after the last fault was healed",
                *self.violations,
            )
        )


def soak(
    folder: Path,
    seconds: float,
    replicas: int,
    seed: int,
    *,
    say: Callable[[str], None] = lambda _: None,
    injectors: Mapping[str, Callable[[Stage, str], Strike | None]] = INJECTORS,
    pause: float = 0.05,
) -> Report:
    """Run it for so long, and judge. What replicas logged is left in the folder."""
    chance = random.Random(seed)
    silence = chance.choice(sorted(_SILENCES))
    report = Report(seed, replicas, silence)
    flags = {**_FLAGS, "compaction-max-silence": _SILENCES[silence]}
    ledger = Ledger()
    copies = folder / "copies"
    copies.mkdir()
    with Fleet(folder, _NAMES[:replicas], flags, stepped="clock step" in injectors) as fleet:
        fleet.start()
        load = Load(fleet, ledger, seed, pause)
        stage = Stage(fleet, load, ledger, chance, copies)
        load.start()
        try:
            _strike(stage, report, time.monotonic() + seconds, say, injectors)
        finally:
            load.stop()
        healed = time.monotonic()
        try:
            fleet.until_connected()
            fleet.until_agreed(_HEALED_WITHIN)
            report.converged_after = time.monotonic() - healed
            _judge(fleet, ledger, report)
            # What a purge drops must not come back, either.
            for member in fleet.running:
                member.client.compact()
            fleet.until_agreed(_HEALED_WITHIN)
            _judge(fleet, ledger, report)
        except AssertionError as error:
            report.violations.append(f"after everything was healed: {error}")
        report.violations += load.unexpected + fleet.unexplained()
        report.violations += [
            f"{member.cluster}: {line}"
            for member in fleet.running
            for line in fleet.logged(member.cluster, _NEVER)
        ]
        report.acknowledged, report.forgotten = ledger.acknowledged, ledger.forgotten
        report.refused = load.refusals
    return report


def _strike(
    stage: Stage,
    report: Report,
    ends: float,
    say: Callable[[str], None],
    injectors: Mapping[str, Callable[[Stage, str], Strike | None]],
) -> None:
    """Let faults strike until the time is up, and heal what is left."""
    chance, begun = stage.chance, time.monotonic()
    open: list[tuple[float, str, Strike]] = []

    def heal(until_then: float) -> None:
        for due, what, strike in sorted(open, key=lambda each: each[0]):
            if due <= until_then:
                open.remove((due, what, strike))
                say(f"{time.monotonic() - begun:7.1f} s  healed  {what}")
                strike.heal()
                if strike.holds is not None:
                    stage.held.discard(strike.holds)

    try:
        while time.monotonic() < ends:
            time.sleep(chance.uniform(0.1, 1.0))
            heal(time.monotonic())
            free = [cluster for cluster in stage.fleet.clusters if cluster not in stage.held]
            if len(open) >= _AT_ONCE or not free:
                continue
            name, cluster = chance.choice(list(injectors)), chance.choice(free)
            strike = injectors[name](stage, cluster)
            if strike is None:
                continue
            report.struck[name] += 1
            say(f"{time.monotonic() - begun:7.1f} s  {name}: {cluster}")
            open.append((time.monotonic() + chance.uniform(0.5, 6.0), f"{name}: {cluster}", strike))
            if strike.holds is not None:
                stage.held.add(strike.holds)
    finally:
        heal(float("inf"))
        stage.fleet.links.heal()


def _judge(fleet: Fleet, ledger: Ledger, report: Report) -> None:
    def whole() -> bool:
        digests = [member.client.get_range_digests([KeyRange()]) for member in fleet.running]
        return not any(part.damaged for digest in digests for part in digest.parts)

    until("every damaged row is healed", whole)
    for member in fleet.running:
        found = {entry.key: entry for entry in member.client.scan(REPO)}
        violations = list(ledger.violations(found, now_ms(), expiring=report.silence == "never"))
        report.violations += [f"{member.cluster}: {each}" for each in violations[:20]]


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition("..")
    span = int(low), int(high or low)
    if not 2 <= span[0] <= span[1] <= len(_NAMES):
        raise argparse.ArgumentTypeError(f"must be from 2 to {len(_NAMES)}")
    return span


def main() -> int:
    """The command line. 0: nothing is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.soak", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--replicas", type=_span, default=(3, 5), metavar="N|LOW..HIGH")
    parser.add_argument("--seed", type=int, default=None, help="any; one is made up and shown unless given")
    parser.add_argument("--fault", action="append", choices=sorted(INJECTORS), help="only these; repeatable")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 30)
    replicas = random.Random(f"replicas {seed}").randint(*given.replicas)
    folder = Path(tempfile.mkdtemp(prefix="ricordo-soak-"))
    print(f"seed {seed}, {replicas} replicas, logs in {folder}", flush=True)
    report = soak(
        folder,
        given.minutes * 60,
        replicas,
        seed,
        say=lambda line: print(line, flush=True),
        injectors={name: INJECTORS[name] for name in given.fault or INJECTORS},
    )
    print(report.text())
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
