"""The command line as the shell runs it: pipes, signals, and a reader that has gone."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND, Run, Served, environment, process, write_lines


@pytest.mark.parametrize("command", ["remember", "update"])
def test_a_body_comes_down_a_pipe_where_it_is_asked_for(
    served: Served, ricordo: Run, repo: str, tmp_path: Path, command: str
) -> None:
    key = f"repo/{repo}/mem/t/one"
    ricordo("remember", key, "--body", "old")
    for body in ("line\n‮ 🧠 %2F\n".encode(), b""):
        ended = process((command, key, "--body-file", "-"), home=tmp_path, address=served.address, stdin=body)
        assert (ended.code, ended.error) == (0, "")
        assert ricordo("recall", key, "--field", "body").out == body


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(
    served: Served, ricordo: Run, repo: str, tmp_path: Path
) -> None:
    key = f"repo/{repo}/mem/t/one"
    reading, writing = os.pipe()
    for arguments in ((key, "--tag", "x"), (key, "--title", "x")):
        ended = process(("remember", *arguments), home=tmp_path, address=served.address, stdin=reading)
        assert (ended.code, ended.error) == (0, "")
    os.close(writing)
    os.close(reading)


def test_what_comes_down_a_pipe_unasked_is_left_there_and_that_is_said_where_no_text_is_given(
    served: Served, ricordo: Run, repo: str, tmp_path: Path
) -> None:
    key = f"repo/{repo}/mem/t/one"
    ricordo("remember", key, "--body", "kept")
    (tmp_path / "body").write_text("from a file")
    reading, writing = os.pipe()
    os.write(writing, b"first\nsecond\n")
    with (tmp_path / "body").open("rb") as file:
        for stdin in (reading, file.fileno()):
            nothing = process(("remember", key), home=tmp_path, address=served.address, stdin=stdin)
            assert nothing.code == 2
            assert "--body-file -" in nothing.error
            tagged = ("remember", key, "--tag", "t")
            said = process(tagged, home=tmp_path, address=served.address, stdin=stdin)
            assert said.code == 0
            assert "--body-file -" in said.error
            more = ("remember", key, "--title", "x")
            assert process(more, home=tmp_path, address=served.address, stdin=stdin).error == ""
        assert file.read() == b"from a file"
    assert os.read(reading, 100) == b"first\nsecond\n"
    os.close(writing)
    os.close(reading)
    assert ricordo("recall", key, "--field", "body").out == b"kept"


def test_bytes_that_are_no_text_are_refused(ricordo: Run, served: Served, repo: str, tmp_path: Path) -> None:
    key = f"repo/{repo}/mem/t/one"
    arguments = ("remember", key, "--body-file", "-")
    ended = process(arguments, home=tmp_path, address=served.address, stdin=b"ab\xff\xfe")
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
