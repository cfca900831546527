"""Measure what replication costs fleets of growing size: `docs/scale.json`, and from it tables and plots.

Without options it runs the whole grid, some minutes on one core, and draws. The measures are of virtual time
and of messages, a function of the seed alone; only `cpu_s` is of the machine.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from replica.cli.scaling import format_bytes
from replica.simulator.scale import SHAPES, Phase, ScaleReport, ScaleSetup, measure_scale
from replica.wire.sizes import wire_size
from scripts.diagrams import EDGE, INK, QUIET, Drawing

__all__ = ["Figures", "curves", "figures", "grid", "main", "tables"]

DOCS = Path(__file__).resolve().parent.parent / "docs"
RESULTS, PAGE, PLOTS = DOCS / "scale.json", DOCS / "scale.md", DOCS / "diagrams"

_SIZES = (3, 10, 30, 100)
_LARGE = frozenset({"star", "tree"})
"""What is measured beyond 30 replicas: others of a hundred take minutes each."""

_FEW = 30
_WRITERS = 5
_BEGIN, _END = "<!-- measured: written by scripts/bench_scale.py -->", "<!-- end of what was measured -->"

_COLOURS = {
    "mesh": "#c0392b",
    "regular": "#8e5ea2",
    "tree": "#3a8a55",
    "star": "#b7791f",
    "ring": "#3b6fb6",
    "chain": "#52606d",
}


class Figures(TypedDict):
    """What one run came to; times in virtual milliseconds, sizes in bytes."""

    topology: str
    replicas: int
    links: int
    write_ms: int
    """A write arrives at the last replica, at worst of all under load."""
    write_messages: float
    """Of data, for each write under load."""
    write_bytes: float
    write_copies: float
    """How often its register travels."""
    gossip_after_write_bytes: int
    """What is told of members because of one write, until nobody has more to tell."""
    gossip_after_write_statements: int
    load_gossip_bytes_minute: float
    """The same while there is a write every second."""
    idle_messages_minute: float
    idle_bytes_minute: float
    """Bare heartbeats, and the share of the refresh."""
    assembly_ms: int
    assembly_bytes: int
    greeting_bytes: float
    """A hello or welcome when streams open again after the fleet was cut in two."""
    heal_ms: int
    """From the network's being whole until every write has arrived everywhere."""
    heal_messages: int
    heal_bytes: int
    heal_copies: int
    busiest_load_bytes_minute: float
    """Sent and received by the busiest replica under load."""
    cpu_s: float


def grid() -> list[tuple[str, int]]:
    """What is measured, small fleets first."""
    return [(shape, size) for size in _SIZES for shape in SHAPES if size <= _FEW or shape in _LARGE]


def figures(report: ScaleReport, cpu_s: float) -> Figures:
    """The figures of a run."""
    assembly, write, load = (report.phase(name) for name in ("assembly", "one write", "load"))
    heal, refresh = report.phase("healing"), report.phase("refresh")
    return Figures(
        topology=report.setup.topology,
        replicas=report.setup.replicas,
        links=report.links,
        write_ms=max(*load.reached, *write.reached),
        write_messages=write.data.messages,
        write_bytes=write.data.bytes,
        write_copies=write.data.copies,
        gossip_after_write_bytes=write.gossip.bytes,
        gossip_after_write_statements=write.gossip.statements,
        load_gossip_bytes_minute=_a_minute(load, load.gossip.bytes),
        idle_messages_minute=_a_minute(report.phase("idle"), report.phase("idle").messages),
        idle_bytes_minute=_a_minute(report.phase("idle"), report.phase("idle").bytes)
        + _a_minute(refresh, refresh.gossip.bytes),
        assembly_ms=assembly.passed,
        assembly_bytes=assembly.bytes,
        greeting_bytes=heal.greetings.bytes / heal.greetings.messages,
        heal_ms=max(heal.reached),
        heal_messages=heal.data.messages + heal.greetings.messages,
        heal_bytes=heal.data.bytes + heal.greetings.bytes + heal.gossip.bytes,
        heal_copies=heal.data.copies,
        busiest_load_bytes_minute=_a_minute(load, load.busiest_bytes),
        cpu_s=round(cpu_s, 1),
    )


