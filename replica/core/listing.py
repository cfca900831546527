"""Which repositories and topics hold live entries, and how many (DESIGN section 10).

Only the frames of registers are read, no payload.
"""

from __future__ import annotations

from dataclasses import dataclass

from crdt.dot import Millis
from crdt.expiry import life
from crdt.key import scope_end, scope_start
from crdt.register import Register
from replica.core.commands import check_repo_id
from replica.core.limits import DEFAULT_LIMITS, Limits
from replica.core.paging import check_page_size, make_token, read_token
from replica.core.storage import DamagedRow, Snapshot
from replica.core.walk import Walk

__all__ = ["Listing", "LiveCount", "Names", "list_repos", "list_topics"]


@dataclass(frozen=True, slots=True)
class LiveCount:
    """A repository or topic, and how many live entries it holds: never 0."""

    name: str
    live: int


@dataclass(frozen=True, slots=True)
class Names:
    """A page of repositories or topics, in byte order."""

    counts: tuple[LiveCount, ...]
    next_page_token: str
    """Empty: this was the last page."""


class Listing(Walk):
    """A listing under way: of the topics of a repository, or (``repo_id`` none) of the repositories.

    Raises Refused for a repository id, page size or token that is none. Take steps until none is due, then
    ask for the names.
    """

    def __init__(
        self,
        repo_id: str | None,
        page_size: int,
        page_token: str,
        now: Millis,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._most = check_page_size(page_size, limits.page_entries, limits.page_entries)
        self._now = now
        self._listing = "repos" if repo_id is None else "topics"
        self._scope = b"" if repo_id is None else scope_start(check_repo_id(repo_id))
        self._counts: dict[bytes, int] = {}
        self._last = b""
        self._more = False
        start, stop = self._scope, scope_end(self._scope) if self._scope else None
        if page_token:
            last = read_token(self._listing, self._scope, page_token)
            start = scope_end(self._scope + last + b"\0")
        super().__init__(start, stop)

    def visit(self, key: bytes, found: Register | DamagedRow) -> bool:
        if isinstance(found, DamagedRow) or life(found, self._now) is None:
            return True
        name = key[len(self._scope) :].split(b"\0", 1)[0]
        if name not in self._counts and len(self._counts) == self._most:
            self._more = True
            return False
        self._counts[name] = self._counts.get(name, 0) + 1
        self._last = name
        return True

    def names(self) -> Names:
        """The page, when the walk has ended."""
        counts = tuple(LiveCount(name.decode(), live) for name, live in self._counts.items())
        return Names(counts, make_token(self._listing, self._scope, self._last) if self._more else "")


def list_topics(
    snapshot: Snapshot,
    repo_id: str,
    page_size: int,
    page_token: str,
    now: Millis,
    limits: Limits = DEFAULT_LIMITS,
) -> Names:
    """The topics of a repository, in one snapshot."""
    listing = Listing(repo_id, page_size, page_token, now, limits)
    listing.run(snapshot)
    return listing.names()


def list_repos(
    snapshot: Snapshot, page_size: int, page_token: str, now: Millis, limits: Limits = DEFAULT_LIMITS
) -> Names:
    """The repositories, in one snapshot."""
    listing = Listing(None, page_size, page_token, now, limits)
    listing.run(snapshot)
    return listing.names()
