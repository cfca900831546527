"""What replicas log, and which errors an operator can act on: those for which a page names the remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

__all__ = ["PAGE", "defects", "events", "lines", "remedies", "unexplained"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
_ROW = re.compile(r"^\| `([^`]+)` \| (.+) \|$", re.MULTILINE)
_SERIOUS = {"error", "critical"}


def _section(title: str) -> dict[str, str]:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")
    return dict(_ROW.findall(rest.partition("\n## ")[0]))


@cache
def remedies() -> Mapping[str, str]:
    """The errors that an operator can act on, and how, by event."""
    return _section("Errors that you can act on")


@cache
def defects() -> Mapping[str, str]:
    """The errors that nobody can act on but who develops Ricordo, by event."""
    return _section("Errors that are defects")


def lines(log: Path) -> Iterator[dict[str, object]]:
    """Every line of a log. What is no line of ours stands under the event ``""``."""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        yield found if isinstance(found, dict) else {"level": "critical", "event": "", "text": line}


def events(log: Path) -> list[str]:
    """What was logged, line by line."""
    return [str(line.get("event")) for line in lines(log)]


def unexplained(log: Path) -> list[str]:
    """The errors of a log for which no remedy is known."""
    return [
        json.dumps(line)
        for line in lines(log)
        if line.get("level") in _SERIOUS and line.get("event") not in remedies()
    ]
