"""The service `ricordo.v1.Memory`: request to command, core, and result to response."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from typing import TypeAlias, TypeVar

from google.protobuf.message import Message
from grpc.aio import ServicerContext

from crdt.key import EntryKey
from replica.core.commands import Remember, parse_key
from replica.core.errors import Code, Refused
from replica.core.listing import Listing
from replica.core.reading import Scanning, history, recall, recall_many
from replica.core.results import Remembered
from replica.core.storage import DamagedRow, Transaction
from replica.server.guard import status_of
from replica.server.healing import Healer
from replica.server.runtime import Runtime
from replica.server.watching import watch
from replica.wire import memory_pb2 as pb
from replica.wire.answers import (
    entry_message,
    forgotten_message,
    history_message,
    remembered_message,
    updated_message,
)
from replica.wire.commands import forget_command, remember_command, update_command
from replica.wire.memory_pb2_grpc import MemoryServicer

__all__ = ["MemoryService"]

_Message = TypeVar("_Message", bound=Message)
Context: TypeAlias = ServicerContext[Message, Message]


class MemoryService(MemoryServicer):
    """What agents remember."""

    def __init__(self, runtime: Runtime, healer: Healer) -> None:
        self._runtime = runtime
        self._healer = healer

    @contextmanager
    def _healing(self, *keys: EntryKey) -> Iterator[None]:
        """Let a row that turns out to be damaged be fetched again."""
        try:
            yield
        except Refused as refused:
            if refused.code is Code.DATA_LOSS:
                self._healer.found(key.to_store() for key in keys)
            raise

    async def Remember(self, request: pb.RememberRequest, context: Context) -> pb.RememberResponse:
        runtime, now = self._runtime, self._runtime.clock()
        slowest = runtime.slowest(now)
        command = remember_command(request, now, runtime.entropy)
        with self._healing(command.key):
            done = await runtime.write(
                lambda transaction: runtime.node_in(transaction).remember(transaction, command, now, slowest)
            )
        return remembered_message(done)

    async def RememberMany(
        self, request: pb.RememberManyRequest, context: Context
    ) -> pb.RememberManyResponse:
        limits = self._runtime.limits
        if len(request.entries) > limits.page_entries:
            raise Refused(
                Code.INVALID_ARGUMENT,
                f"are {len(request.entries)}; at most {limits.page_entries} are allowed in one call",
                field="entries",
            )
        if request.ByteSize() > limits.page_bytes:
            raise Refused(
                Code.INVALID_ARGUMENT,
                f"are {request.ByteSize()} bytes; at most {limits.page_bytes} are allowed in one call",
                field="entries",
            )
        runtime, now = self._runtime, self._runtime.clock()
        slowest = runtime.slowest(now)
        commands: list[Remember | Refused] = []
        for entry in request.entries:
            try:
                commands.append(remember_command(entry, now, self._runtime.entropy))
            except Refused as refused:
                commands.append(refused)

        def remember_each(transaction: Transaction) -> list[Remembered | Exception]:
            """Each for itself: one that is refused has changed nothing, and the next one follows."""
            node, outcomes = runtime.node_in(transaction), list[Remembered | Exception]()
            for command in commands:
                if isinstance(command, Refused):
                    outcomes.append(command)
                    continue
                before = transaction.writes
                try:
                    outcomes.append(node.remember(transaction, command, now, slowest))
                except (Refused, DamagedRow) as error:
                    if transaction.writes != before:
                        raise
                    outcomes.append(error)
            return outcomes

        outcomes = await self._runtime.write(remember_each)
        return pb.RememberManyResponse(results=map(_result, outcomes))

    async def Update(self, request: pb.UpdateRequest, context: Context) -> pb.UpdateResponse:
        runtime, now, command = self._runtime, self._runtime.clock(), update_command(request)
        slowest = runtime.slowest(now)
        with self._healing(command.key):
            done = await runtime.write(
                lambda transaction: runtime.node_in(transaction).update(transaction, command, now, slowest)
            )
        return updated_message(done)

    async def Forget(self, request: pb.ForgetRequest, context: Context) -> pb.ForgetResponse:
        runtime, now, command = self._runtime, self._runtime.clock(), forget_command(request)
        slowest = runtime.slowest(now)
        with self._healing(command.key):
            done = await runtime.write(
                lambda transaction: runtime.node_in(transaction).forget(transaction, command, now, slowest)
            )
        return forgotten_message(done)

    async def Recall(self, request: pb.RecallRequest, context: Context) -> pb.RecallResponse:
        key = parse_key(request.key)
        with self._healing(key), self._runtime.snapshot() as snapshot:
            entry = recall(snapshot, key, self._runtime.clock())
        return pb.RecallResponse(entry=entry_message(entry))

    async def RecallMany(self, request: pb.RecallManyRequest, context: Context) -> pb.RecallManyResponse:
        limits = self._runtime.limits
        keys = [
            parse_key(key, f"keys[{at}]") for at, key in enumerate(request.keys[: limits.page_entries + 1])
        ]
        with self._healing(*keys), self._runtime.snapshot() as snapshot:
            entries = recall_many(snapshot, keys, self._runtime.clock(), limits)
        return pb.RecallManyResponse(entries=map(entry_message, entries))

    async def History(self, request: pb.HistoryRequest, context: Context) -> pb.HistoryResponse:
        key = parse_key(request.key)
        with self._healing(key), self._runtime.snapshot() as snapshot:
            found = history(snapshot, key, self._runtime.clock())
        return history_message(found)

    async def Scan(self, request: pb.ScanRequest, context: Context) -> pb.ScanResponse:
        scanning = Scanning(
            request.repo_id,
            request.topic if request.HasField("topic") else None,
            request.page_size,
            request.page_token,
            self._runtime.clock(),
            self._runtime.limits,
        )
        await self._runtime.walk(scanning)
        page = scanning.page()
        if page.damaged:
            self._healer.found(key.to_store() for key in page.damaged)
        return pb.ScanResponse(entries=map(entry_message, page.entries), next_page_token=page.next_page_token)

    async def ListTopics(self, request: pb.ListTopicsRequest, context: Context) -> pb.ListTopicsResponse:
        names = Listing(
            request.repo_id,
            request.page_size,
            request.page_token,
            self._runtime.clock(),
            self._runtime.limits,
        )
        await self._runtime.walk(names)
        page = names.names()
        topics = [pb.TopicCount(topic=each.name, live=each.live) for each in page.counts]
        return pb.ListTopicsResponse(topics=topics, next_page_token=page.next_page_token)

    async def ListRepos(self, request: pb.ListReposRequest, context: Context) -> pb.ListReposResponse:
        names = Listing(
            None, request.page_size, request.page_token, self._runtime.clock(), self._runtime.limits
        )
        await self._runtime.walk(names)
        page = names.names()
        repos = [pb.RepoCount(repo_id=each.name, live=each.live) for each in page.counts]
        return pb.ListReposResponse(repos=repos, next_page_token=page.next_page_token)

    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncIterator[pb.WatchResponse]:
        async with aclosing(watch(self._runtime, self._healer, request)) as responses:
            async for response in responses:
                yield response


def _is_damage(outcome: Remembered | Exception) -> bool:
    return isinstance(outcome, DamagedRow) or (
        isinstance(outcome, Refused) and outcome.code is Code.DATA_LOSS
    )


def _result(outcome: Remembered | Exception) -> pb.RememberResult:
    if isinstance(outcome, Remembered):
        return pb.RememberResult(remembered=remembered_message(outcome))
    return pb.RememberResult(error=status_of(outcome, "RememberMany"))
