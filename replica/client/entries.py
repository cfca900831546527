"""What the calls of `Memory` answer, as values. Times are milliseconds since the Unix epoch, UTC.

Each type reads itself from its protobuf message, whose comments in `proto/ricordo/v1/memory.proto` say more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from replica.wire import memory_pb2 as pb

__all__ = [
    "Entry",
    "FieldHistory",
    "FieldValue",
    "ForgetMode",
    "Forgotten",
    "History",
    "Remembered",
    "RepoCount",
    "TopicCount",
    "Updated",
]


@dataclass(frozen=True, slots=True)
class FieldValue:
    """One value of one field, and the write that put it there."""

    value: str | int
    """Text; for `created_at` a time."""
    cluster: str
    """The cluster that wrote it."""
    written_at_ms: int
    """When, by that cluster's clock."""

    @classmethod
    def of(cls, message: pb.FieldValue) -> FieldValue:
        """The value that a message says."""
        value = message.time_ms if message.WhichOneof("value") == "time_ms" else message.text
        return cls(value, message.cluster, message.written_at_ms)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as the replica sees it."""

    key: str
    exists: bool
    """If not, only the key and its components say anything."""
    repo_id: str
    topic: str
    id: str
    kind: str
    title: str
    body: str
    author: str
    provenance: str
    created_at_ms: int | None
    """None when no payload decodes."""
    tags: tuple[str, ...]
    links: Mapping[str, tuple[str, ...]]
    """Relation to targets."""
    expires_at_ms: int | None
    """None: durable."""
    remaining_seconds: int | None
    """What remains until then by the replica's clock, rounded up; never 0."""
    version: str
    """Opaque: for `if_version`."""
    sibling_count: int
    concurrent: Mapping[str, tuple[FieldValue, ...]]
    """By field: the different values that concurrent writes gave it, the one shown first."""
    undecodable: int
    """Siblings that this replica cannot decode, and that take no part."""

    @classmethod
    def of(cls, message: pb.Entry) -> Entry:
        """The entry that a message says."""
        return cls(
            key=message.key,
            exists=message.exists,
            repo_id=message.repo_id,
            topic=message.topic,
            id=message.id,
            kind=message.kind,
            title=message.title,
            body=message.body,
            author=message.author,
            provenance=message.provenance,
            created_at_ms=message.created_at_ms if message.HasField("created_at_ms") else None,
            tags=tuple(message.tags),
            links={link.relation: tuple(link.targets) for link in message.links},
            expires_at_ms=message.expires_at_ms if message.HasField("expires_at_ms") else None,
            remaining_seconds=message.remaining_seconds if message.HasField("remaining_seconds") else None,
            version=message.version,
            sibling_count=message.sibling_count,
            concurrent={each.field: tuple(map(FieldValue.of, each.values)) for each in message.concurrent},
            undecodable=message.undecodable,
        )


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a remember did."""

    key: str
    id: str
    created: bool
    """It made the entry: no live one was there."""
    expires_at_ms: int | None
    """The expiry in force. None: durable."""
    version: str
    kind: str
    """The kind that the entry has."""
    kind_ignored: bool
    durable_ignored: bool
    created_at_ignored: bool
    fields_updated: int
    tags_added: int
    links_added: int
    links_removed: int
    undecodable: int
    """Payloads that the replica could not decode and carried along."""

    @classmethod
    def of(cls, message: pb.RememberResponse) -> Remembered:
        """The result that a message says."""
        return cls(
            key=message.key,
            id=message.id,
            created=message.created,
            expires_at_ms=message.expires_at_ms if message.HasField("expires_at_ms") else None,
            version=message.version,
            kind=message.kind,
            kind_ignored=message.kind_ignored,
            durable_ignored=message.durable_ignored,
            created_at_ignored=message.created_at_ignored,
            fields_updated=message.fields_updated,
            tags_added=message.tags_added,
            links_added=message.links_added,
            links_removed=message.links_removed,
            undecodable=message.undecodable,
        )


@dataclass(frozen=True, slots=True)
class Updated:
    """What an update changed."""

    key: str
    version: str
    fields_updated: int
    tags_added: int
    tags_removed: int
    links_added: int
    links_removed: int
    expires_at_ms: int | None
    """The expiry in force. None: durable."""
    undecodable: int

    @classmethod
    def of(cls, message: pb.UpdateResponse) -> Updated:
        """The result that a message says."""
        return cls(
            key=message.key,
            version=message.version,
            fields_updated=message.fields_updated,
            tags_added=message.tags_added,
            tags_removed=message.tags_removed,
            links_added=message.links_added,
            links_removed=message.links_removed,
            expires_at_ms=message.expires_at_ms if message.HasField("expires_at_ms") else None,
            undecodable=message.undecodable,
        )


class ForgetMode(StrEnum):
    """How an entry was forgotten."""

    FORGET = "forget"
    """Removed at once."""
    LAPSE = "lapse"
    """Left to lapse."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a forget did."""

    key: str
    mode: ForgetMode
    existed: bool
    """A live entry was there."""
    expires_at_ms: int | None
    """After a lapse: the expiry actually in force."""
    undecodable: int

    @classmethod
    def of(cls, message: pb.ForgetResponse) -> Forgotten:
        """The result that a message says."""
        return cls(
            key=message.key,
            mode=ForgetMode.LAPSE if message.mode == pb.FORGET_MODE_LAPSE else ForgetMode.FORGET,
            existed=message.existed,
            expires_at_ms=message.expires_at_ms if message.HasField("expires_at_ms") else None,
            undecodable=message.undecodable,
        )


@dataclass(frozen=True, slots=True)
class FieldHistory:
    """What one field holds and held."""

    shown: FieldValue | None
    """None when only revisions are left."""
    concurrent: tuple[FieldValue, ...]
    """Written at the same time as the one shown, and different from it."""
    revisions: tuple[FieldValue, ...]
    """Values that lost when a later write settled such a difference, newest first."""

    @classmethod
    def of(cls, message: pb.FieldHistory) -> FieldHistory:
        """The history that a message says."""
        return cls(
            shown=FieldValue.of(message.shown) if message.HasField("shown") else None,
            concurrent=tuple(map(FieldValue.of, message.concurrent)),
            revisions=tuple(map(FieldValue.of, message.revisions)),
        )


@dataclass(frozen=True, slots=True)
class History:
    """What the fields of an entry hold and held."""

    key: str
    exists: bool
    version: str
    fields: Mapping[str, FieldHistory]
    undecodable: int

    @classmethod
    def of(cls, message: pb.HistoryResponse) -> History:
        """The history that a message says."""
        return cls(
            key=message.key,
            exists=message.exists,
            version=message.version,
            fields={each.field: FieldHistory.of(each) for each in message.fields},
            undecodable=message.undecodable,
        )


@dataclass(frozen=True, slots=True)
class TopicCount:
    """A topic and its live entries."""

    topic: str
    live: int

    @classmethod
    def of(cls, message: pb.TopicCount) -> TopicCount:
        """The count that a message says."""
        return cls(message.topic, message.live)


@dataclass(frozen=True, slots=True)
class RepoCount:
    """A repository and its live entries."""

    repo_id: str
    live: int

    @classmethod
    def of(cls, message: pb.RepoCount) -> RepoCount:
        """The count that a message says."""
        return cls(message.repo_id, message.live)
