"""A real replica in a process of its own, and the command line called in this one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from replica.cli.app import main
from tests.cli.processes import Ended, Run, Serve, Served, start


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One replica for all tests that leave it alone: each works in a repository of its own."""
    running = start(tmp_path_factory.mktemp("served"), "--cluster", "eu")
    yield running
    assert running.stop() == 0


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts replicas that a test may end as it likes."""
    started: list[Served] = []

    def begin(*flags: str, home: Path = tmp_path, listen: str = "127.0.0.1:0", **more: str) -> Served:
        started.append(start(home, *flags, listen=listen, **more))
        return started[-1]

    yield begin
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait(30)
        assert running.process.stdout is not None
        running.process.stdout.close()


@pytest.fixture
def repo() -> str:
    """A repository that no other test uses."""
    return f"repo-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def ricordo(
    served: Served, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs a command line in this process, against the replica of the session."""
    monkeypatch.setenv("RICORDO_ADDRESS", served.address)

    def run(*arguments: str) -> Ended:
        capsysbinary.readouterr()
        code = main(arguments)
        return Ended(code, *capsysbinary.readouterr())

    return run
