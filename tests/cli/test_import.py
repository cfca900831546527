"""An import writes every line once, names every line refused, and can be run again however it ended."""

from __future__ import annotations

import io
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replica.cli.importing import Done, Import, Line, Policy, read_lines
from replica.cli.notes import LINE_MAX_BYTES, InvalidLine
from replica.client import Client
from tests.cli.processes import COMMAND, Run, Serve, Served, environment, process, write_lines


def notes(repo: str, count: int, **more: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - members of a line
    return [
        {"repo": repo, "topic": "t", "id": f"{number:05}", "title": f"note {number}", **more}
        for number in range(count)
    ]


def counts(ended_value: dict[str, Any]) -> dict[str, Any]:
    return {name: ended_value[name] for name in ("lines", "created", "updated", "unchanged", "refused")}


def test_each_line_becomes_an_entry(ricordo: Run, repo: str, tmp_path: Path) -> None:
    line = {
        "repo": repo,
        "topic": "t",
        "id": "one",
        "kind": "Memory",
        "title": "Title",
        "body": "Body",
        "author": "ada",
        "provenance": "commit 1",
        "created_at": 1761477279000,
        "tags": ["b", "a"],
        "links": {"touches": ["x", "y"]},
        "ttl_seconds": 86400,
    }
    done = ricordo("import", str(write_lines(tmp_path / "notes.jsonl", line)), "--json").value
    assert done == {
        "lines": 1,
        "created": 1,
        "updated": 0,
        "unchanged": 0,
        "skipped": 0,
        "refused": 0,
        "kind_ignored": 0,
        "refusals": [],
    }
    entry = ricordo("recall", f"repo/{repo}/mem/t/one", "--json").value
    assert (entry["kind"], entry["title"], entry["body"]) == ("Memory", "Title", "Body")
    assert (entry["author"], entry["provenance"]) == ("ada", "commit 1")
    assert (entry["created_at_ms"], entry["tags"]) == (1761477279000, ["a", "b"])
    assert entry["links"] == {"touches": ["x", "y"]}
    assert 86400 - 60 < entry["remaining_seconds"] <= 86400


def test_many_batches_are_counted(ricordo: Run, repo: str, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "notes.jsonl", *notes(repo, 1234))
    assert (
        ricordo("import", str(file)).text == "1234 lines: 1234 created, 0 updated, 0 unchanged, 0 refused\n"
    )
    assert ricordo("topics", "--repo", repo, "--json").value["live"] == 1234


def test_an_import_that_is_run_again_writes_nothing(ricordo: Run, repo: str, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "notes.jsonl", *notes(repo, 300, ttl_seconds=3600, tags=["a"]))
    ricordo("import", str(file))
    before = ricordo("scan", "--repo", repo, "--json").lines
    again = ricordo("import", str(file), "--json").value
    assert counts(again) == {"lines": 300, "created": 0, "updated": 0, "unchanged": 300, "refused": 0}
    after = ricordo("scan", "--repo", repo, "--json").lines
    assert [(entry["version"], entry["expires_at_ms"]) for entry in after] == [
        (entry["version"], entry["expires_at_ms"]) for entry in before
    ]


def test_an_import_adds_to_what_is_there(ricordo: Run, repo: str, tmp_path: Path) -> None:
    first, second, third = notes(repo, 3, body="b", tags=["a"], links={"r": ["x"]}, kind="Decision")
    ricordo("import", str(write_lines(tmp_path / "a.jsonl", first, second, third)))
    second |= {"title": "other", "tags": ["b"], "links": {"r": ["y"]}}
    del second["body"]
    third |= {"kind": "Note", "created_at": 5}
    done = ricordo("import", str(write_lines(tmp_path / "b.jsonl", first, second, third)), "--json").value
    assert counts(done) == {"lines": 3, "created": 0, "updated": 1, "unchanged": 2, "refused": 0}
    assert done["kind_ignored"] == 1
    entry = ricordo("recall", f"repo/{repo}/mem/t/00001", "--json").value
    assert (entry["title"], entry["body"], entry["tags"]) == ("other", "b", ["a", "b"])
    assert entry["links"] == {"r": ["x", "y"]}
    assert ricordo("recall", f"repo/{repo}/mem/t/00002", "--field", "kind").out == b"Decision"


def test_a_ttl_gives_a_durable_entry_an_end(ricordo: Run, repo: str, tmp_path: Path) -> None:
    (line,) = notes(repo, 1)
    ricordo("import", str(write_lines(tmp_path / "a.jsonl", line)))
    done = ricordo(
        "import", str(write_lines(tmp_path / "b.jsonl", line | {"ttl_seconds": 60})), "--json"
    ).value
    assert done["updated"] == 1
    assert ricordo("recall", f"repo/{repo}/mem/t/00000", "--json").value["remaining_seconds"] <= 60


def test_existing_entries_can_be_left_alone(ricordo: Run, repo: str, tmp_path: Path) -> None:
    ricordo("remember", f"repo/{repo}/mem/t/00001", "--title", "mine")
    file = write_lines(tmp_path / "notes.jsonl", *notes(repo, 3))
    done = ricordo("import", str(file), "--skip-existing", "--json").value
    assert (done["created"], done["skipped"], done["updated"]) == (2, 1, 0)
    assert ricordo("recall", f"repo/{repo}/mem/t/00001", "--field", "title").out == b"mine"


def test_the_later_of_two_lines_of_a_key_wins(ricordo: Run, repo: str, tmp_path: Path) -> None:
    lines = [
        {"repo": repo, "topic": "t", "id": "same", "title": f"title {number}"} for number in range(30)
    ] + [{"repo": repo, "topic": "t", "id": "same", "title": "title 0"}]
    done = ricordo("import", str(write_lines(tmp_path / "notes.jsonl", *lines)), "--json").value
    assert counts(done) == {"lines": 31, "created": 1, "updated": 30, "unchanged": 0, "refused": 0}
    assert ricordo("recall", f"repo/{repo}/mem/t/same", "--field", "title").out == b"title 0"


def test_a_line_waits_for_an_earlier_one_of_its_key(served: Served, repo: str) -> None:
    line = json.dumps(notes(repo, 1)[0]).encode() + b"\n"
    read = 0

    def lines() -> Iterator[Line]:
        nonlocal read
        for each in read_lines(io.BytesIO(line * 9)):
            read += 1
            yield each

    with Client(served.address) as client:
        steps = Import(client, Policy()).run(lines())
        assert next(steps).lines == 1
        # The first was written and settled before the second was sent; that ends where the third begins.
        assert read == 3
        assert [account.lines for account in steps][-1] == 9


BAD: list[tuple[bytes | dict[str, Any], str]] = [
    (b"{", ":2: is not JSON at column 2"),
    (b"\xff", ":2: is not UTF-8 at byte 1"),
    (b"[1]", ":2: must be a JSON object"),
    ({"topic": "t"}, ":2: repo: is missing"),
    ({"repo": "r", "topic": "t", "colour": "red"}, ":2: colour: is not known"),
    ({"repo": "r", "topic": "t", "created_at": "now"}, ":2: created_at: must be a whole number"),
    ({"repo": "r", "topic": "t", "ttl_seconds": 0}, ":2: ttl_seconds: must be a positive"),
    # More than a message to a replica holds.
    ({"repo": "r", "topic": "t", "body": "x" * 5_000_000}, ":2: body: is 5000000 bytes of UTF-8"),
    ({"repo": "r", "topic": "t", "tags": ["a", "x" * 5_000_000]}, ":2: tags[1]: is 5000000 bytes of UTF-8"),
    # What only the replica knows to be wrong.
    ({"repo": "r", "topic": "t", "title": "x" * 1025}, ":2: title"),
    ({"repo": "r", "topic": "t", "body": "x" * 65537}, ":2: body"),
    ({"repo": "r", "topic": "t", "kind": "Poem"}, ":2: kind"),
    ({"repo": "r", "topic": "t", "tags": ["x"] * 2 + ["y" * 129]}, ":2: tags"),
    ({"repo": "r", "topic": "t", "ttl_seconds": 1e300}, ":2: ttl_seconds"),
]


@pytest.mark.parametrize(("bad", "words"), BAD, ids=[words for _, words in BAD])
def test_a_line_that_is_refused_is_named(
    ricordo: Run, repo: str, tmp_path: Path, bad: bytes | dict[str, Any], words: str
) -> None:
    first, third = notes(repo, 2)
    file = write_lines(tmp_path / "notes.jsonl", first, bad, third)
    ended = ricordo("import", str(file), "--json")
    assert ended.code == 1
    assert ended.error.startswith(f"{file}{words}")
    assert ended.error.splitlines()[-1].endswith("with --from-line 2")
    assert ended.value["refused"] == 1
    assert ended.value["refusals"][0]["line"] == 2

    ended = ricordo("import", str(file), "--continue-on-error")
    assert ended.code == 1
    assert ended.error.startswith(f"{file}{words}")
    assert ended.text.endswith(", 1 refused\n")
    assert ricordo("topics", "--repo", repo, "--json").value["live"] == 2


def test_no_line_after_one_that_is_malformed_is_written(ricordo: Run, repo: str, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "notes.jsonl", *notes(repo, 3), b"{", *notes(repo, 900)[3:])
    assert ricordo("import", str(file)).code == 1
    assert ricordo("topics", "--repo", repo, "--json").value["live"] == 3


def test_a_check_sends_nothing(ricordo: Run, repo: str, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "notes.jsonl", *notes(repo, 3), b"{", {"repo": repo})
    ended = ricordo("import", str(file), "--check", "--json", "--address", "127.0.0.1:1")
    assert ended.code == 1
    assert (ended.value["lines"], ended.value["refused"]) == (5, 2)
    assert [refusal["line"] for refusal in ended.value["refusals"]] == [4, 5]
    assert ricordo("import", str(write_lines(tmp_path / "good.jsonl", *notes(repo, 3))), "--check").code == 0
    assert ricordo("topics", "--repo", repo, "--json").lines == []


def test_empty_lines_and_a_byte_order_mark_are_no_lines(ricordo: Run, repo: str, tmp_path: Path) -> None:
    one, two = (json.dumps(note).encode() for note in notes(repo, 2))
    file = tmp_path / "notes.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + one + b"\r\n\n  \n" + two)
    assert ricordo("import", str(file), "--json").value["created"] == 2
    (tmp_path / "empty.jsonl").touch()
    assert ricordo("import", str(tmp_path / "empty.jsonl"), "--json").value["lines"] == 0


def test_a_line_without_end_is_refused_without_being_held() -> None:
    long = b'{"body": "' + b"x" * (2 * LINE_MAX_BYTES) + b'"}\n'
    first, second = read_lines(io.BytesIO(long + b"{}\n"))
    assert isinstance(first.note, InvalidLine)
    assert "is longer than" in first.note.reason
    assert (first.number, second.number) == (1, 2)


def test_entries_beyond_one_answer_are_compared_in_parts(ricordo: Run, repo: str, tmp_path: Path) -> None:
    large = write_lines(tmp_path / "large.jsonl", *notes(repo, 40, body="x" * 65536))
    ricordo("import", str(large))
    small = write_lines(tmp_path / "small.jsonl", *notes(repo, 40))
    again = ricordo("import", str(small), "--json").value
    assert counts(again) == {"lines": 40, "created": 0, "updated": 0, "unchanged": 40, "refused": 0}


def test_a_replica_that_takes_less_in_one_call_is_given_less(
    ricordo: Run, serve: Serve, tmp_path: Path
) -> None:
    small = serve("--limits-page-entries", "7")
    file = write_lines(tmp_path / "notes.jsonl", *notes("r", 100))
    for kind in ("created", "unchanged"):
        ended = ricordo("import", str(file), "--json", "--address", small.address)
        assert (ended.code, ended.value[kind]) == (0, 100), ended.err


def test_durable_lines_can_override_the_default_of_a_repository(
    ricordo: Run, serve: Serve, tmp_path: Path
) -> None:
    served = serve("--ttl-default", "1h")
    plain, kept = notes("r", 2)
    for line, flags in ((plain, ()), (kept, ("--durable",))):
        file = write_lines(tmp_path / "notes.jsonl", line)
        assert ricordo("import", str(file), *flags, "--address", served.address).code == 0
    scanned = ricordo("scan", "--repo", "r", "--json", "--address", served.address).lines
    assert [entry["expires_at_ms"] is None for entry in scanned] == [False, True]


def test_an_unreachable_replica_says_how_to_go_on(ricordo: Run, repo: str, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "notes.jsonl", *notes(repo, 3))
    ended = ricordo("import", str(file), "--address", "127.0.0.1:1", "--timeout", "200ms")
    assert ended.code == 4
    first, second = ended.error.splitlines()
    assert "run the same command again" in first
    assert "no replica answers" in second


def test_lines_come_down_a_pipe(served: Served, repo: str, tmp_path: Path) -> None:
    lines = b"".join(json.dumps(note).encode() + b"\n" for note in notes(repo, 10))
    ended = process(("import", "-", "--json"), home=tmp_path, address=served.address, stdin=lines)
    assert (ended.code, ended.value["created"]) == (0, 10)
    ended = process(("import", "-"), home=tmp_path, address=served.address, stdin=b"\xff\n")
    assert ended.code == 1
    assert ended.error.startswith("standard input:1: is not UTF-8 at byte 1\n")


def test_an_interrupted_import_says_how_to_go_on(served: Served, repo: str, tmp_path: Path) -> None:
    running = subprocess.Popen(
        [*COMMAND, "import", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path, RICORDO_ADDRESS=served.address),
    )
    assert running.stdin is not None
    lines = [json.dumps(note).encode() + b"\n" for note in notes(repo, 2000)]
    running.stdin.write(b"".join(lines))
    running.stdin.flush()
    # The pipe stays open: it waits for more, and some of what came is written.
    with Client(served.address) as client:
        while not any(True for _ in client.list_topics(repo)):
            assert running.poll() is None
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert out == b""
    (line,) = err.decode().splitlines()
    assert line.startswith("interrupted")
    assert "run the same command again" in line


def test_an_import_that_was_killed_is_run_again(
    ricordo: Run, served: Served, repo: str, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "notes.jsonl", *notes(repo, 1500, body="x" * 500))
    running = subprocess.Popen(
        [*COMMAND, "import", str(file)], env=environment(tmp_path, RICORDO_ADDRESS=served.address)
    )
    with Client(served.address) as client:
        while not any(True for _ in client.list_topics(repo)):
            assert running.poll() is None
    running.kill()
    running.wait(30)
    ended = ricordo("import", str(file), "--json", "--address", served.address)
    done = ended.value
    assert ended.code == 0
    assert done["unchanged"] > 0
    assert done["created"] + done["unchanged"] == done["lines"] == 1500
    assert ricordo("topics", "--repo", repo, "--address", served.address).text == "t\t1500\n"


def test_every_line_before_the_next_is_done(served: Served, repo: str) -> None:
    """Whenever an import ends, the lines before `next_line` are written: that is where to go on."""
    encoded = b"".join(json.dumps(note).encode() + b"\n" for note in notes(repo, 2500))
    with Client(served.address) as client:
        running = Import(client, Policy())
        steps = 0
        for account in running.run(read_lines(io.BytesIO(encoded))):
            steps += 1
            keys = [f"repo/{repo}/mem/t/{account.next_line - 2:05}"]
            assert all(entry.exists for entry in client.recall_many(keys))
        assert steps > 5
        assert running.account.counts[Done.CREATED] == 2500
        assert running.account.settled_bytes == len(encoded)
        rest = Import(client, Policy())
        for _ in rest.run(read_lines(io.BytesIO(encoded), 2400)):
            pass
        assert rest.account.counts[Done.UNCHANGED] == rest.account.lines == 101


def test_a_stopped_replica_is_waited_for(ricordo: Run, serve: Serve, tmp_path: Path) -> None:
    """The calls of an import are made again until they are answered, and no line is written twice."""
    first = serve()
    file = write_lines(tmp_path / "notes.jsonl", *notes("r", 2000))
    running = subprocess.Popen(
        [*COMMAND, "import", str(file), "--json"],
        stdout=subprocess.PIPE,
        env=environment(tmp_path, RICORDO_ADDRESS=first.address),
    )
    with Client(first.address) as client:
        while not any(True for _ in client.list_topics("r")):
            assert running.poll() is None
    first.stop(signal.SIGKILL)
    second = serve(listen=first.address)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert json.loads(out)["created"] + json.loads(out)["unchanged"] == 2000
    topics = ricordo("topics", "--repo", "r", "--address", second.address)
    assert topics.text == "t\t2000\n"
