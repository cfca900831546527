"""The clock of one replica, stepped by hours: its process is told another time by libfaketime."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path

import pytest

__all__ = ["LIBRARY", "SteppedClock", "needs_faketime"]


def _find() -> Path | None:
    for place in ("/usr/lib/*/faketime", "/usr/lib*/faketime", "/usr/local/lib/faketime"):
        # The variant for programs with threads.
        for found in sorted(glob.glob(f"{place}/libfaketimeMT.so.1")):
            return Path(found)
    return None


LIBRARY = _find()
"""Where libfaketime is installed; None: it is not."""

needs_faketime = pytest.mark.skipif(
    LIBRARY is None, reason="no libfaketime is installed, which tells one process another time"
)


class SteppedClock:
    """What a process takes for the time, as long as its environment says so."""

    def __init__(self, file: Path) -> None:
        """``file`` is what the process looks into, about once a second."""
        self._file = file
        self.step(0)

    def step(self, seconds: int) -> None:
        """From now on the clock is so far off the true time."""
        # In one piece: the process may be reading it.
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n", encoding="ascii")
        new.rename(self._file)

    def environment(self) -> Mapping[str, str]:
        """The variables to start the process with."""
        assert LIBRARY is not None, "the caller has made sure of it"
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            # A step of the clock is none of the time that passes, nor of what files say.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
