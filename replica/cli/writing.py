"""The commands that write: remember, update, forget."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import termios
from typing import Annotated

import typer

from replica.cli import options
from replica.cli.exits import naming, usage
from replica.cli.options import (
    connect,
    entry_key,
    given_body,
    parse_links,
    read_duration,
    read_time,
    read_ttl,
    scope,
)
from replica.cli.terminal import Terminal, counted
from replica.cli.views import expiry
from replica.client import DEFAULT_ADDRESS

__all__ = ["forget", "remember", "update"]

TIMEOUT = "5s"

Title = Annotated[str | None, typer.Option("--title", metavar="TEXT", help="The title.", show_default=False)]
Author = Annotated[
    str | None, typer.Option("--author", metavar="NAME", help="Who writes.", show_default=False)
]
Provenance = Annotated[
    str | None,
    typer.Option(
        "--provenance", metavar="TEXT", help="Where it comes from: a commit, a page.", show_default=False
    ),
]
AddLinks = Annotated[
    list[str] | None,
    typer.Option("--link", metavar="RELATION=TARGET", help="Add a link; repeatable.", show_default=False),
]
RemoveLinks = Annotated[
    list[str] | None,
    typer.Option(
        "--unlink", metavar="RELATION=TARGET", help="Remove a link; repeatable.", show_default=False
    ),
]
AddTags = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="Add a tag; repeatable.", show_default=False)
]


def remember(
    key: options.Key = None,
    repo: options.Repo = None,
    topic: options.Topic = None,
    id: options.Id = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="Decision, Note or Memory; of a new entry: Note.",
            show_default=False,
        ),
    ] = None,
    title: Title = None,
    body: options.Body = None,
    body_file: options.BodyFile = None,
    author: Author = None,
    provenance: Provenance = None,
    tag: AddTags = None,
    link: AddLinks = None,
    unlink: RemoveLinks = None,
    ttl: Annotated[
        str | None,
        typer.Option(
            "--ttl",
            metavar="DURATION|none",
            help="Live at least this long: 90s, 12h, 30d. none: a new entry is durable, "
            "whatever the repository's default.",
            show_default=False,
        ),
    ] = None,
    create_only: Annotated[
        bool, typer.Option("--create-only", help="Do not write over a live entry; exit with 5.")
    ] = False,
    if_version: options.IfVersion = None,
    created_at: Annotated[
        str | None,
        typer.Option(
            "--created-at",
            metavar="TIME",
            help="When a new entry was first made: milliseconds or ISO 8601.",
            show_default=False,
        ),
    ] = None,
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Make an entry, or write over it.

    Over the live entry at the key, what is given replaces, tags and links are added, the rest stays. Without
    an id one is made. The text of the entry is --body, or --body-file; standard input is read only for
    --body-file -.

    \b
    Examples:
      ricordo remember --repo api --topic decisions --title "Keep retries at the edge" --tag grpc
      ricordo remember repo/api/mem/notes/deploy --body-file deploy.md --ttl 30d
      git log -1 --format=%B | ricordo remember --repo api --topic notes --body-file -
      ricordo remember repo/api/mem/notes/deploy --link touches=repo/api/file/deploy.sh
    """
    if key is None and id is None:
        if topic is None:
            raise usage(
                "missing",
                field="--repo" if repo is None else "--topic",
                remedy="name the entry by KEY, or give --repo and --topic and let an id be made",
            )
        repo_id, topic = scope(repo, topic)
    else:
        named = entry_key(key, repo, topic, id)
        repo_id, topic, id = named.repo_id, named.topic, named.id
    assert topic is not None
    text = given_body(body, body_file)
    life = None if ttl is None else read_ttl("--ttl", ttl)
    created = None if created_at is None else read_time("--created-at", created_at)
    if title is None and text is None and not tag and not link and if_version is None:
        waiting = " (--body-file - reads what waits on standard input)" if _something_waits() else ""
        raise usage(
            "nothing to remember", remedy=f"give at least one of --title, --body, --tag and --link{waiting}"
        )
    with connect(address, timeout) as client:
        done = client.remember(
            repo_id,
            topic,
            id=id,
            kind=_text("--kind", kind),
            title=_text("--title", title),
            body=text,
            author=_text("--author", author),
            provenance=_text("--provenance", provenance),
            tags=_texts("--tag", tag),
            add_links=parse_links("--link", link),
            remove_links=parse_links("--unlink", unlink),
            ttl_seconds=None if life is None else life / 1000,
            durable=ttl is not None and life is None,
            create_only=create_only,
            if_version=_text("--if-version", if_version),
            created_at_ms=created,
        )
    terminal = Terminal(as_json)
    did = "remembered" if done.created else "wrote over"
    terminal.line(done, f"{did} {done.key}, {_lasting(done.expires_at_ms)}")
    if not as_json:
        if done.kind_ignored:
            terminal.note(f"the kind stays {done.kind}: it is set when an entry is made")
        if done.durable_ignored:
            terminal.note("the entry still expires: no call makes an ephemeral entry durable")
        if done.created_at_ignored:
            terminal.note("the time of creation stays: it is set when an entry is made")
        if title is None and text is None and _something_waits():
            terminal.note("standard input was not read: --body-file - takes the text from there")
        _note_undecodable(terminal, done.undecodable)


