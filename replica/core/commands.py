"""What a caller asks for, validated: the commands of the node (DESIGN sections 4 and 10).

A command that makes no sense in itself cannot be built: its constructor raises :class:`Refused` naming the
field as the interface does (``tags[3]``, ``add_links[0].relation``). Sizes are judged later, by
:mod:`replica.core.limits`, which knows what the entry holds already.
"""

from __future__ import annotations

import enum
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from crdt.dot import Millis
from crdt.key import EntryKey, InvalidKey, check_component
from crdt.record import Link
from replica.core.errors import Code, Refused

__all__ = [
    "DEFAULT_LAPSE",
    "END_OF_TIME",
    "REQUEST_ID_MAX_BYTES",
    "TEXT_FIELDS",
    "Command",
    "Forget",
    "Kind",
    "Links",
    "Remember",
    "Update",
    "check_repo_id",
    "check_topic",
    "flat_links",
    "make_key",
    "parse_key",
    "parse_kind",
    "text_fields",
    "ttl_millis",
]

END_OF_TIME = Millis(253_402_300_799_999)
"""The last millisecond of the year 9999: no time that a caller asks for lies beyond it."""

_BEGINNING_OF_TIME = Millis(-62_135_596_800_000)
"""The first millisecond of the year 1."""

DEFAULT_LAPSE = Millis(60_000)
"""What a forget with lapse leaves of an entry's life unless it says otherwise."""

REQUEST_ID_MAX_BYTES = 128

TEXT_FIELDS = ("title", "body", "author", "provenance")
"""The fields that any write can set, in the order in which they are shown."""


class Kind(enum.Enum):
    """What an entry is; fixed when it is created."""

    DECISION = "Decision"
    NOTE = "Note"
    MEMORY = "Memory"


@dataclass(frozen=True, slots=True)
class Links:
    """The targets of one relation."""

    relation: str
    targets: tuple[str, ...]


def _invalid(field: str, reason: str) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, reason, field=field)


# --- from what callers write to what commands hold


def parse_kind(text: str) -> Kind:
    """The kind of that name; raises Refused."""
    try:
        return Kind(text)
    except ValueError:
        names = ", ".join(kind.value for kind in Kind)
        raise _invalid("kind", f"is not a known kind; choose one of {names}") from None


