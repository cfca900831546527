"""The limits of section 10 of the design, checked in one place.

They bind what a request *adds*: a fold may exceed them (concurrent writes each within the limits), and what
an entry holds already is never counted, so a write that adds nothing is never refused for its size. They can
be configured down, not up: peers store whatever a replica accepts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from crdt.record import Record
from crdt.register import Register
from replica.core.commands import Remember, Update, flat_links, text_fields
from replica.core.entry import shown_text
from replica.core.errors import Code, Refused

__all__ = ["DEFAULT_LIMITS", "Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Each at its largest; raises Refused naming the limit that is configured to more, or to less than 1."""

    title_bytes: int = 1024
    """Here and below: bytes of UTF-8."""
    author_bytes: int = 1024
    provenance_bytes: int = 1024
    body_bytes: int = 64 * 1024
    tags: int = 64
    """New tags in one request."""
    tag_bytes: int = 128
    link_targets: int = 256
    """New link targets in one request, of all relations together."""
    relation_bytes: int = 64
    target_bytes: int = 512
    entry_bytes: int = 8 * 1024 * 1024
    """Bytes of a whole entry that a write may add to. It must fit into a message between replicas, with what
    concurrent writes make of it.
    """
    page_entries: int = 500
    """Entries in a page of an answer, and entries or keys in a call of many."""
    page_bytes: int = 2 * 1024 * 1024
    """Bytes at which a page ends. It holds at least one entry."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            assert isinstance(limit.default, int)
            if not 1 <= value <= limit.default:
                raise Refused(
                    Code.INVALID_ARGUMENT, f"must be between 1 and {limit.default}", field=limit.name
                )

    def check(self, command: Remember | Update, held: Record) -> None:
        """Refuse a command that adds more than is allowed to what the entry holds."""
        sizes = {
            "title": self.title_bytes,
            "body": self.body_bytes,
            "author": self.author_bytes,
            "provenance": self.provenance_bytes,
        }
        for name, text in text_fields(command).items():
            if len(text) * 4 > sizes[name] and text != shown_text(held, name):
                _check_bytes(name, text, sizes[name])
        self._check_tags("tags" if isinstance(command, Remember) else "add_tags", _added_tags(command), held)
        self._check_links(command, held)

    def check_entry(
        self, command: Remember | Update, held: Record, before: Register, after: Register
    ) -> None:
        """Refuse a command whose additions make the entry larger than it was and than an entry may be."""
        size = _payload_bytes(after)
        if size <= max(self.entry_bytes, _payload_bytes(before)):
            return
        texts = any(text and text != shown_text(held, name) for name, text in text_fields(command).items())
        tags = set(_added_tags(command)) - held.tags.keys()
        if texts or tags or flat_links(command.add_links) - held.links.keys():
            raise Refused(
                Code.RESOURCE_EXHAUSTED,
                f"the entry would grow to {size} bytes; at most {self.entry_bytes} are allowed: remove tags"
                " or links from it first, or write another entry",
                field="key",
            )

    def _check_tags(self, field: str, tags: tuple[str, ...], held: Record) -> None:
        new = set(tags) - held.tags.keys()
        if len(new) > self.tags:
            raise _too_large(field, f"adds {len(new)} tags; at most {self.tags} are allowed in one call")
        for at, tag in enumerate(tags):
            if tag in new:
                _check_bytes(f"{field}[{at}]", tag, self.tag_bytes)

    def _check_links(self, command: Remember | Update, held: Record) -> None:
        new = {
            (links.relation, target)
            for links in command.add_links
            for target in links.targets
            if (links.relation, target) not in held.links
        }
        if len(new) > self.link_targets:
            raise _too_large(
                "add_links",
                f"adds {len(new)} targets; at most {self.link_targets} are allowed in one call",
            )
        for at, links in enumerate(command.add_links):
            for place, target in enumerate(links.targets):
                if (links.relation, target) in new:
                    _check_bytes(f"add_links[{at}].relation", links.relation, self.relation_bytes)
                    _check_bytes(f"add_links[{at}].targets[{place}]", target, self.target_bytes)


def _added_tags(command: Remember | Update) -> tuple[str, ...]:
    return command.tags if isinstance(command, Remember) else command.add_tags


def _payload_bytes(register: Register) -> int:
    return sum(len(sibling.payload) for sibling in register)


def _too_large(field: str, reason: str) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, reason, field=field)


def _check_bytes(field: str, text: str, most: int) -> None:
    size = len(text.encode())
    if size > most:
        raise _too_large(field, f"is {size} bytes of UTF-8; at most {most} are allowed")


DEFAULT_LIMITS = Limits()
"""The limits of the design."""
