"""Draw the diagrams of the documentation, `docs/diagrams/*.svg`, or check that they are current.

Each stands on a light card of its own, so that it can be read on a dark page as on a light one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

__all__ = ["DIAGRAMS", "FOLDER", "Drawing", "TextTooWide", "main"]

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "diagrams"

INK, QUIET, PAPER, EDGE = "#1f2933", "#52606d", "#ffffff", "#cbd2d9"
BLUE, GREEN, AMBER, PLAIN = "#dbeafe", "#d8f3dc", "#fdecc8", "#eef1f4"
LINES = {BLUE: "#3b6fb6", GREEN: "#3a8a55", AMBER: "#b7791f", PLAIN: "#8793a0"}

FONT = "ui-sans-serif, 'Helvetica Neue', Helvetica, Arial, sans-serif"
SIZE = 13
_NARROW, _WIDE = frozenset("fijlrtI|.,:;'!()[]/ "), frozenset("mwMWGOQ@%—→⊔")


class TextTooWide(Exception):
    """A text does not fit where it is to stand."""


def text_width(text: str, size: float, bold: bool) -> float:
    """About how wide a text is, on the safe side, in any of the fonts."""
    units = sum(
        0.33 if each in _NARROW else 0.9 if each in _WIDE or each.isupper() else 0.58 for each in text
    )
    return units * size * (1.06 if bold else 1.0)


class Drawing:
    """A drawing of boxes, arrows and words. Lengths are in pixels, from the top left."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts: list[str] = []
        self._width, self._height, self._title = width, height, title

    def words(
        self,
        x: float,
        y: float,
        lines: Sequence[str],
        *,
        within: float | None = None,
        size: float = SIZE,
        bold: bool = False,
        colour: str = INK,
        anchor: str = "middle",
    ) -> None:
        """Lines of text, the first with its baseline at `y`; none may be wider than `within`."""
        for number, line in enumerate(lines):
            if within is not None and text_width(line, size, bold) > within:
                raise TextTooWide(f"{self._title}: {line}")
            weight = ' font-weight="600"' if bold else ""
            self._parts.append(
                f'<text x="{x:g}" y="{y + number * size * 1.35:g}" font-size="{size:g}" fill="{colour}" '
                f'text-anchor="{anchor}"{weight}>{escape(line)}</text>'
            )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        title: str,
        lines: Sequence[str] = (),
        *,
        fill: str,
    ) -> None:
        """A box with a title and some lines, centred in it."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}" '
            f'stroke="{LINES[fill]}"/>'
        )
        top = y + (height - (SIZE + len(lines) * 12 * 1.35)) / 2 + SIZE * 0.85
        self.words(x + width / 2, top, [title], within=width - 12, bold=True)
        self.words(x + width / 2, top + 18, lines, within=width - 12, size=12, colour=QUIET)

    def frame(self, x: float, y: float, width: float, height: float, title: str) -> None:
        """A dashed frame around what belongs together."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="10" fill="none" '
            f'stroke="{LINES[PLAIN]}" stroke-dasharray="5 4"/>'
        )
        self.words(x + 12, y + 20, [title], within=width - 24, bold=True, colour=QUIET, anchor="start")

    def store(self, x: float, y: float, width: float, height: float, lines: Sequence[str]) -> None:
        """A cylinder: what is on disk."""
        fill, line, rim = AMBER, LINES[AMBER], 8
        self._parts.append(
            f'<path d="M{x:g} {y + rim:g} v{height - 2 * rim:g} a{width / 2:g} {rim} 0 0 0 {width:g} 0 '
            f'v-{height - 2 * rim:g}" fill="{fill}" stroke="{line}"/>'
            f'<ellipse cx="{x + width / 2:g}" cy="{y + rim:g}" rx="{width / 2:g}" ry="{rim}" fill="{fill}" '
            f'stroke="{line}"/>'
        )
        top = y + rim + (height - len(lines) * 12 * 1.35) / 2 + 12 * 0.9
        self.words(x + width / 2, top, lines, within=width - 12, size=12)

    def arrow(
        self, points: Sequence[tuple[float, float]], *, both: bool = False, dashed: bool = False
    ) -> None:
        """A line through points with a head at its end, or at both."""
        path = " ".join(f"{'L' if number else 'M'}{x:g} {y:g}" for number, (x, y) in enumerate(points))
        start = ' marker-start="url(#head)"' if both else ""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<path d="{path}" fill="none" stroke="{INK}" stroke-width="1.4"{dash}{start} '
            'marker-end="url(#head)"/>'
        )

    def svg(self) -> str:
        """The drawing as a file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" '
            f'width="{self._width}" height="{self._height}" role="img" font-family="{FONT}">\n'
            f"<title>{escape(self._title)}</title>\n"
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
            f'orient="auto-start-reverse"><path d="M0 1 L9 5 L0 9 z" fill="{INK}"/></marker></defs>\n'
            f'<rect x="0.5" y="0.5" width="{self._width - 1}" height="{self._height - 1}" rx="10" '
            f'fill="{PAPER}" stroke="{EDGE}"/>\n'
        )
        return head + "\n".join(self._parts) + "\n</svg>\n"


def fleet() -> Drawing:
    """Clusters, the agents in them, and the links between their replicas."""
    drawing = Drawing(
        860, 372, "Three clusters, each with agents and a replica; each replica pulls from the others"
    )
    columns = {"eu": 24, "us": 312, "ap": 600}
    for cluster, x in columns.items():
        drawing.frame(x, 20, 236, 258, f"cluster {cluster}")
        for number, name in enumerate(("agent", "agent", "people")):
            drawing.box(x + 14 + number * 71, 52, 66, 32, name, fill=BLUE)
            drawing.arrow([(x + 47 + number * 71, 86), (x + 47 + number * 71, 136)], both=True)
        drawing.box(x + 14, 138, 208, 44, "replica", ["one process"], fill=GREEN)
        drawing.arrow([(x + 118, 184), (x + 118, 206)], both=True)
        drawing.store(x + 58, 206, 120, 60, ["LMDB store,", "all entries"])
    for left, right in (("eu", "us"), ("us", "ap")):
        drawing.arrow([(columns[left] + 224, 160), (columns[right] + 12, 160)], both=True)
    drawing.arrow(
        [
            (columns["eu"] + 36, 184),
            (columns["eu"] + 36, 306),
            (columns["ap"] + 200, 306),
            (columns["ap"] + 200, 184),
        ],
        both=True,
    )
    drawing.words(
        430,
        300,
        ["each replica pulls from each other one, over gRPC, whenever the link is there"],
        size=12,
        colour=QUIET,
    )
    drawing.words(
        430,
        334,
        [
            "Agents read and write the replica of their own cluster. It answers from its own store,",
            "whether or not any other cluster can be reached.",
        ],
        within=820,
    )
    return drawing


def path() -> Drawing:
    """One Remember, from the socket to the disk, on to a peer's disk, and to a reader there."""
    drawing = Drawing(860, 624, "The path of one Remember")
    drawing.frame(20, 78, 380, 530, "replica of eu")
    drawing.frame(460, 78, 380, 530, "replica of us")
    drawing.box(110, 16, 200, 36, "agent in eu", fill=BLUE)
    drawing.box(550, 16, 200, 36, "agent in us", fill=BLUE)
    for y, title, line, fill in (
        (112, "Memory.Remember", "server: off the socket, and the time", PLAIN),
        (182, "command", "wire: from message to checked value", PLAIN),
        (252, "group commit", "storage: many writes, one flush", PLAIN),
        (322, "node", "core: read, fold, mint a dot, replace", GREEN),
        (530, "supplier", "core: what follows the cursor, in one snapshot", GREEN),
    ):
        drawing.box(50, y, 320, 48, title, [line], fill=fill)
    drawing.store(
        50,
        396,
        320,
        104,
        ["one durable transaction:", "register, expiry, change log,", "clock, answer by request id"],
    )
    for upper, lower in ((52, 112), (160, 182), (230, 252), (300, 322), (370, 396), (500, 530)):
        drawing.arrow([(210, upper), (210, lower)])
    drawing.arrow([(50, 448), (10, 448), (10, 34), (110, 34)], dashed=True)
    drawing.words(20, 68, ["answered when it is on disk"], size=12, colour=QUIET, anchor="start")
    for y, title, line, fill in (
        (112, "Memory.Recall", "server", PLAIN),
        (182, "fold", "crdt: the one record that readers see", GREEN),
        (442, "join", "crdt: both registers, under both clocks", GREEN),
        (530, "consumer", "core: does it continue the cursor?", GREEN),
    ):
        drawing.box(490, y, 320, 48, title, [line], fill=fill)
    drawing.store(
        490,
        290,
        320,
        104,
        ["one durable transaction:", "registers, expiries, change log,", "clock, cursor of eu"],
    )
    for lower, upper in ((530, 490), (442, 394), (290, 230), (182, 160), (112, 52)):
        drawing.arrow([(650, lower), (650, upper)])
    drawing.arrow([(370, 546), (490, 546)])
    drawing.arrow([(490, 566), (370, 566)], dashed=True)
    drawing.words(430, 538, ["batch"], size=12, colour=QUIET)
    drawing.words(430, 584, ["ack"], size=12, colour=QUIET)
    return drawing


