"""Typed clients of a replica: `Client` blocks, `AsyncClient` is for asyncio, and both have the same methods.

    from replica.client import Client, NotFoundError, remember

    with Client("127.0.0.1:7600") as memory:
        made = memory.remember("api", "decisions", title="Keep retries at the edge", tags=["grpc"])
        print(memory.recall(made.key).title)

        for entry in memory.scan("api", "decisions"):
            print(entry.key, entry.title, entry.tags)

        notes = [remember("api", "notes", title=title) for title in ("first", "second")]
        print([each.key for each in memory.remember_many(notes)])

        memory.update(made.key, body="A retry below it would multiply.", add_tags=["settled"])
        try:
            memory.update("repo/api/mem/decisions/none", title="…")
        except NotFoundError as error:
            print(error.code, error.message, error.remedy)

With `AsyncClient` it is `async with`, `await memory.remember(…)` and `async for entry in memory.scan(…)`.

`for event in memory.watch("api", initial_state=True)` gives what is live and then what changes, for as long
as it runs; a later `memory.watch("api", resume_token=event.resume_token)` goes on behind an event.

A call that gets no answer is made again until its deadline (`Retry`). That cannot write twice: each write
carries one request id through all its attempts. `remember(…)` above is a call as a value, a `Call`; the rooms
`memory` and `admin` have one function for each method, and a client's `run` runs what they build.
"""

from replica.client.aio import AsyncClient
from replica.client.blocking import Client
from replica.client.call import Call, Feed, Page, Pages
from replica.client.channel import DEFAULT_ADDRESS
from replica.client.comparison import Difference, compare
from replica.client.digests import Digest, EntryDigest, KeyRange, PartDigest, RangeDigests
from replica.client.entries import (
    Entry,
    FieldHistory,
    FieldValue,
    ForgetMode,
    Forgotten,
    History,
    Remembered,
    RepoCount,
    TopicCount,
    Updated,
)
from replica.client.errors import (
    AbortedError,
    AlreadyExistsError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
    RicordoError,
    UnavailableError,
)
from replica.client.events import EventKind, WatchEvent
from replica.client.memory import Outcome, RememberCall, batches, remember
from replica.client.retry import Retry
from replica.client.status import (
    Compacted,
    Counts,
    HeldBy,
    MemberState,
    MemberStatus,
    PeerOrigin,
    PeerStatus,
    Purging,
    Status,
    Storage,
)

__all__ = [
    "DEFAULT_ADDRESS",
    "AbortedError",
    "AlreadyExistsError",
    "AsyncClient",
    "Call",
    "Client",
    "Compacted",
    "Counts",
    "DataLossError",
    "DeadlineExceededError",
    "Difference",
    "Digest",
    "Entry",
    "EntryDigest",
    "EventKind",
    "FailedPreconditionError",
    "Feed",
    "FieldHistory",
    "FieldValue",
    "ForgetMode",
    "Forgotten",
    "HeldBy",
    "History",
    "InternalError",
    "InvalidArgumentError",
    "KeyRange",
    "MemberState",
    "MemberStatus",
    "NotFoundError",
    "OutOfRangeError",
    "Outcome",
    "Page",
    "Pages",
    "PartDigest",
    "PeerOrigin",
    "PeerStatus",
    "Purging",
    "RangeDigests",
    "RememberCall",
    "Remembered",
    "RepoCount",
    "ResourceExhaustedError",
    "Retry",
    "RicordoError",
    "Status",
    "Storage",
    "TopicCount",
    "UnavailableError",
    "Updated",
    "WatchEvent",
    "batches",
    "compare",
    "remember",
]