def ttl_millis(seconds: float, field: str) -> Millis:
    """A duration in seconds as milliseconds, rounded up; raises Refused unless it is positive and finite.

    The number is read as its decimal digits: 1.1 s is 1100 ms.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _invalid(field, "must be a number of seconds")
    if isinstance(seconds, float) and not math.isfinite(seconds):
        raise _invalid(field, "must be finite")
    if seconds <= 0:
        raise _invalid(field, "must be greater than 0")
    if seconds * 1000 > END_OF_TIME:
        raise _invalid(field, "must end before the year 10000")
    return Millis(math.ceil(Decimal(repr(seconds)) * 1000))


def parse_key(text: str, field: str = "key") -> EntryKey:
    """The key of a display form; raises Refused naming ``field``."""
    try:
        return EntryKey.parse(text)
    except InvalidKey as error:
        part = "" if error.field == "key" else f"{error.field} "
        raise _invalid(field, part + error.reason) from None


def make_key(repo_id: str, topic: str, id: str) -> EntryKey:
    """The key of three components; raises Refused naming the one at fault."""
    try:
        return EntryKey.make(repo_id, topic, id)
    except InvalidKey as error:
        raise _invalid(error.field, error.reason) from None


def _check_component(field: str, text: str) -> str:
    try:
        return check_component(field, text)
    except InvalidKey as error:
        raise _invalid(error.field, error.reason) from None


def check_repo_id(repo_id: str) -> str:
    """The repository id itself, if it is one; raises Refused."""
    return _check_component("repo_id", repo_id)


def check_topic(topic: str) -> str:
    """The topic itself, if it is one; raises Refused."""
    return _check_component("topic", topic)


# --- checks that every command shares


def _check_unicode(field: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _invalid(field, "must be valid Unicode: it holds a lone surrogate") from None


def _check_name(field: str, text: str) -> None:
    """A tag or relation: shown in lists, so not empty and without control characters."""
    if not text:
        raise _invalid(field, "must not be empty")
    _check_unicode(field, text)
    if not text.isprintable() and any(unicodedata.category(character) == "Cc" for character in text):
        raise _invalid(field, "must not contain control characters")


def _check_tags(field: str, tags: Iterable[str]) -> None:
    for at, tag in enumerate(tags):
        _check_name(f"{field}[{at}]", tag)


def _check_links(field: str, links: Iterable[Links]) -> None:
    for at, of_relation in enumerate(links):
        _check_name(f"{field}[{at}].relation", of_relation.relation)
        if not of_relation.targets:
            raise _invalid(f"{field}[{at}].targets", "must name at least one target")
        for place, target in enumerate(of_relation.targets):
            if not target:
                raise _invalid(f"{field}[{at}].targets[{place}]", "must not be empty")
            _check_unicode(f"{field}[{at}].targets[{place}]", target)


def _check_request_id(request_id: str | None) -> None:
    if request_id is None:
        return
    if not request_id:
        raise _invalid("request_id", "must not be empty")
    _check_unicode("request_id", request_id)
    if len(request_id.encode()) > REQUEST_ID_MAX_BYTES:
        raise _invalid("request_id", f"must be at most {REQUEST_ID_MAX_BYTES} bytes of UTF-8")


def _check_ttl(field: str, ttl: Millis | None) -> None:
    if ttl is not None and not 0 < ttl <= END_OF_TIME:
        raise _invalid(field, "must be greater than 0, and end before the year 10000")


def flat_links(links: Iterable[Links]) -> frozenset[Link]:
    """The single link targets, as the record holds them."""
    return frozenset(
        Link(of_relation.relation, target) for of_relation in links for target in of_relation.targets
    )


def _check_both(added: frozenset[Link], removed: frozenset[Link]) -> None:
    if not added.isdisjoint(removed):
        raise _invalid("remove_links", "must not name a target that add_links names too")


# --- the commands


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember:
    """Make an entry, or write over the live one at its key. An absent (None) field leaves what is there."""

    key: EntryKey
    generated_id: bool = False
    """The id was generated by this replica for this very call, so it is no part of what was asked for."""
    kind: Kind | None = None
    """Absent: at creation ``Note``."""
    title: str | None = None
    """Here and in the next three: empty clears the field."""
    body: str | None = None
    author: str | None = None
    provenance: str | None = None
    tags: tuple[str, ...] = ()
    """Tags to add."""
    add_links: tuple[Links, ...] = ()
    remove_links: tuple[Links, ...] = ()
    ttl: Millis | None = None
    """Positive: how long the entry lives at least."""
    durable: bool = False
    """At creation: no expiry, whatever the repository's default."""
    create_only: bool = False
    if_version: str | None = None
    created_at: Millis | None = None
    """Absent: at creation the time of the write."""
    request_id: str | None = None

    def __post_init__(self) -> None:
        _check_request_id(self.request_id)
        for name, text in text_fields(self).items():
            _check_unicode(name, text)
        _check_tags("tags", self.tags)
        _check_links("add_links", self.add_links)
        _check_links("remove_links", self.remove_links)
        _check_both(flat_links(self.add_links), flat_links(self.remove_links))
        _check_ttl("ttl_seconds", self.ttl)
        if self.durable and self.ttl is not None:
            raise _invalid("durable", "contradicts ttl_seconds; give one of them")
        if self.create_only and self.if_version is not None:
            raise _invalid("create_only", "contradicts if_version; give one of them")
        if self.created_at is not None and not _BEGINNING_OF_TIME <= self.created_at <= END_OF_TIME:
            raise _invalid("created_at_ms", "must lie between the years 1 and 9999")


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Change an entry that is live, and leave its expiry. An absent (None) field leaves what is there."""

    key: EntryKey
    title: str | None = None
    """Here and in the next three: empty clears the field."""
    body: str | None = None
    author: str | None = None
    provenance: str | None = None
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()
    add_links: tuple[Links, ...] = ()
    remove_links: tuple[Links, ...] = ()
    if_version: str | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        _check_request_id(self.request_id)
        for name, text in text_fields(self).items():
            _check_unicode(name, text)
        _check_tags("add_tags", self.add_tags)
        _check_tags("remove_tags", self.remove_tags)
        if not set(self.add_tags).isdisjoint(self.remove_tags):
            raise _invalid("remove_tags", "must not name a tag that add_tags names too")
        _check_links("add_links", self.add_links)
        _check_links("remove_links", self.remove_links)
        _check_both(flat_links(self.add_links), flat_links(self.remove_links))


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Remove an entry, at once or, with ``lapse``, by giving it an expiry."""

    key: EntryKey
    lapse: bool = False
    lapse_for: Millis | None = None
    """Positive; with ``lapse`` only. Absent: :data:`DEFAULT_LAPSE`."""
    request_id: str | None = None

    def __post_init__(self) -> None:
        _check_request_id(self.request_id)
        _check_ttl("lapse_seconds", self.lapse_for)
        if self.lapse_for is not None and not self.lapse:
            raise _invalid("lapse_seconds", "needs lapse; set it, or leave lapse_seconds out")


Command = Remember | Update | Forget


def _named(command: Remember | Update) -> Iterator[tuple[str, str | None]]:
    yield "title", command.title
    yield "body", command.body
    yield "author", command.author
    yield "provenance", command.provenance


def text_fields(command: Remember | Update) -> Mapping[str, str]:
    """The text fields that a command names, in the order of :data:`TEXT_FIELDS`."""
    return {name: text for name, text in _named(command) if text is not None}