def register() -> Drawing:
    """A register with two siblings, its fold, and the write that settles it."""
    drawing = Drawing(860, 430, "A register: siblings, fold, and the write that settles it")
    drawing.frame(20, 20, 280, 320, "register of one key")
    for y, dot, lines in (
        (
            56,
            "sibling (eu, 7)",
            [
                "context: eu to 4",
                "title  “Keep it short”",
                "tags  + reviewed",
                "written at 10:00:05",
            ],
        ),
        (
            200,
            "sibling (us, 3)",
            [
                "context: eu to 4",
                "title  “Keep it plain”",
                "tags  + disputed, - draft",
                "written at 10:00:09",
            ],
        ),
    ):
        drawing.box(36, y, 248, 124, dot, lines, fill=GREEN)
    drawing.box(
        344,
        116,
        220,
        148,
        "what a reader sees",
        [
            "title  “Keep it plain”",
            "concurrent title:",
            "“Keep it plain” (us)",
            "“Keep it short” (eu)",
            "tags  reviewed, disputed",
        ],
        fill=BLUE,
    )
    drawing.arrow([(300, 190), (344, 190)])
    drawing.words(322, 180, ["fold"], size=12, colour=QUIET)
    drawing.frame(608, 84, 232, 216, "after the next write")
    drawing.box(
        624,
        120,
        200,
        164,
        "sibling (ap, 2)",
        [
            "context: eu to 7, us to 3",
            "title  “Short and plain”",
            "tags  reviewed, disputed",
            "revisions of the title:",
            "“Keep it plain”",
            "“Keep it short”",
        ],
        fill=GREEN,
    )
    drawing.arrow([(564, 190), (608, 190)])
    drawing.words(586, 180, ["write"], size=12, colour=QUIET)
    drawing.words(
        430,
        372,
        [
            "Two writes that had not seen each other are two siblings. A read folds them, to the same",
            "on every replica that has both. A write that had seen both replaces both, for its context",
            "covers their dots. What lost is kept as revisions.",
        ],
        within=836,
    )
    return drawing


DIAGRAMS: Mapping[str, Callable[[], Drawing]] = {"fleet": fleet, "path": path, "register": register}
"""By the name of their file."""


def main() -> int:
    """Write the diagrams, or with `--check` compare; the result is the exit code: 0 when they are current."""
    parser = argparse.ArgumentParser(description="Draw docs/diagrams.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when one is not current")
    check = parser.parse_args().check
    stale = []
    for name, draw in DIAGRAMS.items():
        file, drawn = FOLDER / f"{name}.svg", draw().svg()
        if file.is_file() and file.read_text(encoding="utf-8") == drawn:
            continue
        stale.append(file.name)
        if not check:
            FOLDER.mkdir(parents=True, exist_ok=True)
            file.write_text(drawn, encoding="utf-8")
    if check and stale:
        print(f"diagrams: not current: {', '.join(stale)}: run `python scripts/diagrams.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
