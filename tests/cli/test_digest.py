"""Digests and comparisons on the command line, of real replicas."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.processes import Run, Serve, Served


@pytest.fixture
def pair(serve: Serve, tmp_path: Path) -> tuple[Served, Served]:
    """Two replicas that do not replicate."""
    homes = [tmp_path / name for name in ("eu", "us")]
    for home in homes:
        home.mkdir()
    return serve("--cluster", "eu", home=homes[0]), serve("--cluster", "us", home=homes[1])


def remember(ricordo: Run, served: Served, key: str, *more: str) -> None:
    assert ricordo("remember", key, *more, "--address", served.address).code == 0


def test_replicas_without_entries_are_equal(ricordo: Run, pair: tuple[Served, Served]) -> None:
    eu, us = pair
    ended = ricordo("digest", "--address", eu.address, "--compare", us.address, "--at", "0")
    assert ended.code == 0
    assert ended.text.endswith("  0 live  at 1970-01-01 00:00:00.000 UTC  in eu, us\n")
    ended = ricordo("digest", "--address", eu.address, "--compare", us.address, "--json")
    assert (ended.code, ended.lines) == (0, [])


def test_what_differs_is_named(
    ricordo: Run, pair: tuple[Served, Served], serve: Serve, tmp_path: Path
) -> None:
    eu, us = pair
    for served in pair:
        remember(ricordo, served, "repo/r/mem/t/both", "--title", "x")
    remember(ricordo, eu, "repo/r/mem/t/only%2Feu", "--tag", "x")
    remember(ricordo, us, "repo/s/mem/t/a", "--title", "x")
    ended = ricordo("digest", "--address", eu.address, "--compare", us.address)
    assert ended.code == 1
    assert ended.text.splitlines() == [
        "repo/r/mem/t/both\tdifferent in eu and us",
        "repo/r/mem/t/only%2Feu\tmissing in us",
        "repo/s/mem/t/a\tmissing in eu",
    ]
    assert ended.error.startswith("ricordo: the replicas differ in 3 entries; ")
    compare = ("digest", "--address", eu.address, "--compare", us.address)
    ended = ricordo(*compare, "--repo", "s", "--json")
    assert ended.code == 1
    ((found),) = ended.lines
    assert (found["key"], found["digests"]["eu"], found["damaged"]) == ("repo/s/mem/t/a", None, [])
    assert len(found["digests"]["us"]) == 64
    assert ricordo(*compare, "--repo", "r", "--topic", "none").code == 0
    ended = ricordo(*compare, "--limit", "2")
    assert len(ended.text.splitlines()) == 2
    assert "in more than 2 entries" in ended.error
    assert ricordo(*compare, "--at", "2999-01-01").code == 1


def test_replicas_that_replicate_come_to_agree(
    ricordo: Run, serve: Serve, served: Served, repo: str, tmp_path: Path
) -> None:
    for id in range(3):
        ricordo("remember", f"repo/{repo}/mem/t/{id}", "--title", "x")
    home = tmp_path / "peer"
    home.mkdir()
    peer = serve("--cluster", "peer", "--peer", f"eu={served.replication}", home=home)
    while ricordo("digest", "--repo", repo, "--compare", peer.address).code:
        pass
    assert ricordo("digest", "--repo", repo, "--address", peer.address, "--json").value["live"] == 3


def test_a_replica_that_does_not_answer_is_named(ricordo: Run, served: Served) -> None:
    ended = ricordo("digest", "--compare", "127.0.0.1:1", "--timeout", "300ms")
    assert "127.0.0.1:1" in ended.complaint(4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--topic", "t"), "--topic: needs --repo"),
        (("--limit", "1"), "--limit: needs --compare"),
        (("--compare", "x"), "--compare: is no address"),
        (("--address", "h:1", "--compare", "h:1"), "--compare: names a replica twice"),
    ],
)
def test_what_makes_no_sense_is_refused(ricordo: Run, arguments: tuple[str, ...], said: str) -> None:
    assert said in ricordo("digest", *arguments).complaint(2)
