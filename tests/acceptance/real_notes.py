"""The file of real engineering notes, which lies beside the checkout and is no part of the project."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PATH = Path(
    os.environ.get("RICORDO_TEST_NOTES", Path(__file__).parents[3] / "shared" / "data" / "notes.jsonl")
)

needs_notes = pytest.mark.skipif(
    not PATH.is_file(),
    reason="the file of real notes is not beside the checkout (RICORDO_TEST_NOTES names it)",
)


@dataclass(frozen=True)
class RealNote:
    """One line of the file, as an import takes it."""

    line: dict[str, Any]

    @property
    def key(self) -> str:
        """Its key in display form (no component of the file needs escaping)."""
        return f"repo/{self.line['repo']}/mem/{self.line['topic']}/{self.line['id']}"

    def with_body(self, body: str) -> RealNote:
        """The same note as somebody else wrote it down."""
        return RealNote({**self.line, "body": body})


@cache
def real_notes() -> tuple[RealNote, ...]:
    """Every note of the file, in its order."""
    with PATH.open(encoding="utf-8") as lines:
        return tuple(RealNote(json.loads(line)) for line in lines)


def write_notes(path: Path, notes: list[RealNote]) -> Path:
    """A file of these notes."""
    path.write_text("".join(json.dumps(note.line) + "\n" for note in notes), encoding="utf-8")
    return path
