"""The commands that carry entries in and out, one JSON object a line (:mod:`replica.cli.notes`)."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from replica.cli import options
from replica.cli.exits import ExitCode, Failure, usage
from replica.cli.exporting import Exported, export_entries, whole_file
from replica.cli.importing import Account, Done, Import, Policy, Refusal, read_lines
from replica.cli.notes import InvalidLine
from replica.cli.options import connect
from replica.cli.terminal import Terminal, counted, json_value
from replica.client import DEFAULT_ADDRESS

__all__ = ["export", "import_file"]

TIMEOUT = "60s"
STANDARD = "-"

_COUNT = "entries: {task.fields[lines]}"


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The lines; - is standard input.")],
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="Leave live entries as they are, whatever the file says.")
    ] = False,
    durable: Annotated[
        bool,
        typer.Option(
            "--durable",
            help="Lines without ttl_seconds make durable entries, whatever the repository's default.",
        ),
    ] = False,
    continue_on_error: Annotated[
        bool, typer.Option("--continue-on-error", help="Go on after a line that is refused.")
    ] = False,
    from_line: Annotated[
        int, typer.Option("--from-line", min=1, metavar="NUMBER", help="Begin at this line, counted from 1.")
    ] = 1,
    check: Annotated[
        bool, typer.Option("--check", help="Only check the form of every line; call no replica.")
    ] = False,
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Import entries from a file of JSON lines.

    Of each line repo and topic are needed; id, kind, title, body, author, provenance, created_at
    (milliseconds), tags, links (an object: relation to list of targets) and ttl_seconds may be left out.
    Anything else is refused. A new entry takes all of its line. Over a live one the fields of the line
    replace, tags and links are added; its kind and its time of creation stay.

    An import can be run again, however it ended: lines that are done are found unchanged and not written
    again, and their expiry is not put off. So after an interruption run the same command again, or spare the
    replica the comparing with --from-line, as the last message says.

    It stops at the first line that is refused, unless told to go on, and then exits with 1; refused lines are
    named on standard error as FILE:LINE.

    \b
    Examples:
      ricordo import notes.jsonl
      ricordo import notes.jsonl --continue-on-error --json
      ricordo export --address eu.example:7600 | ricordo import -
    """
    terminal = Terminal(as_json)
    policy = Policy(skip_existing=skip_existing, durable=durable, continue_on_error=continue_on_error)
    with _opened(file) as source:
        if check:
            _check(terminal, file, source, from_line)
            return
        with connect(address, timeout) as client, terminal.progress(_COUNT) as progress:
            running = Import(client, policy)
            task = progress.add_task("importing", total=_size(source), lines=0)
            told = 0
            try:
                for account in running.run(read_lines(source, from_line)):
                    progress.update(task, completed=account.settled_bytes, lines=account.lines)
                    for refusal in account.refusals[told:]:
                        terminal.note(_refused(file, refusal))
                    told = len(account.refusals)
            except KeyboardInterrupt:
                progress.stop()
                terminal.note(_go_on(file, "interrupted", running.account, from_line))
                raise typer.Exit(ExitCode.INTERRUPTED) from None
            except BaseException:
                progress.stop()
                terminal.note(_go_on(file, "stopped", running.account, from_line))
                raise
    _report(terminal, file, running.account, policy, from_line)


def _report(terminal: Terminal, file: Path, account: Account, policy: Policy, from_line: int) -> None:
    refused = len(account.refusals)
    said: dict[str, object] = {
        "lines": account.lines,
        **{done.value: count for done, count in account.counts.items()},
        "refused": refused,
        "kind_ignored": account.kind_ignored,
        "refusals": account.refusals,
    }
    shown = [f"{count} {done}" for done, count in account.counts.items() if count or done is not Done.SKIPPED]
    terminal.line(said, f"{counted(account.lines, 'line')}: {', '.join(shown)}, {refused} refused")
    if account.kind_ignored and not terminal.as_json:
        terminal.note(
            f"{counted(account.kind_ignored, 'entry keeps its kind', 'entries keep their kind')}: it is set "
            "when an entry is made"
        )
    if refused:
        if not policy.continue_on_error:
            terminal.note(_go_on(file, "stopped", account, from_line))
        raise typer.Exit(ExitCode.REFUSED)


