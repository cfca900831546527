"""Draw what `bench_store_size`, `bench_reconcile` and `bench_absent_peer` have measured, and put it into
docs/bounds.md.

    python -m scripts.bench_bounds
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from scripts.bench_parts import DOCS
from scripts.diagrams import EDGE, FOLDER, QUIET, Drawing

__all__ = ["PAGE", "Line", "Plot", "files", "main", "page"]

PAGE = DOCS / "bounds.md"

_Row: TypeAlias = Mapping[str, object]
_COLOURS = ("#3b6fb6", "#b7791f", "#3a8a55", "#8e5ea2", "#8793a0")
_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 28, 66, 56


@dataclass(frozen=True, slots=True)
class Line:
    """Points, in order, and what they are of."""

    label: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


class _Axis:
    """From values to pixels. A logarithmic axis shows nothing at or below 0."""

    def __init__(self, values: Sequence[float], log: bool, first: float, last: float) -> None:
        self._log, self._first, self._last = log, first, last
        if log:
            shown = [math.log10(value) for value in values if value > 0]
            self._low, self._high = float(math.floor(min(shown))), float(math.ceil(max(shown)))
        else:
            self._low, self._high = 0.0, float(max(values))
        if self._high == self._low:
            self._high = self._low + 1

    def shows(self, value: float) -> bool:
        return value > 0 or not self._log

    def place(self, value: float) -> float:
        at = math.log10(value) if self._log else value
        return self._first + (at - self._low) / (self._high - self._low) * (self._last - self._first)

    def ticks(self) -> list[float]:
        if self._log:
            return [10.0**power for power in range(round(self._low), round(self._high) + 1)]
        raw = (self._high - self._low) / 5
        power = 10 ** math.floor(math.log10(raw))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
        return [step * number for number in range(int(self._high / step) + 1)]


class Plot(Drawing):
    """Lines over one pair of axes."""

    def __init__(
        self,
        title: str,
        across: str,
        up: str,
        lines: Sequence[Line],
        *,
        log_across: bool = False,
        log_up: bool = False,
    ) -> None:
        super().__init__(_WIDTH, _HEIGHT, title)
        points = [point for line in lines for point in line.points]
        top = _TOP + 18 * len(lines)
        self._across = _Axis([x for x, _ in points], log_across, _LEFT, _WIDTH - _RIGHT)
        self._up = _Axis([y for _, y in points], log_up, _HEIGHT - _BOTTOM, top)
        self.words(_WIDTH / 2, 28, [title], bold=True, within=_WIDTH - 24)
        self.words(_WIDTH / 2, _HEIGHT - 14, [across], size=12, colour=QUIET)
        self.words(24, _TOP - 12, [up], size=12, colour=QUIET, anchor="start")
        for value in self._up.ticks():
            y = self._up.place(value)
            self._path(f"M{_LEFT} {y:.1f} H{_WIDTH - _RIGHT}", EDGE, 0.7)
            self.words(_LEFT - 8, y + 4, [_short(value)], size=11, colour=QUIET, anchor="end")
        for value in self._across.ticks():
            x = self._across.place(value)
            self.words(x, _HEIGHT - _BOTTOM + 18, [_short(value)], size=11, colour=QUIET)
        for number, line in enumerate(lines):
            self._line(line, _COLOURS[number % len(_COLOURS)], _TOP + 6 + 18 * number)

    def _line(self, line: Line, colour: str, y: float) -> None:
        shown = [
            (self._across.place(x), self._up.place(y))
            for x, y in line.points
            if self._across.shows(x) and self._up.shows(y)
        ]
        path = " ".join(f"{'L' if at else 'M'}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(shown))
        self._path(path, colour, 1.8, dashed=line.dashed)
        if len(shown) <= 12:
            self._parts += (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in shown)
        self._path(f"M{_LEFT + 12} {y} h26", colour, 1.8, dashed=line.dashed)
        self.words(_LEFT + 46, y + 4, [line.label], size=12, anchor="start")

    def _path(self, path: str, colour: str, width: float, *, dashed: bool = False) -> None:
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        self._parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dash}/>')


def _short(value: float) -> str:
    for size, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{suffix}"
    return f"{value:g}"


# --- what was measured


def _measured(name: str) -> _Row:
    return cast(_Row, json.loads((DOCS / f"bounds-{name}.json").read_text(encoding="utf-8")))


def _rows(found: object) -> list[_Row]:
    return cast(list[_Row], found)


def _row(found: object) -> _Row:
    return cast(_Row, found)


def _n(row: _Row, name: str) -> float:
    found = row[name]
    assert isinstance(found, int | float)
    return found


def _points(rows: Sequence[_Row], across: str, up: str) -> list[tuple[float, float]]:
    return [(_n(row, across), _n(row, up)) for row in rows]


# --- the plots


def _store_size() -> Plot:
    lines, filled, last = [], 0.0, 0.0
    for label, found in _row(_measured("store-size")["runs"]).items():
        run = _row(found)
        timeline = _points(_rows(run["timeline"]), "writes", "file_bytes")
        writes = timeline[-1][0]
        after = [
            (writes * (1.04 + 0.05 * at), _n(row, "file_bytes")) for at, row in enumerate(_rows(run["after"]))
        ]
        lines.append(
            Line(f"{label}; then purges: at once, after ten minutes, past the grace", timeline + after)
        )
        filled, last = _n(_row(run["filled"]), "file_bytes"), after[-1][0]
    lines.append(Line("freshly filled from it", [(0, filled), (last, filled)], dashed=True))
    return Plot("The file of a store that is written to", "writes", "bytes", lines, log_up=True)


def _reconcile(what: str, title: str, up: str) -> Plot:
    returns = _rows(_measured("reconcile")["returns"])
    lines = []
    for difference in sorted({_n(row, "difference") for row in returns}):
        of_this = [row for row in returns if row["difference"] == difference]
        points = [(_n(row, "stored"), _n(_row(row["back"]), what)) for row in of_this]
        lines.append(Line(f"{difference:,.0f} keys differ", points))
    whole = {_n(row, "stored"): _n(_row(row["whole"]), what) for row in returns if row["whole"] is not None}
    lines.append(Line("everything, to an empty replica", sorted(whole.items()), dashed=True))
    return Plot(title, "notes that are stored", up, lines, log_across=True, log_up=True)


def _absent_peer() -> Plot:
    runs = _row(_measured("absent-peer")["runs"])
    lines = [
        Line(f"change log, {label}", _points(_rows(rows), "day", "changes"), dashed=bool(number))
        for number, (label, rows) in enumerate(runs.items())
    ]
    first = _rows(next(iter(runs.values())))
    lines.append(Line("notes that live", _points(first, "day", "live"), dashed=True))
    return Plot("What a replica keeps while a peer is down for ever", "days", "rows", lines)


PLOTS: Mapping[str, Callable[[], Plot]] = {
    "bounds-store-size": _store_size,
    "bounds-reconcile-bytes": lambda: _reconcile(
        "bytes", "What is sent to a replica that comes back", "bytes"
    ),
    "bounds-reconcile-seconds": lambda: _reconcile(
        "seconds", "The time of both replicas together", "seconds of processor time"
    ),
    "bounds-absent-peer": _absent_peer,
}
"""By the name of their file."""


# --- the tables


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _bytes(count: float) -> str:
    return f"{count / 1e6:,.2f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def _machine(name: str) -> str:
    found = _measured(name)
    machine = _row(found["machine"])
    return (
        f"`{found['command']}`: {machine['processors']} processors, Python {machine['python']}, LMDB"
        f" {machine['lmdb']}, stores {machine['stores']}; the load of the machine was"
        f" {machine['load_before']} when it began and {machine['load_after']} when it ended."
    )


def _store_size_table() -> str:
    parts = []
    for label, found in _row(_measured("store-size")["runs"]).items():
        run = _row(found)
        rows = [*_rows(run["after"]), _row(run["filled"]), _row(run["packed"])]
        peak = max(_rows(run["timeline"]), key=lambda row: _n(row, "file_bytes"))
        rows.insert(0, {**peak, "moment": "largest, while it was written to"})
        cells = [
            [
                str(row["moment"]),
                _bytes(_n(row, "file_bytes")),
                _bytes(_n(row, "used_bytes")),
                f"{_n(row, 'registers'):,}",
                f"{_n(row, 'results'):,}",
            ]
            for row in rows
        ]
        head = ("moment", "file", "pages in use", "registers", "results of requests")
        parts.append(
            f"**{label.capitalize()}**: {run['ratio']} times a freshly filled store,"
            f" {run['ratio_to_packed']} times the smallest that these rows can have.\n\n{_table(head, cells)}"
        )
    return "\n\n".join([*parts, _machine("store-size")])


def _reconcile_table() -> str:
    cells = []
    for row in _rows(_measured("reconcile")["returns"]):
        back, news = _row(row["back"]), _row(row["news"])
        cells.append(
            [f"{_n(row, 'stored'):,}", f"{_n(row, 'difference'):,}", *_cost(back), _bytes(_n(news, "bytes"))]
        )
    whole = {
        _n(row, "stored"): _row(row["whole"])
        for row in _rows(_measured("reconcile")["returns"])
        if row["whole"] is not None
    }
    cells += ([f"{stored:,}", "everything", *_cost(cost), ""] for stored, cost in whole.items())
    head = ("stored", "differ", "messages", "registers", "sent to it", "processor time", "pulled from it")
    return f"{_table(head, cells)}\n\n{_machine('reconcile')}"


def _cost(cost: _Row) -> list[str]:
    return [
        f"{_n(cost, 'messages'):,}",
        f"{_n(cost, 'registers'):,}",
        _bytes(_n(cost, "bytes")),
        f"{_n(cost, 'seconds'):,.2f} s",
    ]


def _absent_peer_table() -> str:
    parts = []
    for label, found in _row(_measured("absent-peer")["runs"]).items():
        rows = _rows(found)
        shown = [row for row in rows if row["day"] in (1, 3, 7, 8, 10, 14, len(rows))]
        head = ("day", "live", "change log", "tombstones", "waiting", "results", "clock", "file", "memory")
        cells = [
            [
                *(
                    f"{_n(row, name):,}"
                    for name in ("day", "live", "changes", "tombstones", "waiting", "results")
                ),
                f"{_n(row, 'clock_bytes')} B",
                _bytes(_n(row, "file_bytes")),
                _bytes(_n(row, "memory_bytes")),
            ]
            for row in shown
        ]
        parts.append(f"**{label.capitalize()}**\n\n{_table(head, cells)}")
    return "\n\n".join([*parts, _machine("absent-peer")])


TABLES: Mapping[str, Callable[[], str]] = {
    "store-size": _store_size_table,
    "reconcile": _reconcile_table,
    "absent-peer": _absent_peer_table,
}
"""By the name of their place in the page."""


def page(before: str) -> str:
    """The page with the tables as they were measured."""
    for name, table in TABLES.items():
        begin, end = f"<!-- measured: {name} -->", "<!-- end of what was measured -->"
        head, _, rest = before.partition(begin)
        _, _, tail = rest.partition(end)
        before = f"{head}{begin}\n\n{table()}\n\n{end}{tail}"
    return before


def files() -> dict[Path, str]:
    """Everything that is made of the figures."""
    drawn = {FOLDER / f"{name}.svg": draw().svg() for name, draw in PLOTS.items()}
    return {**drawn, PAGE: page(PAGE.read_text(encoding="utf-8"))}


def main() -> int:
    """Write page and plots, or with `--check` compare; the result is the exit code: 0 when all is current."""
    parser = argparse.ArgumentParser(description="Draw docs/bounds.md.")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail when something is not current"
    )
    check = parser.parse_args().check
    stale = []
    for file, content in files().items():
        if file.is_file() and file.read_text(encoding="utf-8") == content:
            continue
        stale.append(file.name)
        if not check:
            file.write_text(content, encoding="utf-8")
    if check and stale:
        print(f"not current: {', '.join(stale)}: run `python -m scripts.bench_bounds`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
