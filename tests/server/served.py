"""A whole replica that serves, and how tests call it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import grpc

from replica.core.storage import Table
from replica.server.replica import Replica
from replica.wire import admin_pb2, memory_pb2

if TYPE_CHECKING:
    # The stubs that mypy knows, and that are one with the others at run time.
    from replica.wire.admin_pb2_grpc import AdminAsyncStub
    from replica.wire.memory_pb2_grpc import MemoryAsyncStub

__all__ = ["QUICK", "Served", "Start"]

QUICK: dict[str, object] = {
    "replication.heartbeat": "200ms",
    "replication.silence": "2s",
    "replication.backoff": "10ms",
    "replication.backoff_max": "100ms",
}
"""So that no test waits long for what takes seconds in earnest."""


@dataclass(frozen=True)
class Served:
    """A replica that serves, and how to call it."""

    replica: Replica
    channel: grpc.aio.Channel
    memory: MemoryAsyncStub
    admin: AdminAsyncStub
    folder: Path

    async def remember(self, topic: str, id: str, **fields: object) -> memory_pb2.RememberResponse:
        """A remember in the repository `r`."""
        request = memory_pb2.RememberRequest(repo_id="r", topic=topic, id=id, **fields)
        return await self.memory.Remember(request)

    async def recall(self, topic: str, id: str) -> memory_pb2.Entry:
        """A recall from the repository `r`."""
        answer = await self.memory.Recall(memory_pb2.RecallRequest(key=f"repo/r/mem/{topic}/{id}"))
        return answer.entry

    async def status(self) -> admin_pb2.GetStatusResponse:
        """The replica's status."""
        return await self.admin.GetStatus(admin_pb2.GetStatusRequest())

    async def digest(self, at: int) -> bytes:
        """The digest of everything as of a moment."""
        return (await self.admin.GetDigest(admin_pb2.GetDigestRequest(at_ms=at))).digest

    def rows(self) -> dict[str, list[tuple[bytes, bytes]]]:
        """Every row of the store."""
        with self.replica.runtime.snapshot() as snapshot:
            return {table.value: list(snapshot.items(table)) for table in Table}


Start: TypeAlias = Callable[..., Awaitable[Served]]
