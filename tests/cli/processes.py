"""Replicas and command lines as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-c", "import sys; from replica.cli.app import main; sys.exit(main())")
"""`ricordo`, of the sources under test."""


def environment(home: Path, **more: str) -> dict[str, str]:
    """The variables of this process without those that Ricordo reads, and no user's configuration file."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RICORDO_")}
    return kept | {"XDG_CONFIG_HOME": str(home), "XDG_DATA_HOME": str(home), "COLUMNS": "100"} | more


@dataclass
class Served:
    """A running `ricordo serve`."""

    process: subprocess.Popen[bytes]
    address: str
    replication: str
    facts: dict[str, Any]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal it and wait for its end."""
        self.process.send_signal(number)
        return self.process.wait(30)


Serve = Callable[..., Served]


def start(home: Path, *flags: str, listen: str = "127.0.0.1:0", **more: str) -> Served:
    """Serve a replica on free ports, with its data below `home` unless a flag says otherwise."""
    process = subprocess.Popen(
        [
            *COMMAND,
            "serve",
            *("--data-dir", str(home / "data"), "--listen", listen, "--replication-listen", "127.0.0.1:0"),
            *flags,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=(home / "log").open("ab"),
        env=environment(home, **more),
    )
    assert process.stdout is not None
    announced = process.stdout.readline()
    if not announced:
        process.wait(30)
        raise AssertionError(f"it did not start: {(home / 'log').read_text()}")
    facts = json.loads(announced)
    return Served(process, facts["listen"], facts["replication_listen"], facts)


@dataclass(frozen=True)
class Ended:
    """A command line that ended."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def error(self) -> str:
        return self.err.decode()

    @property
    def lines(self) -> list[Any]:
        """Standard output, each line read as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def value(self) -> Any:  # noqa: ANN401 - whatever the JSON is
        """The one JSON object on standard output."""
        (line,) = self.lines
        return line

    def complaint(self, code: int) -> str:
        """Standard error, if the command ended with this code and said why in one line."""
        assert self.code == code, self.err
        (line,) = self.error.splitlines()
        assert line.startswith("ricordo: ")
        return line


Run = Callable[..., Ended]


def process(
    arguments: Sequence[str], *, home: Path, address: str = "", stdin: bytes | int | None = None, **more: str
) -> Ended:
    """Runs a command line as a process of its own; `stdin` is what comes down its pipe, or a file."""
    if address:
        more["RICORDO_ADDRESS"] = address
    given: dict[str, Any] = (
        {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin or subprocess.DEVNULL}
    )
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        timeout=60,
        check=False,
        env=environment(home, **more),
        **given,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def write_lines(path: Path, *lines: dict[str, Any] | bytes) -> Path:
    """A file of lines: JSON objects, or bytes as they are."""
    encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"".join(line + b"\n" for line in encoded))
    return path
