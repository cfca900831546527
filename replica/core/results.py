"""What the node answers to a write (DESIGN section 10); field by field what the interface answers."""

from __future__ import annotations

from dataclasses import dataclass

from crdt.dot import Millis
from crdt.key import EntryKey

__all__ = ["Forgotten", "Remembered", "Result", "Updated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What a remember did."""

    key: EntryKey
    created: bool
    """There was no live entry: this write made one."""
    expires_at: Millis | None
    """The expiry in force after the write; none: durable."""
    version: str
    kind: str
    """The kind that the entry has; empty when no payload that decodes says."""
    kind_ignored: bool = False
    """A kind was asked for, and the live entry has another."""
    durable_ignored: bool = False
    """Durability was asked for, and the live entry has an expiry."""
    created_at_ignored: bool = False
    """A time of creation was asked for, and the live entry has another."""
    fields_updated: int = 0
    """How many of the text fields were set."""
    tags_added: int = 0
    """How many tags are there that were not."""
    links_added: int = 0
    links_removed: int = 0
    undecodable: int = 0
    """Payloads that do not decode here and were carried along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """What an update did."""

    key: EntryKey
    version: str
    expires_at: Millis | None
    fields_updated: int = 0
    """How many of the text fields were set."""
    tags_added: int = 0
    """How many tags are there that were not."""
    tags_removed: int = 0
    links_added: int = 0
    links_removed: int = 0
    undecodable: int = 0
    """Payloads that do not decode here and were carried along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What a forget did."""

    key: EntryKey
    lapse: bool
    """The mode that was asked for."""
    existed: bool
    """A live entry was there. If not, a lapse did nothing; a forget has still removed what was hidden."""
    expires_at: Millis | None
    """After a lapse of an entry that existed: the expiry in force."""
    undecodable: int = 0
    """Payloads that do not decode here: removed unread by a forget, carried along by a lapse."""


Result = Remembered | Updated | Forgotten
