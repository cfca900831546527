"""A replica as a process that dies and comes back, on a data directory that much may befall meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from replica.client import Client, Retry
from tests.faults.clocks import SteppedClock

__all__ = ["DidNotServe", "Member"]

_SERVES_WITHIN = 60.0
_STOPS_WITHIN = 30.0
_COMMAND = [sys.executable, "-c", "import sys; from replica.cli.app import main; sys.exit(main())", "serve"]


class DidNotServe(Exception):
    """A replica ended before it served; the text is the end of its log."""


class Member:
    """One replica of a fleet. It is not running until :meth:`start`."""

    def __init__(
        self,
        cluster: str,
        data: Path,
        log: Path,
        flags: Mapping[str, str],
        peers: Mapping[str, str],
        clock: SteppedClock | None = None,
    ) -> None:
        self.cluster = cluster
        self.data = data
        self.log = log
        self.flags = dict(flags)
        self.peers = dict(peers)
        self.clock = clock
        self._process: subprocess.Popen[str] | None = None
        self._client: Client | None = None
        self.listen = ""
        """As bound by the life that runs."""
        self.replication_listen = ""
        """Likewise."""

    @property
    def running(self) -> bool:
        """Whether there is a process, be it one that was stopped with a signal."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def client(self) -> Client:
        """A client of the life that runs."""
        assert self._client is not None, f"{self.cluster} is not running"
        return self._client

    def start(self) -> None:
        """Start it and wait until it serves. Raises DidNotServe."""
        self.spawn()
        self.await_serving()

    def spawn(self) -> None:
        """Start it."""
        assert not self.running
        options = [
            f"--cluster={self.cluster}",
            f"--data-dir={self.data}",
            "--listen=127.0.0.1:0",
            "--replication-listen=127.0.0.1:0",
            "--log-format=json",
            *(f"--{name}={value}" for name, value in self.flags.items()),
            *(f"--peer={name}={address}" for name, address in self.peers.items()),
        ]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RICORDO_")}
        faked = {} if self.clock is None else self.clock.environment()
        nothing = self.log.with_suffix(".toml")
        nothing.touch()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_COMMAND, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**kept, "RICORDO_CONFIG": str(nothing), **faked},
                text=True,
            )

    def await_serving(self) -> None:
        """Wait until it serves. Raises DidNotServe."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        # A start that hangs ends here, and with it the reading.
        overdue = threading.Timer(_SERVES_WITHIN, process.kill)
        overdue.start()
        line = process.stdout.readline()
        overdue.cancel()
        if not line:
            process.wait(_STOPS_WITHIN)
            raise DidNotServe(f"{self.cluster}: {self.last_words()}")
        said = json.loads(line)
        self.listen, self.replication_listen = said["listen"], said["replication_listen"]
        self._client = Client(self.listen, retry=Retry(deadline=20.0, attempt_timeout=5.0))

    def stop(self) -> None:
        """Stop it in order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(_STOPS_WITHIN)
        self._bury()
        assert code == 0, f"{self.cluster} ended with {code}: {self.last_words()}"

    def kill(self) -> None:
        """End it as a power failure would, but for the disk."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOPS_WITHIN)
            self._bury()

    def freeze(self) -> None:
        """Let it do nothing: its sockets stay, and nobody is at home."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def last_words(self) -> str:
        """The end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "its log is empty"

    def _bury(self) -> None:
        assert self._process is not None
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._client is not None:
            self._client.close()
            self._client = None
