"""What a read must show of some siblings (design sections 3, 4 and 10)."""

from collections.abc import Mapping
from dataclasses import dataclass

from .graph import CREATED_AT, KIND, Dot, Graph, Standing

__all__ = ["Expected", "shown"]


@dataclass(frozen=True, slots=True)
class Expected:
    """A live entry as every read must show it."""

    kind: str | None
    """None where a concurrent forget took it and nothing said it anew."""
    created_at: int | None
    """Milliseconds since the epoch; None as for `kind`."""
    fields: Mapping[str, str]
    """The shown values by name, without `kind` and `created_at`; a field shown as empty is left out."""
    concurrent: Mapping[str, tuple[str, ...]]
    """By field (`kind` and `created_at` too, the latter in decimal), its values sorted, where they differ."""
    tags: frozenset[str]
    links: frozenset[tuple[str, str]]
    """(relation, target)."""
    revisions: tuple[tuple[str, str], ...]
    """(field, value), sorted; a value stands as often as it was collapsed."""
    expires_at: int | None
    siblings: frozenset[Dot]
    """Every value sibling, those that do not contribute too."""


def shown(graph: Graph, standing: Standing, now: int) -> Expected | None:
    """The entry that a read of these siblings shows at `now`, or None where it is absent."""
    if not standing.live(now):
        return None
    content = graph.content(standing.folded)
    fields = {name: graph.values[name, writes[0]] for name, writes in content.fields.items()}
    kind, created_at = fields.pop(KIND, None), fields.pop(CREATED_AT, None)
    concurrent = {}
    for name, writes in content.fields.items():
        if len(writes) > 1 and len(values := graph.differing(content, name)) > 1:
            concurrent[name] = values
    return Expected(
        kind=kind,
        created_at=None if created_at is None else int(created_at),
        fields={name: value for name, value in fields.items() if value},
        concurrent=concurrent,
        tags=content.tags,
        links=content.links,
        revisions=tuple(sorted((name, graph.values[name, write]) for name, write in content.revisions)),
        expires_at=standing.expires_at,
        siblings=frozenset(graph.dots[write] for write in standing.values),
    )