def update(
    key: options.Key = None,
    repo: options.Repo = None,
    topic: options.Topic = None,
    id: options.Id = None,
    title: Title = None,
    body: options.Body = None,
    body_file: options.BodyFile = None,
    author: Author = None,
    provenance: Provenance = None,
    tag: AddTags = None,
    untag: Annotated[
        list[str] | None,
        typer.Option("--untag", metavar="TAG", help="Remove a tag; repeatable.", show_default=False),
    ] = None,
    link: AddLinks = None,
    unlink: RemoveLinks = None,
    if_version: options.IfVersion = None,
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Change a live entry.

    Exits with 3 if there is none, and leaves its expiry as it is. What is not given stays as it is, and an
    empty text clears a field.

    \b
    Examples:
      ricordo update repo/api/mem/notes/deploy --title "Deploying" --tag ops --untag draft
      ricordo update repo/api/mem/notes/deploy --body-file - < deploy.md
      ricordo update repo/api/mem/notes/deploy --provenance ""
    """
    named = entry_key(key, repo, topic, id)
    text = given_body(body, body_file)
    changes = (title, text, author, provenance, tag, untag, link, unlink)
    if not any(change is not None and change != [] for change in changes):
        raise usage(
            "nothing to change", remedy="give a field, such as --title, or a tag or link to add or remove"
        )
    with connect(address, timeout) as client, naming(str(named)):
        done = client.update(
            str(named),
            title=_text("--title", title),
            body=text,
            author=_text("--author", author),
            provenance=_text("--provenance", provenance),
            add_tags=_texts("--tag", tag),
            remove_tags=_texts("--untag", untag),
            add_links=parse_links("--link", link),
            remove_links=parse_links("--unlink", unlink),
            if_version=_text("--if-version", if_version),
        )
    counts = [
        _some(done.fields_updated, "field", "set"),
        _some(done.tags_added, "tag", "added"),
        _some(done.tags_removed, "tag", "removed"),
        _some(done.links_added, "link", "added"),
        _some(done.links_removed, "link", "removed"),
    ]
    terminal = Terminal(as_json)
    terminal.line(
        done, f"updated {done.key}: {', '.join(filter(None, counts)) or 'nothing had to be changed'}"
    )
    if not as_json:
        _note_undecodable(terminal, done.undecodable)


def forget(
    key: options.Key = None,
    repo: options.Repo = None,
    topic: options.Topic = None,
    id: options.Id = None,
    lapse: Annotated[
        str | None,
        typer.Option(
            "--lapse",
            metavar="DURATION",
            help="Let it lapse after this long instead; never earlier than it would anyway.",
            show_default=False,
        ),
    ] = None,
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Remove an entry.

    Here at once, and everywhere as the removal arrives. To forget what is not there is no error. A write made
    at the same time on another cluster survives.

    \b
    Examples:
      ricordo forget repo/api/mem/notes/deploy
      ricordo forget repo/api/mem/notes/deploy --lapse 60s
    """
    named = str(entry_key(key, repo, topic, id))
    with connect(address, timeout) as client:
        if lapse is None:
            done = client.forget(named)
        else:
            seconds = read_duration("--lapse", lapse) / 1000
            done = client.forget(named, lapse=True, lapse_seconds=seconds)
    if not done.existed:
        said = f"nothing to forget at {done.key}"
    elif lapse is None:
        said = f"forgot {done.key}"
    else:
        said = f"{done.key} lapses at {expiry(done.expires_at_ms)}"
    terminal = Terminal(as_json)
    terminal.line(done, said)
    if not as_json and done.undecodable:
        terminal.note(f"{done.undecodable} of its concurrent writes could not be decoded by this replica")


def _lasting(expires_at_ms: int | None) -> str:
    return "durable" if expires_at_ms is None else f"until {expiry(expires_at_ms)}"


def _some(count: int, noun: str, verb: str) -> str:
    return f"{counted(count, noun)} {verb}" if count else ""


def _note_undecodable(terminal: Terminal, count: int) -> None:
    if count:
        terminal.note(f"{count} of its concurrent writes cannot be decoded by this replica; they are kept")


def _text(flag: str, value: str | None) -> str | None:
    return None if value is None else options.text(flag, value)


def _texts(flag: str, values: list[str] | None) -> list[str]:
    return [options.text(flag, value) for value in values or ()]


def _something_waits() -> bool:
    """Whether somebody has written to the pipe, or opened the file, that standard input is."""
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
            return False
        return any(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    except (OSError, ValueError):
        return False
