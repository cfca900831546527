"""What a remember or an update puts into its record, and what it collapses (decision 0002, "Fields")."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from .graph import CREATED_AT, KIND, Content, Graph

__all__ = ["Edit"]


@dataclass(frozen=True, slots=True)
class Edit:
    """The part of a request that changes a record."""

    fields: Mapping[str, str]
    """Every field that the request names, with its value; empty clears."""
    add_tags: Collection[str]
    remove_tags: Collection[str]
    add_links: Mapping[str, Collection[str]]
    """Targets by relation."""
    remove_links: Mapping[str, Collection[str]]

    @property
    def contradictory(self) -> bool:
        """Whether the request adds and removes the same tag or link target: it is refused."""
        return not set(self.add_tags).isdisjoint(self.remove_tags) or any(
            not set(targets).isdisjoint(self.remove_links.get(relation, ()))
            for relation, targets in self.add_links.items()
        )

    def begin(self, graph: Graph, write: int, kind: str, created_at: int) -> None:
        """Record the content of a creation."""
        graph.put_field(write, KIND, kind)
        graph.put_field(write, CREATED_AT, str(created_at))
        self._change(graph, write, Content({}, frozenset(), frozenset(), ()), self.fields)

    def carry_on(self, graph: Graph, write: int, base: Content, kind: str | None) -> bool:
        """Record the content of a write over `base`; returns whether the `kind` it names was ignored.

        The kind is put again where it is not in dispute. A kind in dispute is settled by naming the one that
        is shown, an unknown one by naming any (decision 0003). The shown creation time is put again always:
        that settles a dispute.
        """
        fields = dict(self.fields)
        kinds, times = base.fields.get(KIND, ()), base.fields.get(CREATED_AT, ())
        if len(graph.differing(base, KIND)) == 1:
            fields[KIND] = graph.values[KIND, kinds[0]]
        if times:
            fields[CREATED_AT] = graph.values[CREATED_AT, times[0]]
        agreed = not kinds or graph.values[KIND, kinds[0]] == kind
        if kind is not None and agreed:
            fields[KIND] = kind
        self._change(graph, write, base, fields)
        return kind is not None and not agreed

    def _change(self, graph: Graph, write: int, base: Content, fields: Mapping[str, str]) -> None:
        collapsed: list[tuple[str, int]] = []
        for name, value in fields.items():
            if len(graph.differing(base, name)) > 1:
                collapsed += [
                    (name, loser) for loser in base.fields[name] if graph.values[name, loser] != value
                ]
            graph.put_field(write, name, value)
        for tag in self.add_tags:
            graph.put_tag(write, tag)
        for tag in self.remove_tags:
            graph.remove_tag(write, tag)
        for relation, targets in self.add_links.items():
            for target in targets:
                graph.put_link(write, relation, target)
        for relation, targets in self.remove_links.items():
            for target in targets:
                graph.remove_link(write, relation, target)
        if collapsed or base.revisions:
            graph.keep_revisions(write, base.revisions, collapsed)
