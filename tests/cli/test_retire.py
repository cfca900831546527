"""Retiring a member: who is asked, what is said, and what becomes of it."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND, Run, Serve, Served, environment, process


@pytest.fixture
def eu(serve: Serve) -> Served:
    """A replica that has heard of `ap`, which was never there."""
    return serve("--cluster", "eu", "--peer", "ap=127.0.0.1:1")


def answered(arguments: list[str], answer: bytes, home: Path, address: str) -> tuple[int, str]:
    """The exit code of a command on a terminal that asks, and all that was shown."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(home, RICORDO_ADDRESS=address),
    ) as running:
        os.close(theirs)
        seen = b""
        while True:
            try:
                read = os.read(ours, 4096)
            except OSError:  # Linux says so when the last process has closed the other end.
                break
            seen += read
            if answer and b"[y/N]" in seen:
                os.write(ours, answer)
                answer = b""
    os.close(ours)
    return running.returncode, seen.decode()


def state(ricordo: Run, served: Served, cluster: str) -> str:
    status = ricordo("status", "--json", "--address", served.address).value
    (member,) = (each for each in status["members"] if each["cluster"] == cluster)
    found: str = member["state"]
    return found


def test_on_a_terminal_it_asks_and_takes_no_for_an_answer(eu: Served, ricordo: Run, tmp_path: Path) -> None:
    code, seen = answered(["peers", "retire", "ap"], b"n\n", tmp_path, eu.address)
    assert code == 1
    assert "ap was never heard. Retiring it is for good" in seen
    assert "nothing was changed" in seen
    assert state(ricordo, eu, "ap") == "active"
    code, seen = answered(["peers", "retire", "ap"], b"y\n", tmp_path, eu.address)
    assert code == 0
    assert "retired: ap; no purge waits for it" in seen
    assert state(ricordo, eu, "ap") == "retired"


def test_where_nobody_can_be_asked_it_wants_to_be_told(eu: Served, ricordo: Run, tmp_path: Path) -> None:
    refused = process(("peers", "retire", "ap"), home=tmp_path, address=eu.address)
    assert "--yes: must be given where nobody can be asked" in refused.complaint(2)
    assert state(ricordo, eu, "ap") == "active"
    done = process(("peers", "retire", "ap", "--yes", "--json"), home=tmp_path, address=eu.address)
    assert (done.code, done.value) == (0, {"cluster": "ap", "retired": True})
    again = process(("peers", "retire", "ap", "--yes"), home=tmp_path, address=eu.address)
    assert (again.code, again.text) == (0, "already retired: ap; no purge waits for it\n")


def test_who_is_no_member_cannot_be_retired(eu: Served, ricordo: Run, tmp_path: Path) -> None:
    for cluster, code in (("unheard", 3), ("eu", 2), ("", 2)):
        ricordo("peers", "retire", cluster, "--yes", "--address", eu.address).complaint(code)
    code, seen = answered(["peers", "retire", "unheard"], b"", tmp_path, eu.address)
    assert (code, "[y/N]" in seen) == (3, False)


def test_a_retired_member_holds_nothing_back_and_is_shown(eu: Served, ricordo: Run) -> None:
    key = "repo/r/mem/t/one"
    ricordo("remember", key, "--title", "x", "--address", eu.address)
    ricordo("forget", key, "--address", eu.address)
    assert "ap\t1\tit was never heard" in ricordo("compact", "--address", eu.address).text.splitlines()
    held = ricordo("status", "--address", eu.address).text.splitlines()
    assert "ap\t1\tit was never heard" in held
    assert "dead and waiting: 1" in held
    ricordo("peers", "retire", "ap", "--yes", "--address", eu.address)
    assert "tombstones purged: 1" in ricordo("compact", "--address", eu.address).text.splitlines()
    shown = ricordo("status", "--address", eu.address).text.splitlines()
    assert "dead and waiting: 0" in shown
    assert "ap\tretired\tnever\t—\tmust reconcile" in shown
