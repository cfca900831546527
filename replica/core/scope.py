"""Scopes: everything, a repository, or a topic in one (DESIGN section 10).

A scope is the start of its keys in store form, and ends at a component: `svc` never covers `svc-api`.
"""

from __future__ import annotations

from crdt.key import scope_end, scope_start
from replica.core.commands import check_repo_id, check_topic
from replica.core.errors import Code, Refused

__all__ = ["check_scope", "scope_bounds"]


def check_scope(repo_id: str | None, topic: str | None = None) -> bytes:
    """The scope of a topic, of a repository, or (none: empty) of everything. Raises Refused."""
    if repo_id is None:
        if topic is not None:
            raise Refused(Code.INVALID_ARGUMENT, "is needed to name a topic", field="repo_id")
        return b""
    return scope_start(check_repo_id(repo_id), None if topic is None else check_topic(topic))


def scope_bounds(scope: bytes) -> tuple[bytes, bytes | None]:
    """The first key that may lie in a scope, and the first beyond it; none: there is none beyond."""
    return scope, scope_end(scope) if scope else None
