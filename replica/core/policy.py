"""How long entries live unless their writer says: the TTL policy per repository (DESIGN section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crdt.dot import Millis
from replica.core.commands import check_repo_id
from replica.core.errors import Code, Refused

__all__ = ["DURABLE", "LONGEST_DEFAULT", "TtlPolicy"]

LONGEST_DEFAULT = Millis(1000 * 366 * 24 * 3600 * 1000)
"""A thousand years: so no default reaches beyond the end of time."""


@dataclass(frozen=True, slots=True)
class TtlPolicy:
    """The TTL of new entries that name none; none: they are durable.

    Raises Refused for a TTL that is not positive or longer than :data:`LONGEST_DEFAULT`, and for an override
    of what is no repository id.
    """

    default: Millis | None = None
    overrides: Mapping[str, Millis | None] = field(default_factory=dict)
    """By the exact id of the repository."""

    def __post_init__(self) -> None:
        for repo_id in self.overrides:
            check_repo_id(repo_id)
        for ttl in (self.default, *self.overrides.values()):
            if ttl is not None and not 0 < ttl <= LONGEST_DEFAULT:
                raise Refused(
                    Code.INVALID_ARGUMENT,
                    "must be none, or greater than 0 and at most a thousand years",
                    field="ttl",
                )

    def of(self, repo_id: str) -> Millis | None:
        """The default TTL of a repository's new entries."""
        return self.overrides.get(repo_id, self.default)


DURABLE = TtlPolicy()
"""Every entry is durable unless its writer says."""
