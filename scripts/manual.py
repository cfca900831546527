"""Write `docs/cli.md` from the command line itself, or check that it is current."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import io
import os
import sys
import typing
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from enum import Enum
from pathlib import Path

import typer

from replica.cli.app import app
from replica.cli.app import main as ricordo
from replica.cli.exits import ExitCode
from replica.cli.exporting import Exported
from replica.client import (
    Compacted,
    Counts,
    Digest,
    Entry,
    FieldHistory,
    FieldValue,
    Forgotten,
    HeldBy,
    History,
    MemberStatus,
    PeerStatus,
    Purging,
    Remembered,
    RepoCount,
    Status,
    Storage,
    TopicCount,
    Updated,
    WatchEvent,
)

__all__ = ["BY_HAND", "PAGE", "PRINTED", "commands", "help_of", "main", "manual", "members"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"

PRINTED: Mapping[str, type] = {
    "remember": Remembered,
    "recall": Entry,
    "scan": Entry,
    "topics": TopicCount,
    "repos": RepoCount,
    "update": Updated,
    "history": History,
    "watch": WatchEvent,
    "forget": Forgotten,
    "status": Status,
    "peers list": PeerStatus,
    "digest": Digest,
    "compact": Compacted,
    "export": Exported,
}
"""What each command prints with `--json`; a list prints one such object a line."""

BY_HAND: Mapping[str, Mapping[str, str]] = {
    "peers add": {
        "cluster": "the peer",
        "address": "its replication listener",
        "added": "false: it was already there, with this address",
    },
    "digest --compare": {
        "key": "an entry that the replicas do not hold alike",
        "digests": "an object: by replica, the digest of what it holds, `null` where nothing is live",
        "damaged": "a list of the replicas that cannot read their row",
    },
    "peers remove": {"cluster": "the peer", "removed": "false: there was no such peer"},
    "peers retire": {"cluster": "the member", "retired": "false: it was retired already"},
    "import": {
        "lines": "lines read, empty ones not counted",
        "created": "entries made",
        "updated": "entries written over",
        "unchanged": "entries that held it already",
        "skipped": "entries left alone, with `--skip-existing`",
        "refused": "lines refused",
        "kind_ignored": "entries that keep another kind than the line says",
        "refusals": "a list of objects: `line`, `field`, `message`, `remedy`",
    },
    "import --check": {
        "lines": "lines read, empty ones not counted",
        "refused": "lines that are malformed",
        "refusals": "as above",
    },
    "simulate": {
        "seed": "what all chance came from",
        "ok": "every check held",
        "replicas": "how many",
        "keys": "how many",
        "links": "who peers with whom",
        "faults": "as asked for",
        "tally": "an object of counts: steps, writes, messages, bytes and more",
        "passed_ms": "virtual time",
        "live": "entries at the end",
        "trace": "equal for runs that went the same way",
        "failure": "what did not hold, or null",
    },
    "simulate scale": {
        "setup": "an object: `replicas`, `topology`, `seed`, `writers` (null: all), `writes`, `body_bytes`",
        "links": "how many",
        "phases": (
            "a list of objects: `name`, `passed` (virtual time), `writes`, `reached` (a list: for each write "
            "that arrived everywhere, after how many milliseconds), `data`, `gossip`, `beats`, `greetings` "
            "(objects: `messages`, `bytes`, `copies` of registers, `statements` on members), `busiest_bytes`"
        ),
        "reopened": "streams that a replica gave up and opened again",
    },
    "an error, as the one member `error`": {
        "code": "the gRPC code in words, such as `NOT_FOUND`",
        "message": "what is wrong",
        "field": "the option, argument or field at fault, or null",
        "remedy": "what can be done, or null",
        "exit_code": "as above",
    },
}
"""What the client library has no type for."""

_PARTS = (FieldValue, FieldHistory, Counts, Purging, HeldBy, Storage, MemberStatus)
_WORDS: Mapping[object, str] = {str: "text", int: "number", bool: "true or false", bytes: "hexadecimal text"}

_HEAD = """\
# The command line

Every command that reads or writes calls one replica: that at `--address`, else the one that `RICORDO_ADDRESS`
names, else 127.0.0.1:7600. Results go to standard output, everything else to standard error. On a terminal
lists and entries are laid out; elsewhere they are plain lines, with a tab between the columns of a list.

## Exit codes

