"""The command that watches what changes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from replica.cli import options
from replica.cli.exits import usage
from replica.cli.options import connect, scope
from replica.cli.sheet import visible
from replica.cli.terminal import Terminal
from replica.cli.times import format_time
from replica.client import DEFAULT_ADDRESS, WatchEvent

__all__ = ["watch"]

TIMEOUT = "30s"


def watch(
    repo: Annotated[
        str | None,
        typer.Option("--repo", metavar="REPO", help="Only this repository.", show_default="all of them"),
    ] = None,
    topic: options.Topic = None,
    from_now: Annotated[bool, typer.Option("--from-now", help="Leave out what is live already.")] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="TOKEN",
            help="Go on behind an event: its resume_token, of a watch of the same scope.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, metavar="NUMBER", help="End after so many events.", show_default=False
        ),
    ] = None,
    address: options.Address = DEFAULT_ADDRESS,
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout", metavar="DURATION", help="How long the replica may be out of reach before this ends."
        ),
    ] = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Show what changes, until it is interrupted.

    First what is live, in key order; then, as it happens, each entry that is put, is forgotten, or lapses at
    its expiry. Of changes that follow each other fast the last is shown. Where the output is no terminal,
    each line has event, key, and title or expiry with a tab between them.

    With --json there are progress events, too, and every event has the token with which --resume goes on
    behind it. Exits with 6 if what happened since is not known any more: then begin without --resume.

    \b
    Examples:
      ricordo watch --repo api --topic decisions
      ricordo watch --from-now --json | jq -c 'select(.kind == "lapsed") | .key'
    """
    if resume is not None and from_now:
        raise usage("does not go with --from-now", field="--resume")
    if resume is not None and not resume:
        raise usage("must not be empty", field="--resume")
    if repo is None and topic is not None:
        raise usage("needs --repo", field="--topic")
    repo_id = None if repo is None else scope(repo, topic)[0]
    token = "" if resume is None else options.text("--resume", resume)
    terminal = Terminal(as_json)
    try:
        with connect(address, timeout) as client:
            for event in client.watch(
                repo_id, topic, initial_state=not from_now and resume is None, resume_token=token
            ):
                _show(event, terminal)
                token = event.resume_token
                # At once, for somebody waits for it; after the token, for an interruption may come now.
                sys.stdout.flush()
                if limit is not None and event.key is not None:
                    limit -= 1
                    if not limit:
                        break
    except KeyboardInterrupt:
        _say_token(token, terminal)
        raise
    _say_token(token, terminal)


def _show(event: WatchEvent, terminal: Terminal) -> None:
    if terminal.as_json:
        terminal.write_json(event)
    elif event.key is not None:
        print(_line(event, wide=terminal.out.is_terminal))


def _say_token(token: str, terminal: Terminal) -> None:
    if token and not terminal.as_json:
        terminal.note(f"go on with --resume {token}")


def _line(event: WatchEvent, *, wide: bool) -> str:
    """One event on one line."""
    about = ""
    if event.entry is not None:
        about = event.entry.title
    elif event.expires_at_ms is not None:
        about = f"at {format_time(event.expires_at_ms)}"
    cells = (f"{event.kind:<9}" if wide else event.kind, event.key or "", " ".join(about.split()))
    return ("  " if wide else "\t").join(map(visible, cells))
