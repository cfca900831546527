"""What a command shows people: a sheet of labelled values, prose and lists. Rendered twice.

On a terminal rich draws it, as wide as the terminal and without colour where ``NO_COLOR`` is set. Anywhere
else it is plain text that other programs can cut: ``label: value``, and lists with a tab between columns.
What comes from entries is shown with its control characters made visible, so that no entry can steer a
terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

__all__ = ["Column", "Fields", "Listing", "Part", "Prose", "Sheet", "print_listing", "print_sheet", "visible"]

_CHUNK = 100
"""Rows that are drawn at a time: long lists appear as they arrive."""

_VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_VISIBLE |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def visible(text: str) -> str:
    """The text with control characters as symbols; line ends and tabs stay."""
    return text.translate(_VISIBLE)


@dataclass(frozen=True, slots=True)
class Fields:
    """Labels and their values; a value of several lines is several values."""

    rows: tuple[tuple[str, str], ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Prose:
    """Text in its own lines."""

    text: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list."""

    name: str
    weight: int = 0
    """Its share of the terminal's width; 0 in a list that is drawn whole, where it is as wide as what stands
    in it."""
    least: int = 0
    """It is never narrower than this, for what must not be cut."""
    right: bool = False
    """Numbers stand on the right."""
    whole: bool = False
    """What is too long is folded; else it is cut. In a list that appears as it arrives it is never folded: it
    gets what the other columns can spare, and where they cannot spare enough the list is written as plain
    lines."""
    style: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """A list that is short enough to be drawn whole."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""


Part = Fields | Prose | Listing


@dataclass(frozen=True, slots=True)
class Sheet:
    """One thing and all that is to be said about it."""

    title: str
    parts: tuple[Part, ...]


def print_sheet(console: Console, sheet: Sheet) -> None:
    """Show a sheet: a panel on a terminal, else plain text."""
    if console.is_terminal:
        drawn: list[RenderableType] = []
        for number, part in enumerate(sheet.parts):
            if part.title or number:
                drawn.append(Rule(Text(part.title, "bold"), style="dim", align="left"))
            drawn.append(_drawn(part))
        console.print(Panel(Group(*drawn), title=Text(visible(sheet.title), "bold"), title_align="left"))
        return
    lines = [f"{visible(sheet.title)}"]
    for part in sheet.parts:
        lines += _plain(part)
    _write(console, lines)


def print_listing(console: Console, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> int:
    """Show a list and return its length. With weights it appears as it arrives, in columns that stay."""
    count = 0
    if not console.is_terminal:
        for row in rows:
            _write(console, ["\t".join(_cell(text) for text in row)])
            count += 1
        return count
    streamed = any(column.weight for column in columns)
    arriving = iter(rows)
    widths: list[int] | None = None
    plain = False
    while chunk := list(islice(arriving, _CHUNK if streamed else None)):
        if streamed and not plain and (widths is None or not _fits(columns, chunk, widths)):
            widths = _widths(columns, chunk, console.width)
            plain = widths is None
        if plain:
            _write(console, ("\t".join(_cell(text) for text in row) for row in chunk))
        else:
            console.print(_table(columns, chunk, widths, header=count == 0))
        count += len(chunk)
    return count


def _needs(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    """How wide each column has to be at least."""
    return [
        max(3, column.least, *(cell_len(_cell(row[at])) for row in rows if column.whole))
        for at, column in enumerate(columns)
    ]


def _fits(columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> bool:
    return all(need <= width for need, width in zip(_needs(columns, rows), widths, strict=True))


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """How the columns share the terminal's width, once the first rows are known; None when there is too
    little of it. What one needs beyond its share is taken from those that are cut, then from the others.
    """
    needs = _needs(columns, rows)
    room = width - 2 * len(columns)
    if sum(needs) > room:
        return None
    shares = sum(column.weight for column in columns)
    spare = max(0, room - sum(column.least for column in columns))
    widths = [max(3, column.least + spare * column.weight // shares) for column in columns]
    missing = sum(max(0, need - has) for need, has in zip(needs, widths, strict=True))
    widths = [max(need, has) for need, has in zip(needs, widths, strict=True)]
    for other in sorted(range(len(columns)), key=lambda at: columns[at].whole):
        given = min(missing, widths[other] - needs[other])
        widths[other] -= given
        missing -= given
    return widths


def _drawn(part: Part) -> RenderableType:
    match part:
        case Prose(text):
            return Text(visible(text))
        case Listing(columns, rows):
            return _table(columns, rows, None, header=True)
        case Fields(rows):
            grid = Table.grid(padding=(0, 2))
            grid.add_column(style="dim", no_wrap=True)
            grid.add_column(overflow="fold")
            for label, value in rows:
                grid.add_row(label, Text(visible(value)))
            return grid


def _table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], widths: Sequence[int] | None, *, header: bool
) -> Table:
    """Without widths each column is as wide as what stands in it. What is too long is cut or folded."""
    table = Table(box=None, show_header=header, pad_edge=False, padding=(0, 2, 0, 0))
    for at, column in enumerate(columns):
        table.add_column(
            column.name,
            width=None if widths is None else widths[at],
            justify="right" if column.right else "left",
            style=column.style,
            header_style="dim",
            overflow="fold" if column.whole else "ellipsis",
            no_wrap=not column.whole,
        )
    for row in rows:
        table.add_row(*(Text(_cell(text)) for text in row))
    return table


def _plain(part: Part) -> Iterator[str]:
    match part:
        case Prose(text, title):
            yield from ("", f"{title}:") if title else ("",)
            yield visible(text)
        case Listing(_, rows, title):
            yield from ("", f"{title}:") if title else ("",)
            for row in rows:
                yield "\t".join(_cell(text) for text in row)
        case Fields(rows, title):
            if title:
                yield from ("", f"{title}:")
            for label, value in rows:
                yield f"{label}: {_cell(value)}"


def _cell(text: str) -> str:
    """One line: line ends and tabs become symbols too."""
    return visible(text).translate({0x0A: 0x240A, 0x09: 0x2409})


def _write(console: Console, lines: Iterable[str]) -> None:
    """Lines as they are: not wrapped, not cut."""
    for line in lines:
        console.file.write(f"{line}\n")
