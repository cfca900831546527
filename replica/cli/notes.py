"""Entries as lines of JSON: what `ricordo import` reads and `ricordo export` writes.

One object a line, UTF-8. `repo` and `topic` must be there; the other members may be left out::

    {"repo": "api", "topic": "notes", "id": "deploy", "kind": "Note", "title": "Deploying", "body": "…",
     "author": "agent-7", "provenance": "commit 1a2b3c", "created_at": 1761477279000, "tags": ["ops"],
     "links": {"touches": ["repo/api/file/deploy.sh"]}, "ttl_seconds": 86400}

`created_at` is in milliseconds since the Unix epoch, UTC; `ttl_seconds` is what remains of the entry's life.
Where `id` is missing it is made from the line's contents, so that the same line is always the same entry.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from crdt.key import EntryKey, InvalidKey
from replica.client import Entry, RememberCall, remember

__all__ = ["LINE_MAX_BYTES", "InvalidLine", "More", "Note", "note_of", "parse_note", "write_note"]

LINE_MAX_BYTES = 64 * 1024 * 1024
"""The longest line that is read: as much as an answer of a replica can hold, and so an exported entry."""

_TEXT_MAX_BYTES = 64 * 1024
_TARGET_MAX_BYTES = 512
"""The most that any replica takes of a field, and of a tag or a link: a call of less always arrives."""
_CALL_TAGS = 64
_CALL_TARGETS = 256
"""What one call can add. An entry can have more, from many calls."""

_MEMBERS = (
    "repo",
    "topic",
    "id",
    "kind",
    "title",
    "body",
    "author",
    "provenance",
    "created_at",
    "tags",
    "links",
    "ttl_seconds",
)
_TEXTS = ("id", "kind", "title", "body", "author", "provenance")
_INT64 = 2**63


class InvalidLine(ValueError):
    """A line is no entry. ``field`` names the member at fault; the message does not repeat what it holds."""

    def __init__(self, field: str | None, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True)
class More:
    """Tags and links of a line that its first write had no room for."""

    tags: tuple[str, ...]
    links: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Note:
    """One line. None, and no tags or links, mean that the line does not say."""

    key: EntryKey
    kind: str | None
    title: str | None
    body: str | None
    author: str | None
    provenance: str | None
    created_at_ms: int | None
    tags: tuple[str, ...]
    links: Mapping[str, tuple[str, ...]]
    ttl_seconds: float | None

    def call(self, *, create_only: bool, durable: bool) -> RememberCall:
        """The write that makes the entry what the line says."""
        return remember(
            self.key.repo_id,
            self.key.topic,
            id=self.key.id,
            kind=self.kind,
            title=self.title,
            body=self.body,
            author=self.author,
            provenance=self.provenance,
            tags=self.tags,
            add_links=self.links,
            ttl_seconds=self.ttl_seconds,
            durable=durable and self.ttl_seconds is None,
            create_only=create_only,
            created_at_ms=self.created_at_ms,
        )

    def parts(self) -> tuple[Note, tuple[More, ...]]:
        """As much of the line as one write can add, and what is to be added after it."""
        pairs = [(relation, target) for relation, targets in self.links.items() for target in targets]
        first = replace(self, tags=self.tags[:_CALL_TAGS], links=_by_relation(pairs[:_CALL_TARGETS]))
        more = [
            More(self.tags[at : at + _CALL_TAGS], {}) for at in range(_CALL_TAGS, len(self.tags), _CALL_TAGS)
        ]
        for at in range(_CALL_TARGETS, len(pairs), _CALL_TARGETS):
            more.append(More((), _by_relation(pairs[at : at + _CALL_TARGETS])))
        return first, tuple(more)

    def is_in(self, entry: Entry) -> bool:
        """A live entry holds all that the line says, so that writing it again would change nothing but its
        expiry. Kind and time of creation stay what they are, and an expiry in force counts as the line's.
        """
        if self.ttl_seconds is not None and entry.expires_at_ms is None:
            return False
        pairs = (
            (self.title, entry.title),
            (self.body, entry.body),
            (self.author, entry.author),
            (self.provenance, entry.provenance),
        )
        return (
            all(said is None or said == held for said, held in pairs)
            and set(self.tags) <= set(entry.tags)
            and all(set(targets) <= set(entry.links.get(each, ())) for each, targets in self.links.items())
        )


def parse_note(line: bytes) -> Note:
    """The entry that a line says; raises :class:`InvalidLine`. A replica's limits are its own to check."""
    said = _object(line)
    for name in said:
        if name not in _MEMBERS:
            raise InvalidLine(_shown(name), f"is not known; the members are {', '.join(_MEMBERS)}")
    texts = {name: _text(name, said[name]) if name in said else None for name in ("repo", "topic", *_TEXTS)}
    repo, topic, id = texts["repo"], texts["topic"], texts["id"]
    if repo is None or topic is None:
        raise InvalidLine("repo" if repo is None else "topic", "is missing")
    if id is None:
        id = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]
    try:
        key = EntryKey.make(repo, topic, id)
    except InvalidKey as error:
        raise InvalidLine("repo" if error.field == "repo_id" else error.field, error.reason) from None
    return Note(
        key=key,
        kind=texts["kind"],
        title=texts["title"],
        body=texts["body"],
        author=texts["author"],
        provenance=texts["provenance"],
        created_at_ms=_created_at(said["created_at"]) if "created_at" in said else None,
        tags=_row("tags", said.get("tags", [])),
        links=_links(said.get("links", {})),
        ttl_seconds=_ttl(said["ttl_seconds"]) if "ttl_seconds" in said else None,
    )


