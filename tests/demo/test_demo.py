"""The demo, as `make demo` runs it: real processes, links that are cut, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from replica.demo.notes import RECORDS, read_notes

DEMO = (sys.executable, "-m", "replica.demo")
ROOT = Path(__file__).resolve().parents[2]
CLUSTERS = ("eu", "us", "ap")


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _processes(shown: str) -> list[int]:
    return [
        int(found) for found in re.findall(r"^(?:eu|us|ap)  +(\d+)  +127\.0\.0\.1:\d+$", shown, re.MULTILINE)
    ]


def test_the_tour_ends_with_three_clusters_that_agree(tmp_path: Path) -> None:
    # A configuration meant for a replica of the user's own must not reach those of the demo.
    environment = os.environ | {
        "TMPDIR": str(tmp_path),
        "RICORDO_CLUSTER": "mine",
        "RICORDO_TTL_DEFAULT": "1s",
    }
    done = subprocess.run(
        DEMO,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert not done.stderr
    assert "\x1b" not in done.stdout, "no escape codes where there is no terminal"
    *_, last = done.stdout.partition("The same everywhere")
    rows = re.findall(r"^(eu|us|ap)  +(\d+) +([0-9a-f]{64})$", last, re.MULTILINE)
    assert tuple(cluster for cluster, _, _ in rows) == CLUSTERS
    assert len({(live, digest) for _, live, digest in rows}) == 1
    # Every note, and the two of the three notes on the partition that were not forgotten.
    assert int(rows[0][1]) == len(read_notes()) + 2
    processes = _processes(done.stdout)
    assert len(processes) == 3
    assert not any(map(_alive, processes))
    assert not list(tmp_path.iterdir()), "nothing is left on disk"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_takes_its_replicas_with_it_when_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        DEMO,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    shown = ""
    while len(processes := _processes(shown)) < 3:
        line = process.stdout.readline()
        assert line, shown
        shown += line
    assert all(map(_alive, processes))
    process.send_signal(number)
    process.stdout.read()
    assert process.wait(30) == 128 + number
    process.stdout.close()
    assert not any(map(_alive, processes))
    assert not list(tmp_path.iterdir())


def test_without_decision_records_it_says_where_to_run_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--notes", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"demo: no decision records in {tmp_path}")
    assert "make demo" in line


def test_the_notes_are_the_records_and_their_passages() -> None:
    notes = read_notes()
    assert len({note.key for note in notes}) == len(notes)
    decisions = [note for note in notes if note.topic == "decisions"]
    assert [note.id for note in decisions] == sorted(path.stem for path in RECORDS.glob("*.md"))
    assert all(note.title and note.body for note in notes)
    assert all(len(note.title.encode()) <= 1024 and len(note.body.encode()) <= 65536 for note in notes)
    passages = [note for note in notes if note.topic != "decisions"]
    assert {note.topic for note in passages} == {"context", "choice", "consequences"}
    keys = {note.key for note in decisions}
    for note in passages:
        assert note.line["links"] == {
            "part-of": [key for key in keys if key.endswith(note.id.rpartition("-")[0])]
        }
