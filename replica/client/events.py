"""What a watch tells, as values. Times are milliseconds since the Unix epoch, UTC.

Each event reads itself from its protobuf message, whose comments in `proto/ricordo/v1/memory.proto` say more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from replica.client.entries import Entry
from replica.wire import memory_pb2 as pb

__all__ = ["EventKind", "WatchEvent"]


class EventKind(StrEnum):
    """What an event tells."""

    PUT = "put"
    """An entry is there, new or changed, or was found in the initial state."""
    FORGOTTEN = "forgotten"
    LAPSED = "lapsed"
    """An entry has reached its expiry."""
    PROGRESS = "progress"
    """How far the watch is. The first one says that it has caught up, with the initial state if that was
    asked for.
    """
    UNKNOWN = "unknown"
    """Something that this client does not know."""


_KINDS = {
    "put": EventKind.PUT,
    "forgotten": EventKind.FORGOTTEN,
    "lapsed": EventKind.LAPSED,
    "progress": EventKind.PROGRESS,
}


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch. What does not belong to its kind is None."""

    kind: EventKind
    key: str | None
    """Of the entry; None for progress."""
    repo_id: str | None
    topic: str | None
    id: str | None
    entry: Entry | None
    """As it is now, when it was put."""
    expires_at_ms: int | None
    """The expiry at which it lapsed."""
    at_ms: int | None
    """Of progress: the moment, by the replica's clock."""
    caught_up: bool | None
    """Of progress: whether everything up to that moment has been told."""
    resume_token: str
    """Goes on behind this event."""

    @classmethod
    def of(cls, message: pb.WatchEvent) -> WatchEvent:
        """The event that a message says."""
        field = message.WhichOneof("event")
        kind = EventKind.UNKNOWN if field is None else _KINDS[field]
        told: pb.Entry | pb.Removal | None = None
        if kind is EventKind.PUT:
            told = message.put
        elif kind is EventKind.FORGOTTEN:
            told = message.forgotten
        elif kind is EventKind.LAPSED:
            told = message.lapsed
        lapsed = kind is EventKind.LAPSED and message.lapsed.HasField("expires_at_ms")
        return cls(
            kind=kind,
            key=None if told is None else told.key,
            repo_id=None if told is None else told.repo_id,
            topic=None if told is None else told.topic,
            id=None if told is None else told.id,
            entry=Entry.of(message.put) if kind is EventKind.PUT else None,
            expires_at_ms=message.lapsed.expires_at_ms if lapsed else None,
            at_ms=message.progress.at_ms if kind is EventKind.PROGRESS else None,
            caught_up=message.progress.caught_up if kind is EventKind.PROGRESS else None,
            resume_token=message.resume_token,
        )
