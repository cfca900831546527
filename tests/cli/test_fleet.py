"""What two clusters wrote at the same time is seen on the command line of both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from replica.client import Client
from tests.cli.processes import Run, Serve, Served


def until(served: Served, reached: Callable[[Client], bool]) -> None:
    """Ask the replica until it has got so far; the timeout of the test bounds it."""
    with Client(served.address) as client:
        while not reached(client):
            pass


def test_concurrent_values_are_shown_with_their_cluster_and_settled_by_a_write(
    serve: Serve, ricordo: Run, tmp_path: Path
) -> None:
    homes = {name: tmp_path / name for name in ("eu", "us")}
    for home in homes.values():
        home.mkdir()
    eu, us = (
        serve("--cluster", name, "--replication-backoff-max", "200ms", home=home)
        for name, home in homes.items()
    )
    key = "repo/api/mem/notes/one"
    ricordo("remember", key, "--title", "of eu", "--tag", "a", "--address", eu.address)
    ricordo("remember", key, "--title", "of us", "--tag", "b", "--address", us.address)
    ricordo("peers", "add", f"us={us.replication}", "--address", eu.address)
    ricordo("peers", "add", f"eu={eu.replication}", "--address", us.address)
    for served in (eu, us):
        until(served, lambda client: client.recall(key).sibling_count == 2)

    first, second = (ricordo("recall", key, "--json", "--address", each.address).value for each in (eu, us))
    assert first == second
    assert first["tags"] == ["a", "b"]
    assert {value["cluster"]: value["value"] for value in first["concurrent"]["title"]} == {
        "eu": "of eu",
        "us": "of us",
    }
    assert first["concurrent"]["title"][0]["value"] == first["title"]
    shown = ricordo("recall", key, "--address", eu.address).text
    for line in ("siblings: 2, written at the same time", "concurrent values:"):
        assert line in shown.splitlines()
    assert any(line.startswith("title (shown)\tus\t") for line in shown.splitlines())
    assert "(concurrent values)" in ricordo("scan", "--repo", "api", "--address", eu.address).text
    exported = ricordo("export", "--address", eu.address)
    assert exported.error.splitlines()[1].startswith("1 of them with concurrent values")

    ricordo("update", key, "--title", "settled", "--address", us.address)
    until(eu, lambda client: client.recall(key).title == "settled")
    history = ricordo("history", key, "--json", "--address", eu.address).value
    assert history["fields"]["title"]["concurrent"] == []
    assert {value["value"] for value in history["fields"]["title"]["revisions"]} == {"of eu", "of us"}
    at = ricordo("digest", "--json", "--address", eu.address).value["at_ms"]
    digests = {ricordo("digest", "--at", str(at), "--address", each.address).out for each in (eu, us)}
    assert len(digests) == 1
    assert "\tconnected, " in ricordo("peers", "list", "--address", eu.address).text