def note_of(entry: Entry) -> dict[str, object]:
    """The line of a live entry, as a JSON object."""
    line: dict[str, object] = {
        "repo": entry.repo_id,
        "topic": entry.topic,
        "id": entry.id,
        "kind": entry.kind,
        "title": entry.title,
        "body": entry.body,
        "author": entry.author,
        "provenance": entry.provenance,
        "created_at": entry.created_at_ms,
        "tags": list(entry.tags),
        "links": {relation: list(targets) for relation, targets in entry.links.items()},
    }
    if entry.remaining_seconds is not None:
        line["ttl_seconds"] = entry.remaining_seconds
    return line


def write_note(entry: Entry) -> bytes:
    """The line of a live entry, with its end."""
    return json.dumps(note_of(entry), ensure_ascii=False).encode() + b"\n"


def _object(line: bytes) -> dict[str, object]:
    try:
        value = json.loads(
            line.rstrip(b"\r\n").decode(), object_pairs_hook=_once, parse_constant=_no_constant
        )
    except UnicodeDecodeError as error:
        raise InvalidLine(None, f"is not UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise InvalidLine(None, f"is not JSON at column {error.colno}: {error.msg}") from None
    except InvalidLine:
        raise
    except (ValueError, RecursionError):
        raise InvalidLine(
            None, "is not JSON that can be read: a number too long, or nested too deeply"
        ) from None
    if not isinstance(value, dict):
        raise InvalidLine(None, "must be a JSON object")
    return value


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidLine(_shown(name), "is there twice")
        found[name] = value
    return found


def _no_constant(name: str) -> object:
    raise InvalidLine(None, f"is not JSON: {name} is no number")


def _shown(name: str) -> str:
    """A member's name for a message: short, printable."""
    printable = "".join(character if character.isprintable() else "�" for character in name)
    return printable if 0 < len(printable) <= 40 else f"{printable[:40]}…"


def _text(name: str, value: object, most: int = _TEXT_MAX_BYTES) -> str:
    if not isinstance(value, str):
        raise InvalidLine(name, "must be text")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidLine(name, "must be valid Unicode: it holds a lone surrogate") from None
    if size > most:
        raise InvalidLine(name, f"is {size} bytes of UTF-8; at most {most} are allowed")
    return value


def _row(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InvalidLine(name, "must be a list of texts")
    return tuple(_text(f"{name}[{index}]", each, _TARGET_MAX_BYTES) for index, each in enumerate(value))


def _links(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise InvalidLine("links", "must be an object of relations, each with a list of targets")
    found = {
        _text("links", relation, _TARGET_MAX_BYTES): _row(f"links.{_shown(relation)}", targets)
        for relation, targets in value.items()
    }
    return {relation: targets for relation, targets in found.items() if targets}


def _by_relation(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for relation, target in pairs:
        found.setdefault(relation, []).append(target)
    return {relation: tuple(targets) for relation, targets in found.items()}


def _created_at(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -_INT64 <= value < _INT64:
        raise InvalidLine("created_at", "must be a whole number of milliseconds since 1970")
    return value


def _ttl(value: object) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)
            if math.isfinite(seconds) and seconds > 0:
                return seconds
    except OverflowError:
        pass
    raise InvalidLine("ttl_seconds", "must be a positive, finite number of seconds; leave it out for none")
