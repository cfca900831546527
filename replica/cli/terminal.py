"""Where a command writes: results on standard output, everything else on standard error.

With ``--json`` a result is one JSON object on a line of its own; a list is one such line for each item. The
names of the members are those of the API's fields (`proto/ricordo/v1`), and all of them are always there:
what is absent is null. Bytes are hexadecimal, times milliseconds since the Unix epoch, links and concurrent
values objects by relation and by field.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from replica.cli.sheet import Column, Sheet, print_listing, print_sheet

__all__ = ["Terminal", "console", "counted", "json_value"]

Item = TypeVar("Item")


def console(*, stderr: bool = False) -> Console:
    """A console that shows text as it is: no markup, no emoji codes, no guessing what looks like a number."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def counted(count: int, one: str, several: str | None = None) -> str:
    """A number and what it counts: ``1 entry``, ``2 entries``; several are the one with an s unless told."""
    return f"{count} {one if count == 1 else several or f'{one}s'}"


def json_value(value: object) -> object:
    """A value of the client library as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    return value


class Terminal:
    """The two streams of one command."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        """Results are for programs."""
        self.out = console()
        self.err = console(stderr=True)

    def write_json(self, value: object) -> None:
        """One line of JSON."""
        line = json.dumps(json_value(value), ensure_ascii=False)
        self.write_bytes(f"{line}\n".encode())

    def write_bytes(self, data: bytes) -> None:
        """Bytes exactly as they are."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data)

    def sheet(self, value: object, sheet: Sheet) -> None:
        """One result: for programs the value, for people the sheet."""
        if self.as_json:
            self.write_json(value)
        else:
            print_sheet(self.out, sheet)

    def line(self, value: object, text: str) -> None:
        """One result that a sentence says."""
        if self.as_json:
            self.write_json(value)
        else:
            print(text)

    def listing(
        self,
        items: Iterable[Item],
        columns: Sequence[Column],
        row: Callable[[Item], Sequence[str]],
        *,
        nothing: str,
    ) -> None:
        """A list as it arrives; `nothing` says to people that it is empty."""
        if self.as_json:
            for item in items:
                self.write_json(item)
        elif not print_listing(self.out, columns, map(row, items)):
            self.note(nothing)

    def progress(self, count: str, *, shown: bool = True) -> Progress:
        """A bar on standard error, if that is a terminal; it goes when it is done. `count` is a format for
        the fields of a task.
        """
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn(count),
            TimeRemainingColumn(),
            console=self.err,
            transient=True,
            disable=not (shown and self.err.is_terminal),
        )

    def note(self, text: str) -> None:
        """Something to know that is no result."""
        print(text, file=sys.stderr)
