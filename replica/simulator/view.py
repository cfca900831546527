"""What a replica shows, in the oracle's words, so that the two can be compared."""

from __future__ import annotations

from collections.abc import Iterable

from crdt.dot import Actor, Dot, Incarnation, Millis
from crdt.key import EntryKey
from crdt.register import Register
from replica.core.commands import TEXT_FIELDS
from replica.core.entry import read_entry, read_history
from replica.simulator import oracle

__all__ = ["dots_of", "from_oracle", "shown", "to_oracle"]


def to_oracle(dot: Dot) -> oracle.Dot:
    """A dot as the oracle names it."""
    return dot.actor.cluster, dot.actor.incarnation, dot.counter


def from_oracle(dot: oracle.Dot) -> Dot:
    """The inverse of :func:`to_oracle`."""
    cluster, incarnation, counter = dot
    return Dot(Actor(cluster, Incarnation(incarnation)), counter)


def dots_of(dots: Iterable[Dot]) -> list[oracle.Dot]:
    """Dots as the oracle names them."""
    return [to_oracle(dot) for dot in dots]


def shown(key: EntryKey, register: Register, now: Millis) -> oracle.Expected | None:
    """What every read of a register shows at ``now``; none when it shows nothing."""
    entry = read_entry(key, register, now)
    if not entry.exists:
        return None
    texts = {name: getattr(entry, name) for name in TEXT_FIELDS}
    return oracle.Expected(
        kind=entry.kind or None,
        created_at=entry.created_at,
        fields={name: text for name, text in texts.items() if text},
        concurrent={
            one.field: tuple(sorted(str(value.value) for value in one.values)) for one in entry.concurrent
        },
        tags=frozenset(entry.tags),
        links=frozenset((links.relation, target) for links in entry.links for target in links.targets),
        revisions=tuple(
            sorted(
                (one.field, str(lost.value))
                for one in read_history(key, register, now).fields
                for lost in one.revisions
            )
        ),
        expires_at=entry.expires_at,
        siblings=frozenset(to_oracle(sibling.dot) for sibling in register if not sibling.tombstone),
    )
