"""From requests to commands. Whatever a request holds, the result is a valid command or a Refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from crdt.dot import Millis
from replica.core.commands import Forget, Links, Remember, Update, make_key, parse_key, parse_kind, ttl_millis
from replica.core.identity import Entropy
from replica.core.uuid7 import RANDOM_BYTES, uuid7
from replica.wire import memory_pb2 as pb

__all__ = ["forget_command", "remember_command", "update_command"]

_T = TypeVar("_T")


def _given(present: bool, value: _T) -> _T | None:
    return value if present else None


def _links(links: Iterable[pb.Link]) -> tuple[Links, ...]:
    return tuple(Links(link.relation, tuple(link.targets)) for link in links)


def remember_command(request: pb.RememberRequest, now: Millis, entropy: Entropy) -> Remember:
    """The command; an id that is absent is made here, of ``now`` and ``entropy``. Raises Refused."""
    generated = not request.HasField("id")
    id = str(uuid7(now, entropy(RANDOM_BYTES))) if generated else request.id
    return Remember(
        key=make_key(request.repo_id, request.topic, id),
        generated_id=generated,
        kind=parse_kind(request.kind) if request.HasField("kind") else None,
        title=_given(request.HasField("title"), request.title),
        body=_given(request.HasField("body"), request.body),
        author=_given(request.HasField("author"), request.author),
        provenance=_given(request.HasField("provenance"), request.provenance),
        tags=tuple(request.tags),
        add_links=_links(request.add_links),
        remove_links=_links(request.remove_links),
        ttl=ttl_millis(request.ttl_seconds, "ttl_seconds") if request.HasField("ttl_seconds") else None,
        durable=request.durable,
        create_only=request.create_only,
        if_version=_given(request.HasField("if_version"), request.if_version),
        created_at=_given(request.HasField("created_at_ms"), Millis(request.created_at_ms)),
        request_id=request.request_id or None,
    )


def update_command(request: pb.UpdateRequest) -> Update:
    """The command. Raises Refused."""
    return Update(
        key=parse_key(request.key),
        title=_given(request.HasField("title"), request.title),
        body=_given(request.HasField("body"), request.body),
        author=_given(request.HasField("author"), request.author),
        provenance=_given(request.HasField("provenance"), request.provenance),
        add_tags=tuple(request.add_tags),
        remove_tags=tuple(request.remove_tags),
        add_links=_links(request.add_links),
        remove_links=_links(request.remove_links),
        if_version=_given(request.HasField("if_version"), request.if_version),
        request_id=request.request_id or None,
    )


def forget_command(request: pb.ForgetRequest) -> Forget:
    """The command. Raises Refused."""
    return Forget(
        key=parse_key(request.key),
        lapse=request.lapse,
        lapse_for=(
            ttl_millis(request.lapse_seconds, "lapse_seconds") if request.HasField("lapse_seconds") else None
        ),
        request_id=request.request_id or None,
    )
