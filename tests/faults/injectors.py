"""The faults of the soak, by name: how each strikes a replica, and how it is healed.

A fault that destroys data may only destroy what another replica has on disk, else its loss would be nobody's
mistake: before it strikes, the victim writes no more, and a healthy peer has acknowledged its whole log.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from replica.client import KeyRange, RicordoError
from tests.faults import clocks, deaths, disks
from tests.faults.fleet import Fleet, until
from tests.faults.ledger import Ledger
from tests.faults.links import Pair
from tests.faults.load import REPO, Load

__all__ = ["INJECTORS", "Injector", "Stage", "Strike"]

_SETTLES_WITHIN = 8.0
_BARRIER = f"repo/{REPO}/mem/barrier/"


@dataclass(frozen=True)
class Strike:
    """A fault that has struck."""

    heal: Callable[[], None]
    """Takes it back."""
    holds: str | None = None
    """The cluster to whose process nothing else is to happen until then."""


@dataclass
class Stage:
    """Where the faults strike."""

    fleet: Fleet
    load: Load
    ledger: Ledger
    chance: random.Random
    copies: Path
    """Where copies of data directories lie, by cluster."""
    barriers: int = 0
    held: set[str] = field(default_factory=set)
    """Clusters whose process something has happened to that is not healed."""

    def settled(self, cluster: str) -> bool:
        """Whether a healthy peer has on disk all that this replica has, which writes nothing meanwhile."""
        member = self.fleet[cluster]
        self.barriers += 1
        id = f"{self.barriers}"
        self.ledger.sending(_BARRIER + id, id)
        try:
            member.client.remember(REPO, "barrier", id=id, title=id)
            sequence = member.client.get_status().sequence
            ends = time.monotonic() + _SETTLES_WITHIN
            while time.monotonic() < ends:
                for peer in member.client.get_status().peers:
                    if (peer.acknowledged or 0) >= sequence and self._healthy(peer.cluster):
                        return True
                time.sleep(0.1)
        except RicordoError:
            pass  # It is full, or does not answer: then nothing is destroyed this time.
        return False

    def _healthy(self, cluster: str) -> bool:
        member = self.fleet[cluster]
        if cluster in self.held or not member.running:
            return False
        return not any(part.damaged for part in member.client.get_range_digests([KeyRange()]).parts)

    def pairs(self, cluster: str) -> tuple[Pair, ...]:
        """Some of the links of a cluster: all, those with one peer, or one direction of them."""
        other = self.chance.choice([each for each in self.fleet.clusters if each != cluster])
        both = self.fleet.links.between(cluster, other)
        return self.chance.choice([self.fleet.links.of(cluster), both, both[:1], both[1:]])

    def restart(self, cluster: str) -> None:
        """Start it again, if it does not run."""
        if not self.fleet[cluster].running:
            self.fleet.start(cluster)


Injector = Callable[[Stage, str], Strike | None]
"""Strikes a cluster; None: not this time."""


def _cut(stage: Stage, cluster: str) -> Strike:
    pairs = stage.pairs(cluster)
    stage.fleet.links.cut(pairs)
    return Strike(lambda: stage.fleet.links.heal(pairs))


def _late(stage: Stage, cluster: str) -> Strike:
    pairs = stage.pairs(cluster)
    stage.fleet.links.delay(pairs, stage.chance.uniform(0.05, 0.6))
    return Strike(lambda: stage.fleet.links.heal(pairs))


def _slow(stage: Stage, cluster: str) -> Strike:
    pairs = stage.pairs(cluster)
    stage.fleet.links.slow(pairs, stage.chance.uniform(2_000, 100_000))
    return Strike(lambda: stage.fleet.links.heal(pairs))


def _half_open(stage: Stage, cluster: str) -> Strike:
    pairs = stage.pairs(cluster)
    stage.fleet.links.stall(pairs)
    return Strike(lambda: stage.fleet.links.heal(pairs))


def _torn(stage: Stage, cluster: str) -> Strike:
    """Connections are reset while others are late: what comes over the new one may be first."""
    pairs = stage.pairs(cluster)
    stage.fleet.links.delay(pairs, 0.2)
    for _ in range(3):
        stage.fleet.links.break_connections(pairs)
        time.sleep(stage.chance.uniform(0.05, 0.3))
    return Strike(lambda: stage.fleet.links.heal(pairs))


def _hang(stage: Stage, cluster: str) -> Strike:
    member = stage.fleet[cluster]
    member.freeze()
    return Strike(member.thaw, cluster)


def _restart(stage: Stage, cluster: str) -> Strike:
    stage.fleet.stop(cluster)
    return Strike(lambda: stage.restart(cluster), cluster)


def _kill(stage: Stage, cluster: str) -> Strike:
    stage.fleet.kill(cluster)
    # It costs nothing to keep what is there for an earlier copy.
    disks.copy(stage.fleet[cluster].data, stage.copies / cluster)
    return Strike(lambda: stage.restart(cluster), cluster)


def _kill_in_a_commit(stage: Stage, cluster: str) -> Strike:
    member = stage.fleet[cluster]
    deaths.kill_while_writing(member.pid, member.data, 0.5)
    stage.fleet.kill(cluster)
    return Strike(lambda: stage.restart(cluster), cluster)


def _full_disk(stage: Stage, cluster: str) -> Strike:
    member = stage.fleet[cluster]
    pid = member.pid
    disks.leave_no_room(pid, member.data)

    def heal() -> None:
        with suppress(ProcessLookupError):
            disks.make_room(pid)

    return Strike(heal, cluster)


def _earlier_copy(stage: Stage, cluster: str) -> Strike | None:
    """With or without its peers in reach, it writes at once."""
    copy = stage.copies / cluster
    if not copy.exists():
        return None
    with stage.load.writers[cluster].hold():
        if not stage.settled(cluster):
            return None
        stage.fleet.kill(cluster)
        disks.roll_back(stage.fleet[cluster].data, copy)
        pairs = stage.fleet.links.of(cluster) if stage.chance.random() < 0.5 else ()
        stage.fleet.links.cut(pairs)
        stage.fleet.start(cluster)
    return Strike(lambda: stage.fleet.links.heal(pairs), cluster)


def _lost_directory(stage: Stage, cluster: str) -> Strike | None:
    with stage.load.writers[cluster].hold():
        if not stage.settled(cluster):
            return None
        stage.fleet.kill(cluster)
        shutil.rmtree(stage.fleet[cluster].data)
        stage.fleet.start(cluster)
    return Strike(lambda: None, cluster)


def _killed_while_catching_up(stage: Stage, cluster: str) -> Strike | None:
    """A lost directory, over slow links, and then a kill in the middle of what fills it again."""
    slowed = stage.fleet.links.of(cluster)
    if _lost_directory(stage, cluster) is None:
        return None
    stage.fleet.links.slow(slowed, 50_000)
    member = stage.fleet[cluster]

    def received() -> bool:
        return any((peer.received_changes or 0) > 0 for peer in member.client.get_status().peers)

    with suppress(AssertionError):
        until("it receives something", received, 5.0)
    stage.fleet.kill(cluster)
    stage.fleet.links.heal(slowed)
    return Strike(lambda: stage.restart(cluster), cluster)


def _damaged_row(stage: Stage, cluster: str) -> Strike | None:
    member = stage.fleet[cluster]
    with stage.load.writers[cluster].hold():
        if not stage.settled(cluster):
            return None
        entries = [entry for entry in member.client.scan(REPO, "notes") if entry.title]
        if not entries:
            return None
        chosen = stage.chance.choice(entries)
        stage.fleet.kill(cluster)
        disks.damage_row(member.data, chosen.key, chosen.title)
        stage.fleet.start(cluster)
    with suppress(RicordoError):
        member.client.recall(chosen.key)
    return Strike(lambda: None, cluster)


def _clock_step(stage: Stage, cluster: str) -> Strike | None:
    clock = stage.fleet[cluster].clock
    if clock is None:
        return None
    clock.step(stage.chance.choice((-1, 1)) * stage.chance.randrange(600, 8 * 3600))
    return Strike(lambda: clock.step(0))


INJECTORS: Mapping[str, Injector] = {
    "cut link": _cut,
    "late link": _late,
    "slow link": _slow,
    "half-open link": _half_open,
    "torn link": _torn,
    "process that hangs": _hang,
    "restart": _restart,
    "kill": _kill,
    "kill in a commit": _kill_in_a_commit,
    "kill while catching up": _killed_while_catching_up,
    "full disk": _full_disk,
    "earlier copy": _earlier_copy,
    "lost directory": _lost_directory,
    "damaged row": _damaged_row,
    **({"clock step": _clock_step} if clocks.LIBRARY is not None else {}),
}
