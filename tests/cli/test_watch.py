"""Watching on the command line, as a process that is read, interrupted and taken up again."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.cli.processes import COMMAND, Run, Serve, Served, environment


@contextmanager
def watching(served: Served, home: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A `ricordo watch` of its own; it is killed when the block ends, if it still runs then."""
    process = subprocess.Popen(
        [*COMMAND, "watch", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(home, RICORDO_ADDRESS=served.address),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def event(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The next event of a watch with --json."""
    line = pipe(process.stdout).readline()
    assert line, pipe(process.stderr).read()
    found: dict[str, Any] = json.loads(line)
    return found


def happening(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The next one that is no progress."""
    found = event(process)
    while found["kind"] == "progress":
        found = event(process)
    return found


def test_what_is_live_and_then_what_changes(served: Served, ricordo: Run, repo: str, tmp_path: Path) -> None:
    ricordo("remember", f"repo/{repo}/mem/t/b", "--title", "second\tof two")
    ricordo("remember", f"repo/{repo}/mem/t/a", "--title", "first")
    ricordo("remember", f"repo/{repo}/mem/u/c", "--title", "t")
    with watching(served, tmp_path, "--repo", repo, "--topic", "t", "--json") as process:
        assert [event(process)["key"] for _ in range(2)] == [f"repo/{repo}/mem/t/{id}" for id in "ab"]
        assert event(process)["caught_up"] is True
        ricordo("remember", f"repo/{repo}/mem/t/d", "--title", "short", "--ttl", "200ms")
        put, lapsed = happening(process), happening(process)
        assert (put["kind"], put["entry"]["title"]) == ("put", "short")
        assert (lapsed["kind"], lapsed["entry"]) == ("lapsed", None)
        assert lapsed["expires_at_ms"] == put["entry"]["expires_at_ms"]
        ricordo("forget", f"repo/{repo}/mem/t/a")
        assert happening(process)["kind"] == "forgotten"


def test_lines_are_for_cutting(served: Served, ricordo: Run, repo: str, tmp_path: Path) -> None:
    ricordo("remember", f"repo/{repo}/mem/t/a", "--title", "first\tof\n\x1b[31mtwo")
    ended = ricordo("watch", "--repo", repo, "--limit", "1")
    assert ended.code == 0
    assert ended.text == f"put\trepo/{repo}/mem/t/a\tfirst of ␛[31mtwo\n"
    note, _, token = ended.error.strip().rpartition(" ")
    assert note == "go on with --resume"
    ricordo("forget", f"repo/{repo}/mem/t/a")
    again = ricordo("watch", "--repo", repo, "--resume", token, "--limit", "1")
    assert again.text == f"forgotten\trepo/{repo}/mem/t/a\t\n"


def test_an_interrupted_watch_says_how_to_go_on(
    served: Served, ricordo: Run, repo: str, tmp_path: Path
) -> None:
    with watching(served, tmp_path, "--repo", repo) as process:
        ricordo("remember", f"repo/{repo}/mem/t/a", "--title", "t")
        assert pipe(process.stdout).readline().startswith(b"put\t")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 130
    assert said.startswith(b"go on with --resume ")
    token = said.split()[-1].decode()
    ricordo("remember", f"repo/{repo}/mem/t/b", "--title", "t")
    (found,) = ricordo("watch", "--repo", repo, "--resume", token, "--limit", "1", "--json").lines
    assert found["key"].endswith("/b")


def test_a_watch_outlives_its_replica(serve: Serve, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    first = serve("--cluster", "eu", home=home)

    def ricordo(*arguments: str) -> None:
        subprocess.run(
            [*COMMAND, *arguments],
            check=True,
            capture_output=True,
            env=environment(home, RICORDO_ADDRESS=first.address),
        )

    with watching(first, home, "--from-now", "--json") as process:
        assert event(process)["caught_up"]
        ricordo("remember", "repo/r/mem/t/a", "--title", "t")
        assert happening(process)["id"] == "a"
        assert first.stop() == 0
        second = serve("--cluster", "eu", home=home, listen=first.address)
        ricordo("remember", "repo/r/mem/t/b", "--title", "t")
        assert happening(process)["id"] == "b"
        second.process.send_signal(signal.SIGKILL)
        second.process.wait(30)
        serve("--cluster", "eu", home=home, listen=first.address)
        ricordo("forget", "repo/r/mem/t/a")
        assert (happening(process)["kind"]) == "forgotten"


def test_a_replica_that_stays_away_is_given_up(ricordo: Run) -> None:
    ended = ricordo("watch", "--address", "127.0.0.1:1", "--timeout", "200ms")
    assert "no replica answers" in ended.complaint(4)


def test_a_token_of_another_store_is_too_old(serve: Serve, ricordo: Run, repo: str) -> None:
    other = serve("--cluster", "us")
    ricordo("remember", f"repo/{repo}/mem/t/a", "--title", "t")
    token = ricordo("watch", "--repo", repo, "--limit", "1").error.split()[-1]
    said = ricordo("watch", "--repo", repo, "--resume", token, "--address", other.address).complaint(6)
    assert "of another store" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--topic", "t"), "--topic: needs --repo"),
        (("--from-now", "--resume", "x"), "--resume: does not go with --from-now"),
        (("--resume", ""), "--resume: must not be empty"),
        (("--resume", "x"), "resume_token: is no token"),
        (("--repo", "a\nb"), "--repo: must not contain"),
        (("--limit", "0"), "--limit"),
    ],
)
def test_what_makes_no_sense_is_refused(ricordo: Run, arguments: tuple[str, ...], said: str) -> None:
    assert said in ricordo("watch", *arguments).complaint(2)
