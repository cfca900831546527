"""The command line as the shell runs it: pipes, signals, and a reader that has gone."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND, Run, Served, environment, process, write_lines


def test_a_body_comes_down_a_pipe(served: Served, ricordo: Run, repo: str, tmp_path: Path) -> None:
    key = f"repo/{repo}/mem/t/one"
    body = "line\n‮ 🧠 %2F\n".encode()
    for arguments in (
        ("remember", key),
        ("remember", key, "--body-file", "-"),
        ("update", key, "--body-file", "-"),
    ):
        ricordo("remember", key, "--body", "old")
        assert process(arguments, home=tmp_path, address=served.address, stdin=body).code == 0
        assert ricordo("recall", key, "--field", "body").out == body


def test_a_body_comes_from_a_file_that_the_shell_opened(
    served: Served, ricordo: Run, repo: str, tmp_path: Path
) -> None:
    (tmp_path / "body").write_text("from a file")
    with (tmp_path / "body").open("rb") as file:
        ended = process(
            ("remember", f"repo/{repo}/mem/t/one"), home=tmp_path, address=served.address, stdin=file.fileno()
        )
    assert ended.code == 0
    assert ricordo("recall", f"repo/{repo}/mem/t/one", "--field", "body").out == b"from a file"


def test_an_empty_pipe_is_no_body(served: Served, ricordo: Run, repo: str, tmp_path: Path) -> None:
    key = f"repo/{repo}/mem/t/one"
    ricordo("remember", key, "--body", "kept")
    assert (
        process(("remember", key, "--title", "x"), home=tmp_path, address=served.address, stdin=b"").code == 0
    )
    assert ricordo("recall", key, "--field", "body").out == b"kept"
    asked = process(("remember", key, "--body-file", "-"), home=tmp_path, address=served.address, stdin=b"")
    assert asked.code == 0
    assert ricordo("recall", key, "--field", "body").out == b""


@pytest.mark.parametrize("arguments", [(), ("--body-file", "-")])
def test_bytes_that_are_no_text_are_refused(
    ricordo: Run, served: Served, repo: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    key = f"repo/{repo}/mem/t/one"
    ended = process(("remember", key, *arguments), home=tmp_path, address=served.address, stdin=b"ab\xff\xfe")
    assert ended.complaint(2) == "ricordo: standard input: is not valid UTF-8 at byte 2"
    assert ricordo("recall", key, "--address", served.address).code == 3


def test_ids_that_the_shell_gives_as_bytes(ricordo: Run, served: Served, repo: str, tmp_path: Path) -> None:
    subprocess.run(
        [
            *COMMAND,
            "remember",
            b"--repo",
            repo.encode(),
            b"--topic",
            "ש🧠".encode(),
            b"--id",
            b"50%/x",
            b"--title=x",
        ],
        stdin=subprocess.DEVNULL,
        check=True,
        capture_output=True,
        env=environment(tmp_path, RICORDO_ADDRESS=served.address),
    )
    ended = ricordo("recall", f"repo/{repo}/mem/ש🧠/50%25%2Fx", "--json", "--address", served.address)
    assert (ended.value["topic"], ended.value["id"]) == ("ש🧠", "50%/x")


def test_a_reader_that_has_gone_ends_it_without_a_word(
    served: Served, ricordo: Run, repo: str, tmp_path: Path
) -> None:
    lines = ({"repo": repo, "topic": "t", "id": str(number), "title": "x" * 900} for number in range(300))
    ricordo("import", str(write_lines(tmp_path / "notes.jsonl", *lines)))
    for command in (("scan", "--repo", repo), ("export", "--repo", repo)):
        reading, writing = os.pipe()
        os.close(reading)
        with subprocess.Popen(
            [*COMMAND, *command],
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            env=environment(tmp_path, RICORDO_ADDRESS=served.address),
        ) as running:
            os.close(writing)
            _, err = running.communicate(timeout=30)
        assert (running.returncode, err) == (141, b"")


def test_an_interrupt_ends_it_without_a_word(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    waiting = subprocess.Popen(
        [*COMMAND, "remember", "repo/a/mem/b/c", "--body-file", str(pipe)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
    )
    # It opens when the other end does: from here on the command waits for a body that does not come.
    with waiting as running, pipe.open("wb"):
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (130, b"", b"")


def test_a_body_without_end_is_not_read_to_the_end(tmp_path: Path) -> None:
    ended = process(("remember", "repo/a/mem/b/c", "--body-file", "/dev/zero"), home=tmp_path)
    assert "--body-file: is longer than 65536 bytes" in ended.complaint(2)


def test_text_is_written_in_utf8_whatever_the_locale(
    served: Served, ricordo: Run, repo: str, tmp_path: Path
) -> None:
    key = f"repo/{repo}/mem/t/one"
    ricordo("remember", key, "--title", "ש🧠", "--body", "ß")
    for arguments in (("recall", key), ("recall", key, "--json")):
        ended = process(arguments, home=tmp_path, address=served.address, LC_ALL="C", PYTHONUTF8="0")
        assert ended.code == 0, ended.err
        assert "ש🧠" in ended.text


def test_completion_is_offered(tmp_path: Path) -> None:
    ended = process(
        (), home=tmp_path, _RICORDO_COMPLETE="complete_bash", COMP_WORDS="ricordo re", COMP_CWORD="1"
    )
    assert {"remember", "recall", "repos"} <= set(ended.text.split())
