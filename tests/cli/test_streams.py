"""A process needs none of the standard streams: they may be closed, or on a disk that is full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND, Run, Served, environment, process


@pytest.mark.parametrize(
    ("closed", "command", "code", "said"),
    [
        ("<&-", ("remember", "repo/a/mem/b/c", "--body-file", "-"), 1, "Bad file descriptor"),
        ("<&-", ("import", "-"), 1, "Bad file descriptor"),
        (">&-", ("repos",), 1, "Bad file descriptor"),
        (">&-", ("export", "--json"), 1, "Bad file descriptor"),
        (">/dev/full", ("--help",), 1, "No space left on device"),
        ("2>&-", ("recall", "repo/a/mem/b/absent"), 3, ""),
        ("2>/dev/full", ("recall", "repo/a/mem/b/absent"), 3, ""),
        ("<&- >&- 2>&-", ("recall", "repo/a/mem/b/absent"), 3, ""),
    ],
)
def test_it_needs_no_standard_streams(
    served: Served, ricordo: Run, tmp_path: Path, closed: str, command: tuple[str, ...], code: int, said: str
) -> None:
    ricordo("remember", "repo/a/mem/b/here", "--title", "something to show")
    ended = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {closed}', "sh", *COMMAND, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
        env=environment(tmp_path, RICORDO_ADDRESS=served.address),
    )
    error = ended.stderr.decode()
    assert (ended.returncode, said in error, "Traceback" in error) == (code, True, False), error


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "2>/dev/full", "2>&- <&-"])
def test_a_replica_serves_without_standard_streams(tmp_path: Path, closed: str) -> None:
    flags = ("--data-dir", "data", "--listen", "127.0.0.1:0", "--replication-listen", "127.0.0.1:0")
    with subprocess.Popen(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, "serve", *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(tmp_path, PYTHONPATH=os.pathsep.join(filter(None, sys.path))),
    ) as serving:
        assert serving.stdout is not None
        address = json.loads(serving.stdout.readline())["listen"]
        kept = process(("remember", "repo/a/mem/b/c", "--title", "x"), home=tmp_path, address=address)
        serving.terminate()
        assert (kept.code, serving.wait(30)) == (0, 0)
