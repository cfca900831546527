"""Durations as people write them: ``90s``, ``12h``, ``30d``, ``1h30m``, ``none``.

The configuration, the flags of the command line and its output share this one reading. A duration is a
positive, whole number of milliseconds, at most :data:`LONGEST`.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Decimal

from crdt.dot import Millis

__all__ = ["LONGEST", "NONE", "InvalidDuration", "format_duration", "parse_duration", "parse_ttl"]

NONE = "none"
"""How "no expiry" is written."""

_UNITS: dict[str, int] = {
    "w": 7 * 24 * 3_600_000,
    "d": 24 * 3_600_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
"""Milliseconds in each unit, from the largest."""

LONGEST = Millis(36_500 * _UNITS["d"])
"""The longest duration, a hundred years: far beyond it lies the end of what a time can hold."""

_FORM = "write a number and a unit (ms, s, m, h, d, w), such as 90s, 12h, 30d or 1h30m"
_TEXT_MAX = 64
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|w)\s*")


class InvalidDuration(ValueError):
    """A text that is no duration; the message says what to write and does not repeat the text."""


def parse_duration(text: str) -> Millis:
    """The duration in milliseconds; raises :class:`InvalidDuration`.

    Units run from the largest to the smallest and each is given once: ``1d12h``, not ``12h1d``. What is
    smaller than a millisecond is rounded.
    """
    stripped = text.strip().lower()
    if not stripped or len(stripped) > _TEXT_MAX:
        raise InvalidDuration(f"is no duration: {_FORM}")
    if stripped.startswith("-"):
        raise InvalidDuration(f"must be positive: {_FORM}")
    total = Decimal(0)
    position = 0
    remaining = list(_UNITS)
    while position < len(stripped):
        part = _PART.match(stripped, position)
        if part is None:
            bare = re.fullmatch(r"[0-9.]+", stripped)
            raise InvalidDuration(f"lacks a unit: {_FORM}" if bare else f"is no duration: {_FORM}")
        number, unit = part.groups()
        if unit not in remaining:
            raise InvalidDuration("names its units out of order: write each once, the largest first")
        remaining = remaining[remaining.index(unit) + 1 :]
        total += Decimal(number) * _UNITS[unit]
        position = part.end()
    if total > LONGEST:
        raise InvalidDuration(f"is too long: at most {format_duration(LONGEST)}")
    millis = int(total.to_integral_value(ROUND_HALF_EVEN))
    if millis <= 0:
        raise InvalidDuration(f"must be positive, at least 1ms: {_FORM}")
    return Millis(millis)


def parse_ttl(text: str) -> Millis | None:
    """As :func:`parse_duration`, and ``none`` for no expiry."""
    if text.strip().lower() == NONE:
        return None
    try:
        return parse_duration(text)
    except InvalidDuration as error:
        raise InvalidDuration(f"{error}; or {NONE}") from None


def format_duration(duration: Millis | None) -> str:
    """The shortest exact text: ``1h30m``, ``none``. Reading it gives the duration back.

    Zero, which is no duration one can ask for but one that can be left, is ``0s``; weeks are written as days.
    """
    if duration is None:
        return NONE
    rest = int(duration)
    if rest < 0:
        return f"-{format_duration(Millis(-rest))}"
    text = ""
    for unit, size in _UNITS.items():
        if unit != "w" and rest >= size:
            count, rest = divmod(rest, size)
            text += f"{count}{unit}"
    return text or "0s"
