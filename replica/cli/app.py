"""The command line `ricordo`: a client of a replica, and the command that serves one.

Nothing is decided here: a command reads its options, makes a call and shows the answer. What goes wrong is
said in one line on standard error, and by the exit code (:class:`replica.cli.exits.ExitCode`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from replica import __version__
from replica.cli import admin, digest, reading, transfer, watching, writing
from replica.cli.exits import ExitCode, Failure, usage

__all__ = ["app", "main"]

_SERVE = "serve"
_SIMULATE = "simulate"

_HELP = "\n".join(
    [
        "Replicated memory for AI agents: every cluster has its own copy, and all copies converge.",
        "",
        "An entry lives at a key, repo/REPO/mem/TOPIC/ID. Every command that reads or writes calls one",
        "replica: that at --address, else the one that RICORDO_ADDRESS names, else 127.0.0.1:7600.",
        "",
        "\b",
        "Exit codes:",
        *(f"  {code:>3}  {code.meaning}" for code in ExitCode),
    ]
)


def _serve() -> typer.Typer:
    from replica.cli.serve import serve_app

    return serve_app


def _simulate() -> typer.Typer:
    from replica.cli.simulating import simulate_app

    return simulate_app


_LATE = {_SERVE: _serve, _SIMULATE: _simulate}


class _ReaderGone(Exception):
    """Nobody reads the output any more."""


class _Commands(TyperGroup):
    """The commands, with two ways of their own.

    `serve` and `simulate` are made when they are asked for: what they need takes longer to load than most
    calls of a client. And typer takes a broken pipe for an error like another; here it has an exit code.
    """

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - typer's own name for the type is private
        return [_SERVE, *(name for name in super().list_commands(ctx) if name not in _LATE), _SIMULATE]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - as above
        if cmd_name in _LATE and cmd_name not in self.commands:
            self.commands[cmd_name] = typer.main.get_command(_LATE[cmd_name]())
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGone from error


app = typer.Typer(
    name="ricordo",
    cls=_Commands,
    help=_HELP,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
"""All commands."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ricordo {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


app.command("remember")(writing.remember)
app.command("recall")(reading.recall)
app.command("scan")(reading.scan)
app.command("topics")(reading.topics)
app.command("repos")(reading.repos)
app.command("update")(writing.update)
app.command("history")(reading.history)
app.command("watch")(watching.watch)
app.command("forget")(writing.forget)
app.command("status")(admin.status)
app.add_typer(admin.peers, name="peers")
app.command("digest")(digest.digest)
app.command("compact")(admin.compact)
app.command("import")(transfer.import_file)
app.command("export")(transfer.export)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; `arguments` are those of the process unless given."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # Whatever the locale: entries hold any text, and JSON is UTF-8.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
    command = typer.main.get_command(app)
    try:
        result = command.main(given, prog_name="ricordo", standalone_mode=False)
        sys.stdout.flush()
    except Failure as failure:
        return _fail(failure, given)
    except typer.TyperException as error:
        message = error.format_message().rstrip(".")
        remedy = None if "?" in message or "(" in message else "--help shows what is expected"
        return _fail(usage(message, remedy=remedy), given)
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except (_ReaderGone, BrokenPipeError):
        return _reader_gone()
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return _fail(Failure(ExitCode.REFUSED, f"{name}{error.strerror or error}"), given)
    return result if isinstance(result, int) else ExitCode.OK


def _fail(failure: Failure, arguments: Sequence[str]) -> int:
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    line = failure.as_json() if "--json" in options else f"ricordo: {failure.line()}"
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_gone()
    except OSError:
        _write_no_more()
    # The exit code says it, too, where nothing can be written.
    with suppress(OSError):
        print(line, file=sys.stderr)
    return failure.exit_code


def _open_closed_streams() -> None:
    """Stand in for the standard streams that the process was started without.

    Else the next file that is opened, such as the store, gets the number of one, and whatever a library
    prints. To read or write a result there is an error, as it is to other programs; what is said beside it
    vanishes.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), "r")
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", buffering=1)


def _reader_gone() -> int:
    """End without a word, and without another attempt to write."""
    _write_no_more()
    return ExitCode.BROKEN_PIPE


def _write_no_more() -> None:
    """Let go what could not be written: at its end the process would try again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
