"""Reads of single entries and pages of them (DESIGN section 10).

An entry at or past its expiry is hidden from the very millisecond, and counts as absent. Nothing here waits,
and a read never changes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crdt.dot import Millis
from crdt.expiry import life
from crdt.key import EntryKey, scope_end, scope_start
from crdt.register import Register
from replica.core.commands import check_repo_id, check_topic
from replica.core.entry import Entry, History, read_entry, read_history, size_bound
from replica.core.errors import Code, Refused
from replica.core.limits import DEFAULT_LIMITS, Limits
from replica.core.paging import check_page_size, make_token, read_token
from replica.core.rows import get_register
from replica.core.storage import DamagedRow, Snapshot
from replica.core.walk import Walk

__all__ = ["DEFAULT_PAGE", "Page", "Scanning", "history", "recall", "recall_many", "scan"]

DEFAULT_PAGE = 100
"""Entries in a page of a scan that does not say."""


def _read(snapshot: Snapshot, key: EntryKey, field: str) -> Register:
    try:
        return get_register(snapshot, key)
    except DamagedRow:
        raise Refused(
            Code.DATA_LOSS,
            "what is stored there is damaged; it is fetched again from peers, so read it again later",
            field=field,
        ) from None


def recall(snapshot: Snapshot, key: EntryKey, now: Millis) -> Entry:
    """The entry at a key, or its absence. Raises Refused (DATA_LOSS) when the row is damaged."""
    return read_entry(key, _read(snapshot, key, "key"), now)


def recall_many(
    snapshot: Snapshot, keys: Sequence[EntryKey], now: Millis, limits: Limits = DEFAULT_LIMITS
) -> tuple[Entry, ...]:
    """The entries at many keys, in the order of the keys.

    Raises Refused when there are too many (INVALID_ARGUMENT), when together they are larger than an answer
    may be (RESOURCE_EXHAUSTED), and when a row is damaged (DATA_LOSS, naming its place).
    """
    if len(keys) > limits.page_entries:
        raise Refused(
            Code.INVALID_ARGUMENT,
            f"are {len(keys)}; at most {limits.page_entries} are allowed in one call",
            field="keys",
        )
    entries: list[Entry] = []
    size = 0
    for at, key in enumerate(keys):
        entry = read_entry(key, _read(snapshot, key, f"keys[{at}]"), now)
        size += size_bound(entry)
        if entries and size > limits.page_bytes:
            raise Refused(
                Code.RESOURCE_EXHAUSTED,
                f"name entries of more than {limits.page_bytes} bytes together; ask for fewer",
                field="keys",
            )
        entries.append(entry)
    return tuple(entries)


def history(snapshot: Snapshot, key: EntryKey, now: Millis) -> History:
    """What the fields of the entry at a key hold. Raises Refused (DATA_LOSS) when the row is damaged."""
    return read_history(key, _read(snapshot, key, "key"), now)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a scan."""

    entries: tuple[Entry, ...]
    next_page_token: str
    """Empty: this was the last page."""
    damaged: tuple[EntryKey, ...]
    """Keys whose row is damaged and was left out: to be reported."""


class Scanning(Walk):
    """A scan under way: one page of the live entries of a repository, or of one of its topics, in key order.

    Raises Refused for a scope, page size or token that is none. Take steps until none is due, then ask for
    the page.
    """

    def __init__(
        self,
        repo_id: str,
        topic: str | None,
        page_size: int,
        page_token: str,
        now: Millis,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        check_repo_id(repo_id)
        if topic is not None:
            check_topic(topic)
        self._most = check_page_size(page_size, DEFAULT_PAGE, limits.page_entries)
        self._room = limits.page_bytes
        self._scope = scope_start(repo_id, topic)
        self._now = now
        self._entries: list[Entry] = []
        self._damaged: list[EntryKey] = []
        self._more = False
        start = self._scope
        if page_token:
            start = read_token("scan", self._scope, page_token) + b"\0"
        super().__init__(start, scope_end(self._scope))

    def visit(self, key: bytes, found: Register | DamagedRow) -> bool:
        if isinstance(found, DamagedRow):
            self._damaged.append(EntryKey.from_store(key))
            return True
        if life(found, self._now) is None:
            return True
        if len(self._entries) == self._most:
            self._more = True
            return False
        entry = read_entry(EntryKey.from_store(key), found, self._now)
        self._room -= size_bound(entry)
        if self._entries and self._room < 0:
            self._more = True
            return False
        self._entries.append(entry)
        return True

    def page(self) -> Page:
        """The page, when the walk has ended."""
        token = ""
        if self._more:
            token = make_token("scan", self._scope, self._entries[-1].key.to_store())
        return Page(tuple(self._entries), token, tuple(self._damaged))


def scan(
    snapshot: Snapshot,
    repo_id: str,
    topic: str | None,
    page_size: int,
    page_token: str,
    now: Millis,
    limits: Limits = DEFAULT_LIMITS,
) -> Page:
    """A whole :class:`Scanning` in one snapshot. ``page_size`` 0 means the default, an empty token the first
    page.
    """
    scanning = Scanning(repo_id, topic, page_size, page_token, now, limits)
    scanning.run(snapshot)
    return scanning.page()
