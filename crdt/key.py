"""Keys: ``repo/{repoId}/mem/{topic}/{id}`` (DESIGN section 10).

A key has two forms. The *display* form is what people and the wire see: ``%`` and ``/`` inside a component
are escaped as ``%25`` and ``%2F``. The *store* form is the three unescaped components joined by U+0000; its
byte order is the order of keys.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

__all__ = ["COMPONENT_MAX_BYTES", "EntryKey", "InvalidKey", "check_component", "scope_end", "scope_start"]

COMPONENT_MAX_BYTES = 128
"""The most bytes of UTF-8 in one component."""

_SEPARATOR = "\0"
_ESCAPE = re.compile(r"%(25|2F)?")


class InvalidKey(ValueError):
    """A key or one of its components breaks the rules; ``field`` names the component."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field = field
        self.reason = reason


def check_component(field: str, text: str) -> str:
    """The component itself, if it is one: non-empty, NFC, without control characters, at most 128 bytes of
    UTF-8.

    Raises :class:`InvalidKey` naming ``field``.
    """
    if not text:
        raise InvalidKey(field, "must not be empty")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidKey(field, "must be valid Unicode: it holds a lone surrogate") from None
    if size > COMPONENT_MAX_BYTES:
        raise InvalidKey(field, f"is {size} bytes of UTF-8; at most {COMPONENT_MAX_BYTES} are allowed")
    if text.isascii():
        if not text.isprintable():
            raise InvalidKey(field, "must not contain control characters")
        return text
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise InvalidKey(field, "must not contain control characters")
    if not unicodedata.is_normalized("NFC", text):
        raise InvalidKey(field, "must be in Unicode normalization form C (NFC)")
    return text


def _escape(component: str) -> str:
    return component.replace("%", "%25").replace("/", "%2F")


def _unescape(field: str, text: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1] is None:
            raise InvalidKey(field, "holds a bare %: write %25 for a percent sign and %2F for a slash")
        return "%" if match[1] == "25" else "/"

    return _ESCAPE.sub(character, text)


@dataclass(frozen=True, slots=True, order=True)
class EntryKey:
    """The key of an entry. Build it with :meth:`make`, :meth:`parse` or :meth:`from_store`: they check it."""

    repo_id: str
    topic: str
    id: str

    @classmethod
    def make(cls, repo_id: str, topic: str, id: str) -> EntryKey:
        """The key of three components; raises :class:`InvalidKey`."""
        return cls(
            check_component("repo_id", repo_id), check_component("topic", topic), check_component("id", id)
        )

    @classmethod
    def parse(cls, text: str) -> EntryKey:
        """The key of a display form; raises :class:`InvalidKey`. Every key has exactly one display form."""
        parts = text.split("/")
        if len(parts) != 5 or parts[0] != "repo" or parts[2] != "mem":
            raise InvalidKey("key", "must have the form repo/{repoId}/mem/{topic}/{id}")
        return cls.make(
            _unescape("repo_id", parts[1]), _unescape("topic", parts[3]), _unescape("id", parts[4])
        )

    @classmethod
    def from_store(cls, raw: bytes) -> EntryKey:
        """The key of a store form; raises :class:`InvalidKey`."""
        try:
            parts = raw.decode().split(_SEPARATOR)
        except UnicodeDecodeError:
            raise InvalidKey("key", "is not valid UTF-8") from None
        if len(parts) != 3:
            raise InvalidKey("key", "must have three components")
        return cls.make(*parts)

    def to_store(self) -> bytes:
        """The store form, at most 386 bytes."""
        return _SEPARATOR.join((self.repo_id, self.topic, self.id)).encode()

    def __str__(self) -> str:
        return f"repo/{_escape(self.repo_id)}/mem/{_escape(self.topic)}/{_escape(self.id)}"


def scope_start(repo_id: str, topic: str | None = None) -> bytes:
    """The store form at which a repository, or one of its topics, begins. A scope ends at a component
    boundary. Raises :class:`InvalidKey`.
    """
    scope = check_component("repo_id", repo_id) + _SEPARATOR
    if topic is not None:
        scope += check_component("topic", topic) + _SEPARATOR
    return scope.encode()


def scope_end(start: bytes) -> bytes:
    """The store form before which a scope ends, given its start."""
    return start[:-1] + b"\x01"
