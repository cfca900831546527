"""An export is what is live, in the shape that import reads, and a file is whole or it is not there."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from replica.cli.exporting import whole_file
from replica.client import Client
from tests.cli.processes import COMMAND, Run, Serve, Served, environment, process, write_lines

BODIES = {
    "64KiB": "x" * 65536,
    "64KiB of four bytes each": "𝕬" * 16384,
    "right to left": "שלום \u202e بالعربية",
    "emoji": "🧠🏽‍🚀 👨‍👩‍👧",
    "newlines": "a\nb\r\nc\u2028d\n",
    "controls": "\u0000\u0001\x1b[31m\x7f\u0085",
    "json": '{"a": "\\u0041\\n"}',
    "percent": "%2F % %25",
}


def lines(repo: str) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [
        {
            "repo": repo,
            "topic": "to/pic %",
            "id": f"50%2F/{name}",
            "kind": "Memory",
            "title": name,
            "body": body,
            "author": "ada",
            "provenance": "commit 1",
            "created_at": 1761477279000 + number,
            "tags": ["a", "ß", "%", f"tag {number}"],
            "links": {"touches": ["repo/x/file/a/b.py", "%2F"], "🔗": ["x y"]},
        }
        for number, (name, body) in enumerate(BODIES.items())
    ]
    return made


def by_key(text: bytes) -> dict[tuple[str, str], dict[str, Any]]:
    found = {}
    for line in text.splitlines():
        entry = json.loads(line)
        for row in (entry["tags"], *entry["links"].values()):
            row.sort()
        found[entry["topic"], entry["id"]] = entry
    return found


def test_what_was_imported_is_exported(ricordo: Run, repo: str, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", *lines(repo))
    assert ricordo("import", str(file)).code == 0
    ended = ricordo("export", "--repo", repo)
    assert (ended.code, ended.error) == (0, f"{len(BODIES)} entries exported\n")
    assert by_key(ended.out) == by_key(file.read_bytes())


def test_an_export_imported_elsewhere_exports_the_same(
    ricordo: Run, serve: Serve, repo: str, tmp_path: Path
) -> None:
    given = [*lines(repo), {"repo": repo, "topic": "t", "id": "ephemeral", "ttl_seconds": 86400}]
    ricordo("import", str(write_lines(tmp_path / "in.jsonl", *given)))
    first = ricordo("export", "--repo", repo).out
    other = serve()
    ended = process(("import", "-", "--json"), home=tmp_path, address=other.address, stdin=first)
    assert (ended.code, ended.value["created"]) == (0, len(given)), ended.err
    second = ricordo("export", "--address", other.address).out
    one, two = by_key(first), by_key(second)
    lives = [export["t", "ephemeral"].pop("ttl_seconds") for export in (one, two)]
    assert one == two
    # The rest of the life, to which the seconds between the two exports do not count.
    assert 86400 - 60 < lives[1] <= lives[0] <= 86400


def test_an_entry_that_many_calls_made_survives(
    ricordo: Run, served: Served, serve: Serve, repo: str, tmp_path: Path
) -> None:
    key = f"repo/{repo}/mem/t/grown"
    with Client(served.address) as client:
        client.remember(repo, "t", id="grown", title="grown", ttl_seconds=10**8)
        for call in range(18):
            client.update(
                key,
                add_tags=[f"{call} {number}" for number in range(64)],
                add_links={f"r{call % 3}": [f"{call} {number}".ljust(512, "-") for number in range(256)]},
            )
        grown = client.recall(key)
    exported = ricordo("export", "--repo", repo, "--output", str(file := tmp_path / "notes.jsonl"))
    assert exported.code == 0, exported.err
    # More than an answer about many entries holds.
    assert file.stat().st_size > 2 << 20
    other = serve()
    for done in ("created", "unchanged"):
        told = ricordo("import", str(file), "--json", "--address", other.address)
        assert (told.code, told.value[done]) == (0, 1), told.err
    with Client(other.address) as client:
        found = client.recall(key)
    assert (found.tags, found.links, found.title) == (grown.tags, grown.links, "grown")
    assert found.expires_at_ms is not None


def test_an_export_is_imported_through_a_pipe(ricordo: Run, serve: Serve, repo: str, tmp_path: Path) -> None:
    ricordo("import", str(write_lines(tmp_path / "in.jsonl", *lines(repo))))
    other = serve()
    source = os.environ["RICORDO_ADDRESS"]
    with subprocess.Popen(
        [*COMMAND, "export", "--repo", repo],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(tmp_path, RICORDO_ADDRESS=source),
    ) as export:
        assert export.stdout is not None
        ended = process(("import", "-"), home=tmp_path, address=other.address, stdin=export.stdout.fileno())
    assert export.returncode == ended.code == 0
    assert ended.text == f"{len(BODIES)} lines: {len(BODIES)} created, 0 updated, 0 unchanged, 0 refused\n"


def test_what_is_exported_is_in_key_order_and_of_the_repository(ricordo: Run, repo: str) -> None:
    for name in (repo, f"{repo}-other"):
        for id in ("b", "a"):
            ricordo("remember", f"repo/{name}/mem/t/{id}", "--title", "x")
    exported = [json.loads(line) for line in ricordo("export", "--repo", repo).out.splitlines()]
    assert [(line["repo"], line["id"]) for line in exported] == [(repo, "a"), (repo, "b")]
    everything = {json.loads(line)["repo"] for line in ricordo("export").out.splitlines()}
    assert {repo, f"{repo}-other"} <= everything


def test_a_durable_entry_has_no_ttl_and_a_forgotten_one_no_line(ricordo: Run, repo: str) -> None:
    ricordo("remember", f"repo/{repo}/mem/t/durable", "--title", "x")
    ricordo("remember", f"repo/{repo}/mem/t/gone", "--title", "x")
    ricordo("forget", f"repo/{repo}/mem/t/gone")
    (line,) = ricordo("export", "--repo", repo).out.splitlines()
    assert json.loads(line)["id"] == "durable"
    assert "ttl_seconds" not in json.loads(line)


def test_an_export_to_a_file_says_so_on_standard_output(ricordo: Run, repo: str, tmp_path: Path) -> None:
    ricordo("remember", f"repo/{repo}/mem/t/one", "--title", "x")
    file = tmp_path / "out.jsonl"
    file.write_text("old")
    ended = ricordo("export", "--repo", repo, "--output", str(file), "--json")
    assert ended.value == {"exported": 1, "concurrent": 0, "undecodable": 0}
    assert json.loads(file.read_bytes())["id"] == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_failed_export_leaves_the_file_as_it_was(ricordo: Run, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("old")
    ended = ricordo("export", "-o", str(file), "--address", "127.0.0.1:1", "--timeout", "200ms")
    assert ended.code == 4
    missing = tmp_path / "nowhere" / "out.jsonl"
    assert "No such file or directory" in ricordo("export", "-o", str(missing)).complaint(1)
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text("old")

    def write() -> None:
        with whole_file(file) as out:
            out.write(b"new")
            out.flush()
            assert file.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    with whole_file(link) as out:
        out.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_an_export_into_a_device_is_written_to_it(ricordo: Run, repo: str) -> None:
    assert ricordo("export", "--repo", repo, "-o", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()