def _a_minute(phase: Phase, count: int) -> float:
    return count * 60_000 / phase.passed


def measure(found: list[Figures]) -> None:
    """Run what is missing, and keep each result as soon as it is there."""
    there = {(one["topology"], one["replicas"]) for one in found}
    for shape, size in grid():
        if (shape, size) in there:
            continue
        begun = time.process_time()
        report = measure_scale(ScaleSetup(size, shape, writers=min(size, _WRITERS)), wire_size)
        one = figures(report, time.process_time() - begun)
        found.append(one)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{shape} of {size}: {one['cpu_s']} s", file=sys.stderr, flush=True)


# --- tables

_COLUMNS: Mapping[str, tuple[tuple[str, Callable[[Figures], str]], ...]] = {
    "A write": (
        ("everywhere after", lambda one: _ms(one["write_ms"])),
        ("messages", lambda one: f"{one['write_messages']:,.0f}"),
        ("bytes", lambda one: format_bytes(one["write_bytes"])),
        ("copies of the entry", lambda one: f"{one['write_copies']:,.0f}"),
        ("gossip because of it", lambda one: format_bytes(one["gossip_after_write_bytes"])),
        ("statements in that", lambda one: f"{one['gossip_after_write_statements']:,}"),
    ),
    "A minute": (
        ("idle: messages", lambda one: f"{one['idle_messages_minute']:,.0f}"),
        ("idle: bytes", lambda one: format_bytes(one["idle_bytes_minute"])),
        ("gossip at 60 writes", lambda one: format_bytes(one["load_gossip_bytes_minute"])),
        ("busiest replica at 60 writes", lambda one: format_bytes(one["busiest_load_bytes_minute"])),
    ),
    "Assembly, and healing after half was cut off": (
        ("assembled, known to all", lambda one: _ms(one["assembly_ms"])),
        ("bytes of that", lambda one: format_bytes(one["assembly_bytes"])),
        ("20 writes everywhere after", lambda one: _ms(one["heal_ms"])),
        ("messages", lambda one: f"{one['heal_messages']:,}"),
        ("bytes", lambda one: format_bytes(one["heal_bytes"])),
        ("copies of entries", lambda one: f"{one['heal_copies']:,}"),
        ("one greeting", lambda one: format_bytes(one["greeting_bytes"])),
    ),
}


def _ms(ms: int) -> str:
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def tables(found: Sequence[Figures]) -> str:
    """Everything measured, as Markdown."""
    parts = []
    for title, columns in _COLUMNS.items():
        parts.append(
            f"\n### {title}\n\n| topology | replicas | {' | '.join(name for name, _ in columns)} |\n"
        )
        parts.append(f"|---|---:|{'---:|' * len(columns)}\n")
        for shape in SHAPES:
            for one in found:
                if one["topology"] == shape:
                    cells = " | ".join(form(one) for _, form in columns)
                    parts.append(f"| {shape} | {one['replicas']} | {cells} |\n")
    return "".join(parts)


# --- plots


@dataclass(frozen=True, slots=True)
class _Panel:
    """One plot: a figure over the number of replicas, on logarithmic axes."""

    title: str
    value: Callable[[Figures], float]
    unit: Callable[[float], str]


