"""The options that several commands share, and what their texts mean."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from crdt.dot import Millis
from crdt.key import EntryKey, InvalidKey, check_component
from replica.cli.exits import failure_of, usage
from replica.cli.times import parse_time
from replica.client import Client, Retry, RicordoError
from replica.durations import InvalidDuration, format_duration, parse_duration, parse_ttl

__all__ = [
    "Address",
    "Body",
    "BodyFile",
    "Id",
    "IfVersion",
    "Json",
    "Key",
    "Repo",
    "Timeout",
    "Topic",
    "connect",
    "entry_key",
    "given_body",
    "parse_links",
    "read_duration",
    "read_time",
    "read_ttl",
    "scope",
    "text",
]

BODY_MAX_BYTES = 64 * 1024
"""No replica takes more: what is longer need not be read."""
LONGEST_TIMEOUT = Millis(600_000)
"""A replica remembers for this long that a write was made: no call may be repeated later."""

Address = Annotated[
    str,
    typer.Option(
        "--address",
        envvar="RICORDO_ADDRESS",
        metavar="HOST:PORT",
        help="The replica to call.",
        show_default=True,
    ),
]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="DURATION", help="How long a call may take, with all its retries.")
]
Json = Annotated[
    bool, typer.Option("--json", help="JSON for programs: one object a line, named as in the API.")
]
Key = Annotated[
    str | None,
    typer.Argument(
        metavar="KEY",
        help="The entry: repo/REPO/mem/TOPIC/ID, with % written %25 and / written %2F inside a part. "
        "Or name the parts, unescaped, with --repo, --topic and --id.",
        show_default=False,
    ),
]
Repo = Annotated[
    str | None, typer.Option("--repo", metavar="REPO", help="The repository.", show_default=False)
]
Topic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="The topic.", show_default=False)]
Id = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="The id of the entry.", show_default=False)
]
IfVersion = Annotated[
    str | None,
    typer.Option(
        "--if-version",
        metavar="VERSION",
        help="Write only if this is still the entry's version, as recall shows it; else exit with 5.",
        show_default=False,
    ),
]
Body = Annotated[str | None, typer.Option("--body", metavar="TEXT", help="The text.", show_default=False)]
BodyFile = Annotated[
    Path | None,
    typer.Option(
        "--body-file",
        metavar="FILE",
        help="Read the text from a file; - is standard input.",
        show_default=False,
    ),
]


@contextmanager
def connect(address: str, timeout: str) -> Iterator[Client]:
    """A client of the replica at an address; a call that fails is a :class:`replica.cli.exits.Failure`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port[:6]) < 65536:
        raise usage("is no address: write host:port, such as 127.0.0.1:7600", field="--address")
    limit = read_duration("--timeout", timeout)
    if limit > LONGEST_TIMEOUT:
        raise usage(f"must be at most {format_duration(LONGEST_TIMEOUT)}", field="--timeout")
    seconds = limit / 1000
    with Client(address, retry=Retry(deadline=seconds, attempt_timeout=seconds)) as client:
        try:
            yield client
        except RicordoError as error:
            raise failure_of(error, address) from error


def entry_key(key: str | None, repo: str | None, topic: str | None, id: str | None) -> EntryKey:
    """The one entry that a command line names, by its key or by its parts."""
    if key is not None:
        if repo is not None or topic is not None or id is not None:
            raise usage("name the entry by KEY or by --repo, --topic and --id, not by both", field="KEY")
        try:
            return EntryKey.parse(text("KEY", key))
        except InvalidKey as error:
            field = error.field if error.field == "key" else f"key: {error.field}"
            raise usage(error.reason, field=field) from None
    if repo is None or topic is None or id is None:
        missing = [
            name for name, part in (("--repo", repo), ("--topic", topic), ("--id", id)) if part is None
        ]
        raise usage(f"missing {', '.join(missing)}", remedy="name the entry by KEY or by all three parts")
    return EntryKey(
        _part("repo_id", "--repo", repo), _part("topic", "--topic", topic), _part("id", "--id", id)
    )


def scope(repo: str | None, topic: str | None = None) -> tuple[str, str | None]:
    """The repository, or one topic in it, that a command line names."""
    if repo is None:
        raise usage("missing", field="--repo", remedy="'ricordo repos' lists the repositories")
    return _part("repo_id", "--repo", repo), None if topic is None else _part("topic", "--topic", topic)


def _part(field: str, flag: str, part: str) -> str:
    try:
        return check_component(field, text(flag, part))
    except InvalidKey as error:
        raise usage(error.reason, field=flag) from None


def text(field: str, value: str) -> str:
    """The value, if it is text: arguments are bytes, and any bytes can be typed."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise usage("is not valid UTF-8", field=field) from None
    return value


def given_body(body: str | None, file: Path | None) -> str | None:
    """The body that a command was given, or None. Standard input is read only where it is asked for: a pipe
    that nobody writes to, as services and jobs have, would be waited for in vain.
    """
    if body is not None:
        if file is not None:
            raise usage("give --body or --body-file, not both", field="--body-file")
        return text("--body", body)
    if file is not None and str(file) != "-":
        try:
            with file.open("rb") as source:
                return _read("--body-file", source)
        except OSError as error:
            raise usage(f"cannot read {file}: {error.strerror}", field="--body-file") from None
    if file is not None:
        return _read("standard input", sys.stdin.buffer)
    return None


def _read(field: str, source: BinaryIO) -> str:
    """All of a source, if it is text, and no longer than a body can be on any replica."""
    data = source.read(BODY_MAX_BYTES + 1)
    if len(data) > BODY_MAX_BYTES:
        raise usage(f"is longer than {BODY_MAX_BYTES} bytes, the most that a body can have", field=field)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise usage(f"is not valid UTF-8 at byte {error.start}", field=field) from None


def parse_links(flag: str, links: Iterable[str] | None) -> dict[str, list[str]]:
    """Relation to targets, from texts like ``touches=repo/api/file/a.py``."""
    found: dict[str, list[str]] = {}
    for link in links or ():
        relation, equals, target = text(flag, link).partition("=")
        if not equals:
            raise usage("must be written RELATION=TARGET", field=flag)
        found.setdefault(relation, []).append(target)
    return found


def read_ttl(flag: str, ttl: str) -> Millis | None:
    """A duration, or None for ``none``."""
    try:
        return parse_ttl(ttl)
    except InvalidDuration as error:
        raise usage(str(error), field=flag) from None


def read_duration(flag: str, duration: str) -> Millis:
    """A duration."""
    try:
        return parse_duration(duration)
    except InvalidDuration as error:
        raise usage(str(error), field=flag) from None


def read_time(flag: str, time: str) -> Millis:
    """A moment."""
    try:
        return parse_time(time)
    except ValueError as error:
        raise usage(str(error), field=flag) from None
