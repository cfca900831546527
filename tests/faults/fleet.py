"""A fleet of real replicas whose links, disks and clocks can fail, and what is awaited of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from replica.client import Digest, PeerStatus, RicordoError
from tests.faults import clocks, logs
from tests.faults.clocks import SteppedClock
from tests.faults.links import Links
from tests.faults.member import Member

__all__ = ["QUICK", "Fleet", "now_ms", "until"]

QUICK: Mapping[str, str] = {
    "replication-heartbeat": "200ms",
    "replication-silence": "3s",
    "replication-backoff": "20ms",
    "replication-backoff-max": "300ms",
    "replication-ask-timeout": "1s",
}
"""So that no test waits long for what takes seconds in earnest."""

WITHIN = 60.0
"""Seconds that anything may take on a busy machine: a bound on the wait, not a claim about speed."""
_LOOK = 0.05


def now_ms() -> int:
    """The true time, in milliseconds."""
    return time.time_ns() // 1_000_000


def until(what: str, holds: Callable[[], bool], within: float = WITHIN) -> None:
    """Wait until something holds."""
    ends = time.monotonic() + within
    while not holds():
        assert time.monotonic() < ends, f"not within {within:g} s: {what}"
        time.sleep(_LOOK)


class Fleet:
    """Replicas by cluster, each a peer of all others. What runs is killed when the block ends."""

    def __init__(
        self,
        folder: Path,
        clusters: Iterable[str],
        flags: Mapping[str, str] | None = None,
        *,
        stepped: bool = False,
        homes: Mapping[str, Path] | None = None,
    ) -> None:
        """``stepped``: their clocks can be. ``homes``: where data lives, unless in ``folder``."""
        self.folder = folder
        self.clusters = tuple(clusters)
        self.links = Links(self.clusters)
        self._flags = {**QUICK, **(flags or {})}
        self._stepped = stepped
        self._homes = homes or {}
        self._members: dict[str, Member] = {}
        self._ending = ExitStack()

    def __enter__(self) -> Fleet:
        self._ending.enter_context(self.links)
        for cluster in self.clusters:
            self._members[cluster] = self._made(cluster)
            self._ending.callback(self._members[cluster].kill)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def __getitem__(self, cluster: str) -> Member:
        return self._members[cluster]

    def _made(self, cluster: str) -> Member:
        stepped = self._stepped and clocks.LIBRARY is not None
        return Member(
            cluster,
            self._homes.get(cluster, self.folder / cluster),
            self.folder / f"{cluster}.log",
            self._flags,
            {other: self.links.address(cluster, other) for other in self.clusters if other != cluster},
            SteppedClock(self.folder / f"{cluster}.clock") if stepped else None,
        )

    def copy_of(self, cluster: str, data: Path) -> Member:
        """Another replica of a cluster, with its peers, on another directory: nobody pulls from it."""
        known = self._members[cluster]
        copy = Member(cluster, data, self.folder / f"{data.name}.log", known.flags, known.peers)
        self._ending.callback(copy.kill)
        return copy

    @property
    def running(self) -> list[Member]:
        """Those that have a process."""
        return [member for member in self._members.values() if member.running]

    def start(self, *clusters: str) -> None:
        """Start these, or all, at the same time; each as soon as it serves can be reached by the others."""
        chosen = [self._members[cluster] for cluster in clusters or self.clusters]
        for member in chosen:
            member.spawn()
        for member in chosen:
            member.await_serving()
            self.links.lead_to(member.cluster, member.replication_listen)

    def kill(self, cluster: str) -> None:
        """kill -9; nobody is there afterwards."""
        self.links.lead_to(cluster, None)
        self._members[cluster].kill()

    def stop(self, cluster: str) -> None:
        """Stop it in order."""
        self._members[cluster].stop()
        self.links.lead_to(cluster, None)

    # --- what is awaited

    def peer(self, cluster: str, of: str) -> PeerStatus | None:
        """How ``cluster`` sees its peer ``of``; none while it cannot say."""
        try:
            peers = self._members[cluster].client.get_status().peers
        except RicordoError:
            return None
        return next((peer for peer in peers if peer.cluster == of), None)

    def until_peer(self, cluster: str, of: str, what: str, holds: Callable[[PeerStatus], bool]) -> PeerStatus:
        """How ``cluster`` sees its peer ``of``, once something holds of it."""
        found: list[PeerStatus] = []

        def look() -> bool:
            peer = self.peer(cluster, of)
            if peer is None or not holds(peer):
                return False
            found.append(peer)
            return True

        until(f"{cluster} sees {of} {what}", look)
        return found[0]

    def until_connected(self) -> None:
        """Wait until each replica that runs pulls from every other one that runs."""
        there = {member.cluster for member in self.running}

        def connected() -> bool:
            return all(
                peer.connected
                for member in self.running
                for peer in member.client.get_status().peers
                if peer.cluster in there
            )

        until("everyone is connected", connected)

    def digests(self, at: int) -> dict[str, Digest]:
        """The digest of each that runs, as of one moment."""
        return {member.cluster: member.client.get_digest(at_ms=at) for member in self.running}

    def until_agreed(self, within: float = WITHIN) -> None:
        """Wait until all that run hold the same."""
        at = now_ms()

        def agreed() -> bool:
            return len({digest.digest for digest in self.digests(at).values()}) == 1

        until("all hold the same", agreed, within)

    def unexplained(self) -> list[str]:
        """What was logged as an error, and tells an operator nothing to do."""
        return [
            f"{log.stem}: {line}"
            for log in sorted(self.folder.glob("*.log"))
            for line in logs.unexplained(log)
        ]

    def logged(self, cluster: str, event: str) -> list[dict[str, object]]:
        """Every line of a replica's log with this event."""
        return [line for line in logs.lines(self._members[cluster].log) if line.get("event") == event]