class _Plot(Drawing):
    """Panels beside each other."""

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.0) -> None:
        """A line through points."""
        path = " ".join(f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(points))
        self._parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>')

    def dot(self, x: float, y: float, colour: str) -> None:
        """A measured point."""
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')

    def panel(self, panel: _Panel, found: Sequence[Figures], at: tuple[float, float]) -> None:
        """Draw a panel with its corner at a place."""
        left, top, width, height = at[0] + 62, at[1] + 34, 330.0, 218.0
        values = [panel.value(one) for one in found]
        low, high = (math.log10(bound) for bound in (min(values), max(values)))
        low, high = math.floor(low), max(math.ceil(high), math.floor(low) + 1)
        sizes = sorted({one["replicas"] for one in found})
        first, last = math.log10(sizes[0]), math.log10(sizes[-1])

        def place(size: float, value: float) -> tuple[float, float]:
            across = (math.log10(size) - first) / (last - first)
            up = (math.log10(value) - low) / (high - low)
            return left + across * width, top + height - up * height

        self.words(left - 50, top - 14, [panel.title], bold=True, anchor="start")
        for power in range(low, high + 1):
            _, y = place(sizes[0], 10.0**power)
            self.line([(left, y), (left + width, y)], EDGE)
            self.words(
                left - 8,
                y + 4,
                [panel.unit(10.0**power).replace(".0 ", " ")],
                size=11,
                colour=QUIET,
                anchor="end",
            )
        for size in sizes:
            x, y = place(size, 10.0**low)
            self.line([(x, top), (x, y)], EDGE)
            self.words(x, y + 16, [str(size)], size=11, colour=QUIET)
        for shape in SHAPES:
            points = [place(one["replicas"], panel.value(one)) for one in found if one["topology"] == shape]
            self.line(points, _COLOURS[shape], 1.8)
            for x, y in points:
                self.dot(x, y, _COLOURS[shape])

    def legend(self, x: float, y: float) -> None:
        """Which colour is which topology."""
        for number, shape in enumerate(SHAPES):
            left = x + number * 112
            self.line([(left, y - 4), (left + 24, y - 4)], _COLOURS[shape], 1.8)
            self.dot(left + 12, y - 4, _COLOURS[shape])
            self.words(left + 32, y, [shape], size=12, colour=INK, anchor="start")


_PANELS: Mapping[str, tuple[str, tuple[_Panel, ...]]] = {
    "scale-writes": (
        "What a write costs, by replicas in the fleet and topology; both axes are logarithmic",
        (
            _Panel(
                "Time until a write is everywhere", lambda one: one["write_ms"], lambda ms: _ms(round(ms))
            ),
            _Panel("Bytes of a write, to all", lambda one: one["write_bytes"], format_bytes),
            _Panel("Messages of a write, to all", lambda one: one["write_messages"], lambda n: f"{n:,.0f}"),
            _Panel("Gossip because of a write", lambda one: one["gossip_after_write_bytes"], format_bytes),
        ),
    ),
    "scale-fleet": (
        "What a fleet costs, by replicas in it and topology; both axes are logarithmic",
        (
            _Panel("Bytes a minute, idle", lambda one: one["idle_bytes_minute"], format_bytes),
            _Panel(
                "Busiest replica: bytes a minute at 60 writes",
                lambda one: one["busiest_load_bytes_minute"],
                format_bytes,
            ),
            _Panel("Time to heal", lambda one: one["heal_ms"], lambda ms: _ms(round(ms))),
            _Panel("Bytes to heal", lambda one: one["heal_bytes"], format_bytes),
        ),
    ),
}


def curves(found: Sequence[Figures]) -> dict[str, str]:
    """The plots, by the name of their file."""
    drawn = {}
    for name, (title, panels) in _PANELS.items():
        plot = _Plot(860, 640, title)
        for number, panel in enumerate(panels):
            plot.panel(panel, found, (16 + number % 2 * 420, 16 + number // 2 * 288))
        plot.words(430, 598, ["replicas in the fleet; both axes are logarithmic"], size=12, colour=QUIET)
        plot.legend(110, 624)
        drawn[name] = plot.svg()
    return drawn


def draw(found: Sequence[Figures]) -> None:
    """Write the plots, and the tables into the page."""
    for name, drawn in curves(found).items():
        (PLOTS / f"{name}.svg").write_text(drawn, encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    PAGE.write_text(f"{before}{_BEGIN}\n{tables(found)}\n{_END}{after}", encoding="utf-8")


def main() -> int:
    """Measure and draw; the result is the exit code."""
    parser = argparse.ArgumentParser(description="Measure fleets of growing size, and draw docs/scale.md.")
    parser.add_argument("--draw", action="store_true", help="measure nothing; draw what was measured")
    parser.add_argument("--resume", action="store_true", help="keep what was measured, and measure the rest")
    arguments = parser.parse_args()
    found: list[Figures] = []
    if (arguments.draw or arguments.resume) and RESULTS.is_file():
        found = json.loads(RESULTS.read_text(encoding="utf-8"))
    if not arguments.draw:
        measure(found)
    draw(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
