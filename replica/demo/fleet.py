"""The fleet of the demo: three processes of `ricordo serve`, and what is awaited of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from replica.client import Client, Digest, Retry
from replica.demo.links import Links

__all__ = ["CLUSTERS", "DemoError", "Fleet", "Member", "now_ms", "ricordo"]

CLUSTERS = ("eu", "us", "ap")

_STARTED_WITHIN = 30.0
_STOPPED_WITHIN = 15.0
_WITHIN = 20.0
"""Seconds that anything else may take on a busy machine."""
_POLL = 0.05

_QUICK = (
    ("--replication-heartbeat", "500ms"),
    ("--replication-silence", "5s"),
    ("--replication-backoff", "50ms"),
    ("--replication-backoff-max", "500ms"),
)
"""A tour is short: a replica is to notice in moments what in earnest may take it half a minute."""


class DemoError(Exception):
    """Something does not hold that the demo tells; the message says what."""


def ricordo(*arguments: str) -> list[str]:
    """The command line `ricordo` as a process of this very Python."""
    return [
        sys.executable,
        "-c",
        "import sys; from replica.cli.app import main; sys.exit(main())",
        *arguments,
    ]


def now_ms() -> int:
    """The time of this machine, which all three replicas share."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Member:
    """A replica that serves."""

    cluster: str
    process: subprocess.Popen[str]
    address: str
    client: Client


class Fleet(AbstractContextManager["Fleet"]):
    """Three replicas, each a peer of the other two. They end with the block, however it ends."""

    def __init__(self, folder: Path, links: Links) -> None:
        self.links = links
        self._folder = folder
        self._members: dict[str, Member] = {}
        self._ending = ExitStack()

    def __enter__(self) -> Fleet:
        with self._ending:
            (self._folder / "empty.toml").touch()
            started = {cluster: self._start(cluster) for cluster in CLUSTERS}
            with ThreadPoolExecutor(len(CLUSTERS)) as readers:
                lines = {name: readers.submit(_first_line, process) for name, process in started.items()}
                try:
                    said = {name: line.result(_STARTED_WITHIN) for name, line in lines.items()}
                except BaseException as error:
                    for process in started.values():
                        process.kill()
                    if isinstance(error, TimeoutError):
                        raise DemoError(f"no replica serves within {_STARTED_WITHIN:g} seconds") from None
                    raise
            for cluster, process in started.items():
                self._members[cluster] = self._welcome(cluster, process, said[cluster])
            self._ending = self._ending.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def __getitem__(self, cluster: str) -> Member:
        return self._members[cluster]

    def environment(self, **variables: str) -> Mapping[str, str]:
        """That of this process, without what would configure a replica or a command."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RICORDO_")}
        return kept | {"RICORDO_CONFIG": str(self._folder / "empty.toml")} | variables

    def _start(self, cluster: str) -> subprocess.Popen[str]:
        options = ["--cluster", cluster, "--data-dir", str(self._folder / cluster), "--log-format", "json"]
        options += ["--listen", "127.0.0.1:0", "--replication-listen", "127.0.0.1:0"]
        for other in CLUSTERS:
            if other != cluster:
                options += ["--peer", f"{other}={self.links.address(cluster, other)}"]
        options += [word for pair in _QUICK for word in pair]
        with self._log(cluster).open("wb") as log:
            process = subprocess.Popen(
                ricordo("serve", *options),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.environment(),
                text=True,
                # Ctrl-C is for the demo: it ends its replicas itself, in order.
                start_new_session=True,
            )
        self._ending.callback(_end, process)
        return process

    def _welcome(self, cluster: str, process: subprocess.Popen[str], line: str) -> Member:
        """The member that a replica's announcement tells of."""
        if not line:
            raise DemoError(f"the replica of {cluster} did not start: {self.last_words(cluster)}")
        said = json.loads(line)
        self.links.lead_to(cluster, said["replication_listen"])
        client = self._ending.enter_context(Client(said["listen"], retry=Retry(deadline=10.0)))
        return Member(cluster, process, said["listen"], client)

    def _log(self, cluster: str) -> Path:
        return self._folder / f"{cluster}.log"

    def last_words(self, cluster: str) -> str:
        """The end of a replica's log."""
        lines = self._log(cluster).read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "its log is empty"

    def wait(self, what: str, condition: Callable[[], bool], within: float = _WITHIN) -> float:
        """Wait until something holds, and return how many seconds that took.

        Raises DemoError where it does not in time, or where a replica has ended.
        """
        begun = time.monotonic()
        while not condition():
            for member in self._members.values():
                if member.process.poll() is not None:
                    words = self.last_words(member.cluster)
                    raise DemoError(f"the replica of {member.cluster} has ended: {words}")
            if time.monotonic() - begun > within:
                words = "".join(f"\n  {name}: {self.last_words(name)}" for name in self._members)
                raise DemoError(f"not within {within:g} seconds: {what}; the logs end with{words}")
            time.sleep(_POLL)
        return time.monotonic() - begun

    def digests(self, at_ms: int) -> dict[str, Digest]:
        """The digest of each cluster as of one moment."""
        return {name: member.client.get_digest(at_ms=at_ms) for name, member in self._members.items()}

    def agree(self, at_ms: int | None = None) -> bool:
        """All clusters hold the same as of one moment, or now."""
        digests = self.digests(now_ms() if at_ms is None else at_ms)
        return len({digest.digest for digest in digests.values()}) == 1

    def connected(self, clusters: Sequence[str] = CLUSTERS) -> bool:
        """Each of these pulls from every peer."""
        return all(peer.connected for name in clusters for peer in self[name].client.get_status().peers)


def _first_line(process: subprocess.Popen[str]) -> str:
    """What a replica says of itself when it serves; empty when it ended without a word."""
    assert process.stdout is not None, "it was made with a pipe"
    return process.stdout.readline()


def _end(process: subprocess.Popen[str]) -> None:
    """Stop a replica in order, or else by force."""
    process.terminate()
    try:
        process.wait(_STOPPED_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
