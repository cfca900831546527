"""The JSON that the manual describes is the JSON that the commands print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import manual
from tests.cli.processes import process, write_lines

KEY = "repo/manual/mem/notes/one"


def printed(address: str, home: Path, *words: str) -> dict[str, object]:
    """The first JSON object that a command prints, on either stream."""
    ended = process((*words, "--json"), home=home, address=address)
    found = json.loads((ended.out or ended.err).splitlines()[0])
    assert isinstance(found, dict)
    return found


def test_every_command_with_json_is_described() -> None:
    described = {*manual.PRINTED, *manual.BY_HAND}
    with_json = {" ".join(words) for words in manual.commands() if "--json" in manual.help_of(*words)}
    assert with_json <= described, "describe them in scripts/manual.py"
    assert {name.partition(" --")[0] for name in manual.PRINTED} <= with_json


def test_the_members_are_those_described(address: str, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "notes.jsonl", {"repo": "manual", "topic": "notes", "id": "two"})
    runs = {
        "remember": ("remember", KEY, "--title", "x"),
        "recall": ("recall", KEY),
        "scan": ("scan", "--repo", "manual"),
        "topics": ("topics", "--repo", "manual"),
        "repos": ("repos",),
        "update": ("update", KEY, "--title", "y"),
        "history": ("history", KEY),
        "status": ("status",),
        "digest": ("digest",),
        "compact": ("compact",),
        "export": ("export", "--output", str(tmp_path / "exported")),
        "peers add": ("peers", "add", "us=127.0.0.1:1"),
        "peers list": ("peers", "list"),
        "peers retire": ("peers", "retire", "us", "--yes"),
        "peers remove": ("peers", "remove", "us"),
        "import": ("import", str(lines)),
        "import --check": ("import", str(lines), "--check"),
        "simulate": ("simulate", "--operations", "1", "--seed", "1"),
        "simulate scale": ("simulate", "scale", "--replicas", "2", "--writes", "1"),
        "forget": ("forget", KEY),
    }
    described = {
        name: [member for member, _, _ in manual.members(kind)] for name, kind in manual.PRINTED.items()
    }
    described |= {
        name: list(said) for name, said in manual.BY_HAND.items() if not name.startswith("an error")
    }
    # What goes on for ever, and what needs two replicas, is called by the tests of the command line.
    assert runs.keys() == described.keys() - {"watch", "digest --compare"}
    for name, words in runs.items():
        assert list(printed(address, tmp_path, *words)) == described[name], name


def test_an_error_has_the_members_described(address: str, tmp_path: Path) -> None:
    (said,) = printed(address, tmp_path, "update", "repo/manual/mem/notes/none", "--title", "x").values()
    assert isinstance(said, dict)
    (described,) = (said for name, said in manual.BY_HAND.items() if name.startswith("an error"))
    assert list(said) == list(described)


@pytest.mark.parametrize("kind", sorted(set(manual.PRINTED.values()), key=lambda kind: kind.__name__))
def test_a_part_that_is_named_is_described(kind: type) -> None:
    page = manual.PAGE.read_text(encoding="utf-8")
    for _, form, _ in manual.members(kind):
        name = form.rpartition("list of: ")[2].rpartition("object of: ")[2].split(" or ")[0]
        if name[:1].isupper() and name not in {each.__name__ for each in manual.PRINTED.values()}:
            assert f"**{name}**" in page
