"""The oracle of the soak: what clients were told, and what therefore has to be there, or must not be.

It shares no code with the replica. Each writer writes what nobody else writes, every value once, so that it
can be decided of each acknowledged write whether it survived.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Protocol

__all__ = ["Ledger", "Seen"]

_ABOUT_TO_EXPIRE = 600_000
"""Milliseconds: nearer to its expiry than that, an entry may be gone."""


class Value(Protocol):
    """One of several concurrent values."""

    @property
    def value(self) -> str | int: ...


class Seen(Protocol):
    """An entry as a reader sees it."""

    @property
    def title(self) -> str: ...
    @property
    def tags(self) -> tuple[str, ...]: ...
    @property
    def concurrent(self) -> Mapping[str, tuple[Value, ...]]: ...


class Ledger:
    """What was attempted, and what was acknowledged. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._titles: dict[str, list[str]] = defaultdict(list)
        """Every title that was ever sent, by key, in order: each key has one writer."""
        self._tags: dict[str, set[str]] = defaultdict(set)
        """Every tag that was ever sent, by key."""
        self._kept: dict[str, int] = {}
        """By key the place of the last title that was acknowledged."""
        self._expiries: dict[str, int] = {}
        self._tagged: dict[str, set[str]] = defaultdict(set)
        self._doubtful: set[str] = set()
        """Keys of which a forget was sent and got no answer."""
        self._forgotten: set[str] = set()
        self.acknowledged = 0

    def sending(self, key: str, title: str) -> None:
        """A title is about to be sent."""
        with self._lock:
            self._titles[key].append(title)

    def sending_tag(self, key: str, tag: str) -> None:
        """A tag is about to be sent."""
        with self._lock:
            self._tags[key].add(tag)

    def forgetting(self, key: str) -> None:
        """A forget is about to be sent."""
        with self._lock:
            self._doubtful.add(key)

    def remembered(self, key: str, title: str, expires_at: int | None = None) -> None:
        """A title was acknowledged, and with it that the entry lives until then, or for ever."""
        with self._lock:
            self._kept[key] = self._titles[key].index(title)
            if expires_at is not None:
                self._expiries[key] = expires_at
            self.acknowledged += 1

    def tagged(self, key: str, tag: str) -> None:
        """A tag was acknowledged."""
        with self._lock:
            self._tagged[key].add(tag)
            self.acknowledged += 1

    def forgot(self, key: str, *, existed: bool) -> None:
        """A forget was acknowledged. One that found nothing has forgotten nothing."""
        with self._lock:
            self._doubtful.discard(key)
            if existed:
                self._forgotten.add(key)
            self.acknowledged += 1

    @property
    def forgotten(self) -> int:
        """How many entries are forgotten for good."""
        with self._lock:
            return len(self._forgotten)

    def violations(self, found: Mapping[str, Seen], now: int, *, expiring: bool = True) -> Iterator[str]:
        """What is wrong with what a replica shows, once all faults are healed: a sentence for each.

        ``expiring``: entries that live for a time are looked for, too.
        """
        with self._lock:
            for key in self._forgotten & found.keys():
                yield f"{key}: was forgotten, and is back"
            for key, last in self._kept.items():
                if key in self._forgotten or key in self._doubtful:
                    continue
                expires_at = self._expiries.get(key)
                if expires_at is not None and (not expiring or expires_at < now + _ABOUT_TO_EXPIRE):
                    continue
                yield from self._lost(key, last, found.get(key))
            for key, tags in self._tagged.items():
                missing = tags - {*found[key].tags} if key in found else tags
                if missing:
                    yield f"{key}: lacks tags that were acknowledged: {sorted(missing)}"
            for key, entry in found.items():
                yield from self._invented(key, entry)

    def _lost(self, key: str, last: int, entry: Seen | None) -> Iterator[str]:
        if entry is None:
            yield f"{key}: was acknowledged, and is not there"
            return
        # What came later and was not acknowledged may have replaced it.
        allowed = set(self._titles[key][last:])
        if not allowed & {entry.title, *(value.value for value in entry.concurrent.get("title", ()))}:
            yield f"{key}: {self._titles[key][last]!r} was acknowledged, and {entry.title!r} is there"

    def _invented(self, key: str, entry: Seen) -> Iterator[str]:
        if key not in self._titles and key not in self._tags:
            yield f"{key}: nobody wrote it"
        elif entry.title and entry.title not in self._titles[key]:
            yield f"{key}: nobody wrote the title {entry.title!r}"
        invented = {*entry.tags} - self._tags.get(key, set())
        if invented:
            yield f"{key}: nobody wrote the tags {sorted(invented)}"