| code | meaning |
|---:|---|
"""

_JSON = """
## JSON

With `--json` a result is one object on one line; a list is one such line for each item. The names are those
of the API, and all members are always there: what is absent, or was not measured, is `null`. Bytes are
hexadecimal, times milliseconds since the Unix epoch, UTC. `export` prints its account on standard error. An
error is one line on standard error.
"""

_COMMANDS = """
## Commands

What `--help` says of each.
"""


def members(kind: type) -> Iterator[tuple[str, str, str]]:
    """Name, form and meaning of each member of a result's JSON object."""
    hints = typing.get_type_hints(kind)
    said = _said(kind)
    for field in dataclasses.fields(kind):
        yield field.name, _form(hints[field.name]), said.get(field.name, "")


def _said(kind: type) -> dict[str, str]:
    """The lines that stand under the fields of a class."""
    (body,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(body, ast.ClassDef)
    said = {}
    for field, line in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(line, ast.Expr)
            and isinstance(line.value, ast.Constant)
        ):
            words = " ".join(str(line.value.value).split()).rstrip(".")
            said[field.target.id] = words.replace("None", "`null`")
    return said


def _form(hint: object) -> str:
    """How a value of a type is written in JSON."""
    if hint in _WORDS:
        return _WORDS[hint]
    arguments = [each for each in typing.get_args(hint) if each not in (type(None), ...)]
    origin = typing.get_origin(hint)
    if origin is tuple:
        return f"list of: {_form(arguments[0])}"
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return f"object of: {_form(arguments[1])}"
    if arguments:
        nullable = " or null" if type(None) in typing.get_args(hint) else ""
        return " or ".join(_form(each) for each in arguments) + nullable
    assert isinstance(hint, type)
    if issubclass(hint, Enum):
        return " or ".join(f"`{each.value}`" for each in hint)
    return hint.__name__


def _table(rows: Iterator[tuple[str, str, str]]) -> str:
    lines = ["| member | form | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {form} | {meaning} |" for name, form, meaning in rows]
    return "\n".join(lines) + "\n"


def commands() -> list[tuple[str, ...]]:
    """Every command, by its words."""

    def below(group: typer.core.TyperGroup, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        context = typer.Context(group, info_name=" ".join(("ricordo", *path)))
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            nested = command if isinstance(command, typer.core.TyperGroup) else None
            if nested is None or nested.invoke_without_command:
                yield (*path, name)
            if nested is not None:
                yield from below(nested, (*path, name))

    top = typer.main.get_command(app)
    assert isinstance(top, typer.core.TyperGroup)
    return list(below(top, ()))


def help_of(*words: str) -> str:
    """What `ricordo … --help` prints on a terminal of 80 columns."""
    out = io.StringIO()
    os.environ["COLUMNS"] = "80"
    with redirect_stdout(out):
        ricordo([*words, "--help"])
    return out.getvalue().strip()


def manual() -> str:
    """The page."""
    parts = [_HEAD, *(f"| {code} | {code.meaning} |\n" for code in ExitCode), _JSON]
    kinds: dict[type, list[str]] = {}
    for command, kind in PRINTED.items():
        kinds.setdefault(kind, []).append(command)
    for kind, printing in kinds.items():
        parts.append(f"\n### {', '.join(f'`{command}`' for command in printing)}\n\n{_table(members(kind))}")
    for title, said in BY_HAND.items():
        name = title if title.startswith("an ") else f"`{title}`"
        lines = "".join(f"| `{member}` | {meaning} |\n" for member, meaning in said.items())
        parts.append(f"\n### {name}\n\n| member | meaning |\n|---|---|\n{lines}")
    parts.append("\n### Parts of the above\n")
    for kind in _PARTS:
        parts.append(f"\n**{kind.__name__}**\n\n{_table(members(kind))}")
    parts.append(_COMMANDS)
    for words in commands():
        parts.append(f"\n### ricordo {' '.join(words)}\n\n```text\n{help_of(*words)}\n```\n")
    return "".join(parts)


def main() -> int:
    """Write the page, or with `--check` compare; the result is the exit code: 0 when it is now current."""
    parser = argparse.ArgumentParser(description="Write docs/cli.md.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when it is not current")
    arguments = parser.parse_args()
    if not arguments.check:
        PAGE.write_text(manual(), encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == manual():
        return 0
    print(f"manual: {PAGE.name} is not current: run `python scripts/manual.py`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
