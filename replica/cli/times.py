"""Times as the command line reads and shows them: UTC, and exact to the millisecond."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from crdt.dot import Millis
from replica.durations import format_duration

__all__ = ["format_span", "format_time", "parse_time"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT64 = 2**63
_FORM = "write milliseconds since 1970, or a time such as 2026-03-01T12:00:00Z"


def parse_time(text: str) -> Millis:
    """A time from milliseconds since the Unix epoch or ISO 8601; UTC where it names no zone.

    Raises ValueError, saying in words what to write.
    """
    if re.fullmatch(r"-?[0-9]{1,19}", text):
        millis = int(text)
        if not -_INT64 <= millis < _INT64:
            raise ValueError(f"is no time: {_FORM}")
        return Millis(millis)
    try:
        moment = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        raise ValueError(f"is no time: {_FORM}") from None
    if moment.tzinfo is not None and text.endswith(" UTC"):
        raise ValueError(f"names two zones: {_FORM}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Millis((moment - _EPOCH) // timedelta(milliseconds=1))


def format_time(millis: int) -> str:
    """``2026-03-01 12:00:00.123 UTC``; a time that no calendar holds is given in milliseconds."""
    try:
        moment = _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return f"{millis} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d} UTC"


def format_span(millis: int) -> str:
    """A span for reading: its two largest units, ``3d4h`` or ``1m30s``; milliseconds stand alone."""
    units = [1, 1_000, 60_000, 3_600_000, 86_400_000]
    size = abs(millis)
    largest = max((index for index, unit in enumerate(units) if size >= unit), default=0)
    step = units[max(min(1, largest), largest - 1)]
    rounded = size // step * step
    return format_duration(Millis(rounded if millis >= 0 else -rounded))
