"""What `GetDigest` answers, as values. Times are milliseconds since the Unix epoch, UTC."""

from __future__ import annotations

from dataclasses import dataclass, field

from replica.wire import admin_pb2 as pb

__all__ = ["Digest", "EntryDigest", "KeyRange", "PartDigest", "RangeDigests"]


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest of the entries live at a moment."""

    digest: bytes
    """32 bytes."""
    live: int
    at_ms: int
    cluster: str = field(default="", compare=False)
    """Whose it is. It makes no digest differ."""

    @classmethod
    def of(cls, message: pb.GetDigestResponse) -> Digest:
        """The digest that a message says."""
        return cls(message.digest, message.live, message.at_ms, message.cluster)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys from `start` on and before `stop`, in the byte order of unescaped components."""

    start: str = ""
    """A key. Empty: from the first one on."""
    stop: str = ""
    """A key. Empty: to the last one."""


@dataclass(frozen=True, slots=True)
class EntryDigest:
    """The digest of one entry."""

    key: str
    digest: bytes
    """32 bytes."""
    damaged: bool
    """The row cannot be read."""


@dataclass(frozen=True, slots=True)
class PartDigest:
    """The digest of a part of a range, or of a whole one."""

    range: KeyRange
    digest: bytes
    """32 bytes."""
    live: int
    damaged: int
    """Rows that cannot be read, and are covered as such."""
    entries: tuple[EntryDigest, ...]
    """Every live entry and damaged row by key, if that was asked for and they are not too many."""

    @classmethod
    def of(cls, message: pb.PartDigest) -> PartDigest:
        """The part that a message says."""
        return cls(
            range=KeyRange(message.range.start, message.range.stop),
            digest=message.digest,
            live=message.live,
            damaged=message.damaged,
            entries=tuple(EntryDigest(each.key, each.digest, each.damaged) for each in message.entries),
        )


@dataclass(frozen=True, slots=True)
class RangeDigests:
    """Digests of ranges as of a moment."""

    cluster: str
    """Whose they are."""
    at_ms: int
    parts: tuple[PartDigest, ...]
    """Of each range its parts, in the order of keys."""

    @classmethod
    def of(cls, message: pb.GetDigestResponse) -> RangeDigests:
        """The digests that a message says."""
        return cls(message.cluster, message.at_ms, tuple(map(PartDigest.of, message.parts)))
