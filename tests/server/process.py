"""A replica in a process of its own, started by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import IO

import grpc

from replica.wire.admin_pb2_grpc import AdminStub
from replica.wire.memory_pb2_grpc import MemoryStub
from tests.server.served import QUICK

__all__ = ["Process", "run_to_its_end"]

_SERVE = [sys.executable, "-c", "import sys; from replica.cli.app import main; sys.exit(main())", "serve"]


def _flags(folder: Path, given: dict[str, str]) -> list[str]:
    quick = {key.replace(".", "-").replace("_", "-"): value for key, value in QUICK.items()}
    everything = {
        "data-dir": str(folder),
        "cluster": "eu",
        "listen": "127.0.0.1:0",
        "replication-listen": "127.0.0.1:0",
        **quick,
        **{name.replace("_", "-"): value for name, value in given.items()},
    }
    return [f"--{name}={value}" for name, value in everything.items()]


def run_to_its_end(folder: Path, **flags: str) -> subprocess.CompletedProcess[str]:
    """A `ricordo serve` that is expected to end by itself."""
    return subprocess.run(
        [*_SERVE, *_flags(folder, flags)], capture_output=True, text=True, timeout=60, check=False
    )


class Process:
    """A `ricordo serve`; it is killed when its block ends, if it still runs then."""

    def __init__(self, folder: Path, **flags: str) -> None:
        """Start it, and wait until it says that it serves."""
        self._process = subprocess.Popen(
            [*_SERVE, *_flags(folder, flags)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        line = self._pipe(self._process.stdout).readline()
        assert line, self._pipe(self._process.stderr).read()
        self.announced = json.loads(line)
        self.pid = self._process.pid
        self.channel = grpc.insecure_channel(self.announced["listen"])
        self.memory = MemoryStub(self.channel)
        self.admin = AdminStub(self.channel)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()
        self._process.kill()
        self._process.communicate()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def ended(self) -> tuple[int, list[dict[str, object]]]:
        """Its exit code, and what it logged."""
        _, logged = self._process.communicate(timeout=60)
        return self._process.returncode, [json.loads(line) for line in logged.splitlines()]
