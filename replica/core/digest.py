"""A digest of what is live: do two replicas hold the same (DESIGN section 10, ``GetDigest``)?

It covers, for every entry that is live at one moment and in the order of keys: the key, the expiry in force,
the record that a reader would be shown (the fold, with the dots and times of everything in it, revisions and
record context included) and the payloads that do not decode. Not covered: tombstones of dead keys, hidden
entries, and how the siblings came to be framed. So replicas with the same live state have the same digest,
whether or not one has purged what the other has not.

Of an entry with a single sibling the record is the payload as it stands, since encodings are canonical; it is
not even decoded. Distinct from the fingerprints that replication compares.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from crdt.codec import encode_record
from crdt.dot import Millis
from crdt.expiry import life
from crdt.fold import fold
from crdt.register import Register
from replica.core.scope import check_scope, scope_bounds
from replica.core.storage import DamagedRow, Snapshot
from replica.core.walk import Walk

__all__ = ["DIGEST_BYTES", "Digest", "Digesting", "RepoDigest", "get_digest", "read_frame"]

DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class RepoDigest:
    """The digest of one repository."""

    repo_id: str
    digest: bytes
    live: int


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of everything, of one repository, or of one topic in it."""

    at: Millis
    """The moment as of which entries are live."""
    digest: bytes
    """:data:`DIGEST_BYTES` bytes: over the digests of the repositories."""
    live: int
    """Entries live at that moment."""
    repos: tuple[RepoDigest, ...]
    """Of every repository with a live entry or a damaged row, by id: these say where replicas differ."""
    damaged: int
    """Rows that cannot be read. They are covered as such: a replica with one agrees with no healthy one."""


class Digesting(Walk):
    """A digest under way. In one snapshot it is of one state; over several of none in particular, unless
    nothing was written.
    """

    def __init__(self, at: Millis, repo_id: str | None = None, topic: str | None = None) -> None:
        """Raises Refused for what is no repository id or topic."""
        self._at = at
        self._repos: list[RepoDigest] = []
        self._repo = b""
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._live = 0
        self._damaged = 0
        super().__init__(*scope_bounds(check_scope(repo_id, topic)))

    def visit(self, key: bytes, found: Register | DamagedRow) -> bool:
        frame = read_frame(key, found, self._at)
        if frame is None:
            return True
        self._enter(key)
        if isinstance(found, DamagedRow):
            self._damaged += 1
        else:
            self._live += 1
        self._hash.update(frame)
        return True

    def _enter(self, key: bytes) -> None:
        """Begin a repository, if this is its first key that counts."""
        repo = key.split(b"\0", 1)[0]
        if repo != self._repo:
            self._leave()
            self._repo = repo

    def _leave(self) -> None:
        if self._repo:
            self._repos.append(RepoDigest(self._repo.decode(), self._hash.digest(), self._live))
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._live = 0
        self._repo = b""

    def digest(self) -> Digest:
        """The digest, when the walk has ended."""
        self._leave()
        whole = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for repo in self._repos:
            whole.update(_framed(repo.repo_id.encode(), repo.digest))
        live = sum(repo.live for repo in self._repos)
        return Digest(self._at, whole.digest(), live, tuple(self._repos), self._damaged)


def read_frame(key: bytes, found: Register | DamagedRow, at: Millis) -> bytes | None:
    """What a digest covers of one key: equal frames are equal entries. None: nothing is live there."""
    if isinstance(found, DamagedRow):
        return _framed(b"damaged", key)
    alive = life(found, at)
    if alive is None:
        return None
    expires_at = b"" if alive.expires_at is None else b"%d" % alive.expires_at
    return _framed(b"live", key, expires_at, *_contents(found, at))


def _contents(register: Register, at: Millis) -> list[bytes]:
    """What a reader is shown of a live entry: the record, then the payloads that do not decode."""
    if len(register) == 1:
        return [register[0].payload]
    folded = fold(register, at)
    assert folded is not None
    unread = sorted({sibling.payload for sibling in folded.undecodable})
    # A record without a context is the fold of nothing.
    return [encode_record(folded.record), *unread] if folded.record.context else unread


def _framed(*parts: bytes) -> bytes:
    """The parts with their lengths, so that no two lists of parts look alike."""
    return b"%d;" % len(parts) + b"".join(b"%d:%b" % (len(part), part) for part in parts)


def get_digest(
    snapshot: Snapshot, at: Millis, repo_id: str | None = None, topic: str | None = None
) -> Digest:
    """The digest of one snapshot. Raises Refused for what is no repository id or topic."""
    digesting = Digesting(at, repo_id, topic)
    digesting.run(snapshot)
    return digesting.digest()
