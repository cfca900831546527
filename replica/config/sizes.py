"""Sizes in bytes, as people write them: ``512``, ``64KiB``, ``2MiB``, ``1TiB``."""

from __future__ import annotations

import re

__all__ = ["InvalidSize", "format_size", "parse_size"]

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SHOWN = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_SIZE = re.compile(r"\s*([0-9]{1,19})\s*([A-Za-z]*)\s*")
_LARGEST = 1 << 62


class InvalidSize(ValueError):
    """The text is no size; the message says why and what one looks like."""


def parse_size(text: str) -> int:
    """The number of bytes of a size; raises :class:`InvalidSize`."""
    match = _SIZE.fullmatch(text)
    unit = None if match is None else _UNITS.get(match[2].upper())
    if match is None or unit is None:
        raise InvalidSize("is no size: write a whole number of B, KiB, MiB, GiB or TiB, such as 64MiB")
    size = int(match[1]) * unit
    if size > _LARGEST:
        raise InvalidSize("is too large: at most 4194304TiB")
    return size


def format_size(size: int) -> str:
    """The shortest text that gives the size back exactly."""
    for name, unit in _SHOWN:
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B"
