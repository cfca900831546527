"""The calls of `Memory`: each function builds one, and the clients have a method of its name.

None means "not given", and so does an empty `request_id` or a `page_size` of 0. Limits, defaults and errors
are those of `proto/ricordo/v1/memory.proto`; the replica checks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from replica.client.call import Call, Feed, Page, Pages, reader
from replica.client.entries import (
    Entry,
    Forgotten,
    History,
    Remembered,
    RepoCount,
    TopicCount,
    Updated,
)
from replica.client.errors import RicordoError, from_status
from replica.client.events import WatchEvent
from replica.wire import memory_pb2 as pb

__all__ = [
    "BATCH_BYTES",
    "BATCH_ENTRIES",
    "Links",
    "Outcome",
    "RememberCall",
    "batches",
    "forget",
    "history",
    "list_repos",
    "list_topics",
    "recall",
    "recall_many",
    "remember",
    "remember_many",
    "scan",
    "update",
    "watch",
]

BATCH_ENTRIES = 500
"""How many entries a batch may hold."""
BATCH_BYTES = 2 * 1024 * 1024
"""How many bytes a batch may hold."""

_SERVICE = "/ricordo.v1.Memory/"
_IDENTIFIED_BYTES = 128
"""Room for the ids that an entry of a batch is given on the way, and for its frame."""

Links = Mapping[str, Iterable[str]]
"""Relation to targets."""
RememberCall = Call[pb.RememberRequest, Remembered]
Outcome = Remembered | RicordoError
"""What became of one entry of a batch."""


def remember(
    repo_id: str,
    topic: str,
    *,
    id: str | None = None,
    kind: str | None = None,
    title: str | None = None,
    body: str | None = None,
    author: str | None = None,
    provenance: str | None = None,
    tags: Iterable[str] = (),
    add_links: Links | None = None,
    remove_links: Links | None = None,
    ttl_seconds: float | None = None,
    durable: bool = False,
    create_only: bool = False,
    if_version: str | None = None,
    created_at_ms: int | None = None,
    request_id: str = "",
) -> RememberCall:
    """Make an entry, or write over the live one at its key: fields that are given replace, tags and links are
    added or removed, the rest stays.

    Without `id` a new one is made: a UUIDv7. `ttl_seconds` is positive and finite, and never shortens a life.
    `create_only` and `if_version` refuse with AlreadyExistsError and AbortedError. `created_at_ms` is for
    imports. A `request_id` is made where none is given; give one to repeat a call of an earlier process.
    """
    request = pb.RememberRequest(
        repo_id=repo_id,
        topic=topic,
        id=id,
        kind=kind,
        title=title,
        body=body,
        author=author,
        provenance=provenance,
        tags=tags,
        add_links=_links(add_links),
        remove_links=_links(remove_links),
        ttl_seconds=ttl_seconds,
        durable=durable,
        create_only=create_only,
        if_version=if_version,
        created_at_ms=created_at_ms,
        request_id=request_id,
    )
    return Call(_SERVICE + "Remember", request, reader(pb.RememberResponse, Remembered.of))


def remember_many(writes: Iterable[RememberCall]) -> Call[pb.RememberManyRequest, tuple[Outcome, ...]]:
    """Make many remembers in one call, each built by :func:`replica.client.memory.remember`: at most
    :data:`BATCH_ENTRIES` of them and :data:`BATCH_BYTES` together; :func:`batches` cuts a longer row.

    The result says of each, in order, what it did or the error it failed with: errors of single
    entries are returned, not raised.
    """
    request = pb.RememberManyRequest(entries=[write.request for write in writes])
    return Call(_SERVICE + "RememberMany", request, reader(pb.RememberManyResponse, _outcomes))


def batches(
    writes: Iterable[RememberCall], *, entries: int = BATCH_ENTRIES, size: int = BATCH_BYTES
) -> Iterator[tuple[RememberCall, ...]]:
    """Cut a row of writes into batches for :func:`remember_many`: of at most `entries` writes, and of at most
    `size` bytes unless one write alone is larger.
    """
    batch: list[RememberCall] = []
    used = 0
    for write in writes:
        more = write.request.ByteSize() + _IDENTIFIED_BYTES
        if batch and (len(batch) >= entries or used + more > size):
            yield tuple(batch)
            batch, used = [], 0
        batch.append(write)
        used += more
    if batch:
        yield tuple(batch)


def update(
    key: str,
    *,
    title: str | None = None,
    body: str | None = None,
    author: str | None = None,
    provenance: str | None = None,
    add_tags: Iterable[str] = (),
    remove_tags: Iterable[str] = (),
    add_links: Links | None = None,
    remove_links: Links | None = None,
    if_version: str | None = None,
    request_id: str = "",
) -> Call[pb.UpdateRequest, Updated]:
    """Change a live entry and leave its expiry as it is. An empty text clears a field.

    Raises NotFoundError where the entry is absent or past its expiry, and AbortedError where it is not of
    `if_version`.
    """
    request = pb.UpdateRequest(
        key=key,
        title=title,
        body=body,
        author=author,
        provenance=provenance,
        add_tags=add_tags,
        remove_tags=remove_tags,
        add_links=_links(add_links),
        remove_links=_links(remove_links),
        if_version=if_version,
        request_id=request_id,
    )
    return Call(_SERVICE + "Update", request, reader(pb.UpdateResponse, Updated.of))


def recall(key: str) -> Call[pb.RecallRequest, Entry]:
    """Read one entry. One that is absent, forgotten or past its expiry has `exists` False: no error."""
    return Call(_SERVICE + "Recall", pb.RecallRequest(key=key), reader(pb.RecallResponse, _recalled))


def recall_many(keys: Iterable[str]) -> Call[pb.RecallManyRequest, tuple[Entry, ...]]:
    """Read many entries, at most 500, in the order of the keys.

    Raises ResourceExhaustedError where the answer would be larger than 2 MiB.
    """
    request = pb.RecallManyRequest(keys=keys)
    return Call(_SERVICE + "RecallMany", request, reader(pb.RecallManyResponse, _all_recalled))


def history(key: str) -> Call[pb.HistoryRequest, History]:
    """Read what the fields of an entry hold, what was written at the same time, and what lost against it."""
    return Call(_SERVICE + "History", pb.HistoryRequest(key=key), reader(pb.HistoryResponse, History.of))


def scan(repo_id: str, topic: str | None = None, *, page_size: int = 0) -> Pages[pb.ScanRequest, Entry]:
    """Walk the live entries of a repository, or of one topic in it, in key order: page by page, as they are
    asked for. An entry that is live throughout is met exactly once.
    """

    def page(token: str) -> Call[pb.ScanRequest, Page[Entry]]:
        request = pb.ScanRequest(repo_id=repo_id, topic=topic, page_size=page_size, page_token=token)
        return Call(_SERVICE + "Scan", request, reader(pb.ScanResponse, _scanned))

    return Pages(page)


def list_topics(repo_id: str, *, page_size: int = 0) -> Pages[pb.ListTopicsRequest, TopicCount]:
    """Walk the topics of a repository that hold a live entry, with their counts."""

    def page(token: str) -> Call[pb.ListTopicsRequest, Page[TopicCount]]:
        request = pb.ListTopicsRequest(repo_id=repo_id, page_size=page_size, page_token=token)
        return Call(_SERVICE + "ListTopics", request, reader(pb.ListTopicsResponse, _topics))

    return Pages(page)


def list_repos(*, page_size: int = 0) -> Pages[pb.ListReposRequest, RepoCount]:
    """Walk the repositories that hold a live entry, with their counts."""

    def page(token: str) -> Call[pb.ListReposRequest, Page[RepoCount]]:
        request = pb.ListReposRequest(page_size=page_size, page_token=token)
        return Call(_SERVICE + "ListRepos", request, reader(pb.ListReposResponse, _repos))

    return Pages(page)


def forget(
    key: str, *, lapse: bool = False, lapse_seconds: float | None = None, request_id: str = ""
) -> Call[pb.ForgetRequest, Forgotten]:
    """Remove an entry at once; or, with `lapse`, let it lapse in `lapse_seconds` (60), never earlier than
    it would have.
    """
    request = pb.ForgetRequest(key=key, lapse=lapse, lapse_seconds=lapse_seconds, request_id=request_id)
    return Call(_SERVICE + "Forget", request, reader(pb.ForgetResponse, Forgotten.of))


def watch(
    repo_id: str | None = None,
    topic: str | None = None,
    *,
    initial_state: bool = False,
    resume_token: str = "",
    progress_seconds: float | None = None,
) -> Feed[pb.WatchRequest, WatchEvent]:
    """Watch what changes, in one topic, one repository or everything: from now on; with `initial_state`,
    first what is live; or from behind the event of a token.

    Never ends by itself, and goes on behind the last event when the connection breaks. Of a slow reader or
    one that was away not every change is told, but how things stand: events may be folded into a copy. Raises
    OutOfRangeError where that cannot be told any more, and UnavailableError where the replica was not reached
    for as long as a call may take; the token of the last event stays good.
    """

    def request(token: str) -> pb.WatchRequest:
        return pb.WatchRequest(
            repo_id=repo_id,
            topic=topic,
            resume_token=token or resume_token,
            initial_state=initial_state,
            progress_seconds=progress_seconds,
        )

    return Feed(
        _SERVICE + "Watch", request, reader(pb.WatchResponse, _events), lambda event: event.resume_token
    )


def _events(response: pb.WatchResponse) -> tuple[WatchEvent, ...]:
    return tuple(map(WatchEvent.of, response.events))


def _links(links: Links | None) -> list[pb.Link]:
    return [pb.Link(relation=relation, targets=targets) for relation, targets in (links or {}).items()]


def _outcomes(response: pb.RememberManyResponse) -> tuple[Outcome, ...]:
    return tuple(
        from_status(result.error)
        if result.WhichOneof("outcome") == "error"
        else Remembered.of(result.remembered)
        for result in response.results
    )


def _recalled(response: pb.RecallResponse) -> Entry:
    return Entry.of(response.entry)


def _all_recalled(response: pb.RecallManyResponse) -> tuple[Entry, ...]:
    return tuple(map(Entry.of, response.entries))


def _scanned(response: pb.ScanResponse) -> Page[Entry]:
    return Page(tuple(map(Entry.of, response.entries)), response.next_page_token)


def _topics(response: pb.ListTopicsResponse) -> Page[TopicCount]:
    return Page(tuple(map(TopicCount.of, response.topics)), response.next_page_token)


def _repos(response: pb.ListReposResponse) -> Page[RepoCount]:
    return Page(tuple(map(RepoCount.of, response.repos)), response.next_page_token)
