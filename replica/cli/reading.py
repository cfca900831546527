"""The commands that read: recall, history, scan, topics, repos."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from replica.cli import options
from replica.cli.exits import ExitCode, Failure, usage
from replica.cli.options import connect, entry_key, scope
from replica.cli.sheet import Column
from replica.cli.terminal import Terminal
from replica.cli.views import SCAN_COLUMNS, entry_sheet, history_sheet, scan_row
from replica.client import DEFAULT_ADDRESS, RepoCount, TopicCount

__all__ = ["history", "recall", "repos", "scan", "topics"]

TIMEOUT = "5s"
FIELDS = ("kind", "title", "body", "author", "provenance", "version")
"""What can be shown alone."""


def recall(
    key: options.Key = None,
    repo: options.Repo = None,
    topic: options.Topic = None,
    id: options.Id = None,
    field: Annotated[
        str | None,
        typer.Option(
            "--field",
            metavar="FIELD",
            help=f"Only this, exactly as it is: {', '.join(FIELDS)}.",
            show_default=False,
        ),
    ] = None,
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Show an entry.

    Exits with 3 if it is absent, forgotten or past its expiry. Where concurrent writes left different values
    of a field, all of them are shown, with the cluster and the time of each; a write that sets the field
    settles it.

    \b
    Examples:
      ricordo recall repo/api/mem/notes/deploy
      ricordo recall --repo api --topic notes --id 50%/50
      ricordo recall repo/api/mem/notes/deploy --field body > deploy.md
      ricordo recall repo/api/mem/notes/deploy --json | jq -r .version
    """
    named = str(entry_key(key, repo, topic, id))
    if field is not None and field not in FIELDS:
        raise usage(f"must be one of {', '.join(FIELDS)}", field="--field")
    if field is not None and as_json:
        raise usage("does not go with --json", field="--field")
    with connect(address, timeout) as client:
        entry = client.recall(named)
    terminal = Terminal(as_json)
    if not entry.exists:
        if as_json:
            terminal.write_json(entry)
        raise _absent(named)
    if field is None:
        terminal.sheet(entry, entry_sheet(entry))
    else:
        value: str = getattr(entry, field)
        end = "\n" if terminal.out.is_terminal else ""
        terminal.write_bytes(f"{value}{end}".encode())


def history(
    key: options.Key = None,
    repo: options.Repo = None,
    topic: options.Topic = None,
    id: options.Id = None,
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Show the values an entry's fields hold and held.

    For each field the value that is shown, those written at the same time, and those that lost against it. A
    plain edit of a field leaves nothing here: only values that nobody had seen replaced are kept, when a
    later write settles which one stays.

    \b
    Example:
      ricordo history repo/api/mem/notes/deploy
    """
    named = str(entry_key(key, repo, topic, id))
    with connect(address, timeout) as client:
        found = client.history(named)
    terminal = Terminal(as_json)
    if not found.exists:
        if as_json:
            terminal.write_json(found)
        raise _absent(named)
    terminal.sheet(found, history_sheet(found))


def scan(
    repo: options.Repo = None,
    topic: options.Topic = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="NUMBER", help="No more than this many.", show_default=False),
    ] = None,
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """List the entries of a repository or a topic.

    Those that are live, in key order. Where the output is no terminal, each line has topic, id, kind, title,
    tags and expiry with a tab between them.

    \b
    Examples:
      ricordo scan --repo api
      ricordo scan --repo api --topic decisions --json | jq -r '[.key, .title] | @tsv'
    """
    repo_id, topic = scope(repo, topic)
    with connect(address, timeout) as client:
        size = 0 if limit is None else min(limit, 100)
        entries = islice(client.scan(repo_id, topic, page_size=size), limit)
        Terminal(as_json).listing(entries, SCAN_COLUMNS, scan_row, nothing="no live entries there")


def topics(
    repo: options.Repo = None,
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """List the topics of a repository.

    Each with the number of its live entries.

    \b
    Example:
      ricordo topics --repo api
    """
    repo_id, _ = scope(repo)

    def row(count: TopicCount) -> tuple[str, ...]:
        return count.topic, str(count.live)

    with connect(address, timeout) as client:
        columns = (Column("topic", style="cyan"), Column("live", right=True))
        Terminal(as_json).listing(client.list_topics(repo_id), columns, row, nothing="no live entries there")


def repos(
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """List the repositories.

    Each with the number of its live entries.
    """

    def row(count: RepoCount) -> tuple[str, ...]:
        return count.repo_id, str(count.live)

    with connect(address, timeout) as client:
        columns = (Column("repository", style="cyan"), Column("live", right=True))
        Terminal(as_json).listing(client.list_repos(), columns, row, nothing="nothing is remembered here yet")


def _absent(key: str) -> Failure:
    return Failure(
        ExitCode.NOT_FOUND, f"no entry at {key}", remedy="it is absent, forgotten or past its expiry"
    )