def _go_on(file: Path, how: str, account: Account, from_line: int) -> str:
    if account.next_line <= from_line:
        return f"{how} before any line was known to be done: run the same command again"
    resume = "" if str(file) == STANDARD else f", or with --from-line {account.next_line}"
    return f"{how}; lines {from_line} to {account.next_line - 1} are done: run the same command again{resume}"


def _refused(file: Path, refusal: Refusal) -> str:
    failure = Failure(ExitCode.REFUSED, refusal.message, field=refusal.field, remedy=refusal.remedy)
    return f"{_name(file)}:{refusal.line}: {failure.line()}"


def _check(terminal: Terminal, file: Path, source: BinaryIO, from_line: int) -> None:
    lines = 0
    refusals = []
    for line in read_lines(source, from_line):
        lines += 1
        if isinstance(line.note, InvalidLine):
            refusals.append(Refusal(line.number, line.note.field, line.note.reason, None))
            terminal.note(_refused(file, refusals[-1]))
    said = {"lines": lines, "refused": len(refusals), "refusals": refusals}
    terminal.line(said, f"{counted(lines, 'line')}, {len(refusals)} of them malformed; nothing was sent")
    if refusals:
        raise typer.Exit(ExitCode.REFUSED)


def export(
    repo: Annotated[
        str | None,
        typer.Option("--repo", metavar="REPO", help="Only this repository.", show_default="all of them"),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Write to this file; - is standard output.")
    ] = Path(STANDARD),
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: Annotated[
        bool, typer.Option("--json", help="Say what was exported as one JSON object on standard error.")
    ] = False,
) -> None:
    """Export entries as JSON lines.

    Those that are live, in key order, as import reads them. A line holds what recall shows, with the rest of
    its life as ttl_seconds. Of concurrent values only the shown one is exported, and no history: how many
    entries that touches is said at the end. An entry that the replica cannot decode has no line; the exit
    code is then 1. A file appears whole or not at all.

    \b
    Examples:
      ricordo export > notes.jsonl
      ricordo export --repo api --output api.jsonl
    """
    terminal = Terminal(as_json)
    repo_id = None if repo is None else options.scope(repo)[0]
    account = Exported()
    to_stdout = str(output) == STANDARD
    with connect(address, timeout) as client, ExitStack() as stack:
        # Every repository is counted before the first is read, so that the bar knows where it ends.
        repos = [each for each in client.list_repos() if repo_id in (None, each.repo_id)]
        out = sys.stdout.buffer if to_stdout else stack.enter_context(whole_file(output))
        shown = not (to_stdout and terminal.out.is_terminal)
        with terminal.progress(_COUNT, shown=shown) as progress:
            task = progress.add_task("exporting", total=sum(each.live for each in repos) or None, lines=0)
            for account in export_entries(client, repos, out):
                progress.update(task, advance=1, lines=account.exported)
        out.flush()
    _report_export(terminal, account, output)


def _report_export(terminal: Terminal, account: Exported, output: Path) -> None:
    """On standard output where that is free of the lines themselves, else on standard error."""
    stream = sys.stderr if str(output) == STANDARD else sys.stdout
    if terminal.as_json:
        print(json.dumps(json_value(account)), file=stream)
    else:
        print(f"{counted(account.exported, 'entry', 'entries')} exported", file=stream)
        if account.concurrent:
            terminal.note(
                f"{account.concurrent} of them with concurrent values: the line has the one that is shown"
            )
    if account.undecodable:
        raise Failure(
            ExitCode.REFUSED,
            f"{counted(account.undecodable, 'entry', 'entries')} left out: this replica cannot decode them",
            remedy="export from a replica of the newest version",
        )


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if str(file) == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        source = file.open("rb")
    except OSError as error:
        raise usage(f"cannot read {_name(file)}: {error.strerror}", field="FILE") from None
    with source:
        yield source


def _name(file: Path) -> str:
    return "standard input" if str(file) == STANDARD else str(file)


def _size(source: BinaryIO) -> int | None:
    """In bytes, where it can be known."""
    status = os.fstat(source.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None
