"""The notes of the demo: the project's own decision records, whole and passage by passage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RECORDS", "Note", "NotesError", "read_notes"]

RECORDS = Path(__file__).resolve().parent.parent.parent / "docs" / "decisions"
"""Where the records lie in a checkout."""

_REPO = "ricordo"
_TITLE_LENGTH = 60
_HEADING = re.compile(r"#\s+(?:\d+\s+)?(.+)")
_LEAD = re.compile(r"\*\*(.+?)\.?\*\*\s*")
_ITEM = re.compile(r"^- ", re.MULTILINE)


class NotesError(Exception):
    """There are no notes to show the demo with; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note, and its line for `ricordo import`."""

    topic: str
    id: str
    title: str
    body: str
    tags: tuple[str, ...]
    line: dict[str, object]

    @property
    def key(self) -> str:
        """The key of the entry that it becomes."""
        return f"repo/{_REPO}/mem/{self.topic}/{self.id}"


def read_notes(folder: Path = RECORDS) -> list[Note]:
    """One `Decision` for each record, and one `Note` for each passage of it, linked to the record.

    Raises NotesError where the folder holds no records.
    """
    notes = [note for path in sorted(folder.glob("*.md")) for note in _notes(path)]
    if not notes:
        raise NotesError(
            f"no decision records in {folder}: a checkout of the project has them in docs/decisions, an "
            "installed package does not; run `make demo` in a checkout"
        )
    return notes


def _notes(path: Path) -> Iterator[Note]:
    text = path.read_text(encoding="utf-8")
    heading = _HEADING.match(text)
    if heading is None:
        return
    record = _note(path, "decisions", path.stem, "Decision", heading[1], text[heading.end() :].strip(), {})
    yield record
    topic = "context"
    number = 0
    for passage in _passages(record.body):
        words = " ".join(passage.split())
        lead = _LEAD.match(words)
        if lead is not None:
            topic = lead[1].lower() if lead[1].lower() in ("context", "consequences") else "choice"
            if lead[1].lower() == topic:
                words, lead = words[lead.end() :], None
        if not words or (lead is not None and lead.end() == len(words)):
            continue  # A caption: what stands below it speaks for itself.
        number += 1
        title = _beginning(words) if lead is None else lead[1]
        id = f"{path.stem}-{number:02}"
        links = {"part-of": [record.key]}
        yield _note(path, topic, id, "Note", title, words.replace("**", ""), links)


def _passages(text: str) -> Iterator[str]:
    """Paragraphs and items of lists; no tables."""
    for block in re.split(r"\n\s*\n", text):
        if not block.startswith("|"):
            yield from _ITEM.split(block) if _ITEM.match(block) else [block]


def _beginning(text: str) -> str:
    if len(text) <= _TITLE_LENGTH:
        return text
    return text[:_TITLE_LENGTH].rsplit(" ", 1)[0] + " …"


def _note(
    path: Path, topic: str, id: str, kind: str, title: str, body: str, links: dict[str, list[str]]
) -> Note:
    tags = (f"record-{path.name.partition('-')[0]}",)
    line: dict[str, object] = {
        "repo": _REPO,
        "topic": topic,
        "id": id,
        "kind": kind,
        "title": title,
        "body": body,
        "author": "the project",
        "provenance": f"docs/decisions/{path.name}",
        "tags": list(tags),
        "links": links,
    }
    return Note(topic, id, title, body, tags, line)
