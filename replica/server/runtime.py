"""A replica at work: its store, who it is, and how its reads and writes are run (DESIGN sections 2 and 8).

Reads run in the event loop, each over a snapshot that is held for microseconds and never across an ``await``.
Walks take their steps there too, or all of them in a thread where one state of the store is asked for. Writes
go through group commit.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeVar

from crdt.dot import Millis
from replica.config import Config
from replica.core.doubt import Doubt, doubt_of_place, settle
from replica.core.identity import Entropy, Identity, begin_store, read_identity
from replica.core.limits import Limits
from replica.core.membership import configure, slowest, wake
from replica.core.node import Node
from replica.core.peers import stored_peers
from replica.core.policy import TtlPolicy
from replica.core.storage import Snapshot, Transaction
from replica.core.timekeeping import begin_time, settle_time, stepped_by
from replica.core.underway import refresh
from replica.core.walk import Walk
from replica.logs import logger
from replica.storage.group_commit import GroupCommit
from replica.storage.lmdb_store import LmdbStorage

__all__ = ["Clock", "Runtime", "system_clock"]

_T = TypeVar("_T")
_log = logger()
_STEP_ROWS = 100
"""What a step of a walk may take of the event loop's time: some milliseconds."""

Clock = Callable[[], Millis]
"""Gives the time now, in milliseconds since the Unix epoch."""


def system_clock() -> Millis:
    """The clock of the machine."""
    return Millis(time.time_ns() // 1_000_000)


def _elapsed() -> Millis:
    """The time that has gone by, as far as this process knows; nobody can set it."""
    return Millis(time.monotonic_ns() // 1_000_000)


class Runtime:
    """A replica at work, from :meth:`open` to :meth:`close`. It belongs to one event loop."""

    def __init__(
        self, config: Config, storage: LmdbStorage, identity: Identity, clock: Clock, entropy: Entropy
    ) -> None:
        self.config = config
        self.storage = storage
        self.identity = identity
        self.clock = clock
        self.entropy = entropy
        self.started_at = clock()
        limits = Limits(**config.limits.model_dump())
        self.node = Node(identity, TtlPolicy(config.ttl.default, config.ttl.repositories), limits)
        self.stirred: set[asyncio.Event] = set()
        """Set after every commit: for those who wait for the store to change."""
        self.stopping = False
        """Streams are to end."""
        self.commits = GroupCommit(storage)
        self.commits.on_commit(self.stir)

    @classmethod
    def open(cls, config: Config, clock: Clock = system_clock, entropy: Entropy = os.urandom) -> Runtime:
        """Open the store, or make it. Call it in the event loop.

        Raises StorageError, and Refused when the store belongs to another cluster.
        """
        storage = LmdbStorage.open(config.data_dir, map_size=config.storage.map_size)
        try:
            now = clock()

            def begin(transaction: Transaction) -> tuple[Identity, Doubt | None]:
                identity = begin_store(transaction, config.cluster, now, entropy)
                doubt = doubt_of_place(transaction, storage.place)
                if doubt is not None:
                    identity = settle(transaction, doubt, now, entropy)
                configure(transaction, identity, {*config.peers, *stored_peers(transaction)}, now)
                wake(transaction, now)
                refresh(transaction, now)
                begin_time(transaction, now, _elapsed())
                return identity, doubt

            identity, doubt = storage.run(begin)
            if doubt is not None:
                _log.warning("began a new incarnation", reason=doubt.reason)
            return cls(config, storage, identity, clock, entropy)
        except BaseException:
            storage.close()
            raise

    def stir(self) -> None:
        """Wake everyone who waits for something to change."""
        for event in self.stirred:
            event.set()

    @property
    def limits(self) -> Limits:
        """What one request may add, and an answer hold."""
        return self.node.limits

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """The newest state. Let go of it before waiting for anything."""
        return self.storage.snapshot()

    def begin_stop(self) -> None:
        """Let streams end."""
        self.stopping = True
        self.stir()

    def node_in(self, transaction: Transaction) -> Node:
        """The node for a local write: of the incarnation that the transaction finds, whichever was meant."""
        identity = read_identity(transaction)
        assert identity is not None
        return self.node if identity == self.node.identity else replace(self.node, identity=identity)

    def slowest(self, now: Millis) -> Millis:
        """The slowest plausible clock of the fleet."""
        elapsed = _elapsed()
        with self.storage.snapshot() as snapshot:
            step = stepped_by(snapshot, now, elapsed)
            return slowest(snapshot, now, self.config.compaction.max_silence, step)

    def adopt(self, identity: Identity) -> None:
        """A new incarnation was begun."""
        self.identity = identity
        self.node = replace(self.node, identity=identity)

    async def write(self, work: Callable[[Transaction], _T]) -> _T:
        """Run work in a durable transaction, shared with others; see GroupCommit.submit.

        When this machine's clock was set, that is taken into account before the work.
        """
        now, elapsed = self.clock(), _elapsed()

        def on_time(transaction: Transaction) -> tuple[Millis, _T]:
            return settle_time(transaction, now, elapsed), work(transaction)

        step, done = await self.commits.submit(on_time)
        if step:
            _log.warning("the clock of this machine was set", by_ms=step)
        return done

    def was_set(self) -> bool:
        """Whether this machine's clock was set since the last write."""
        now, elapsed = self.clock(), _elapsed()
        with self.storage.snapshot() as snapshot:
            return stepped_by(snapshot, now, elapsed) != 0

    async def walk(self, walk: Walk) -> None:
        """Walk to the end in steps, each over the newest state, between which others have their turn."""
        while True:
            with self.storage.snapshot() as snapshot:
                more = walk.step(snapshot, _STEP_ROWS)
            if not more:
                return
            await asyncio.sleep(0)

    async def walk_aside(self, walk: Walk) -> None:
        """The same in a thread, for a walk over a whole store: no snapshot is held for so long."""

        def run() -> None:
            more = True
            while more:
                with self.storage.snapshot() as snapshot:
                    more = walk.step(snapshot)

        await asyncio.to_thread(run)

    async def walk_at_once(self, walk: Walk) -> None:
        """Walk to the end over one state of the store, in a thread."""
        await self.read_at_once(walk.run)

    async def read_at_once(self, read: Callable[[Snapshot], _T]) -> _T:
        """Read one state of the store, in a thread: what takes longer than the event loop can wait."""

        def run() -> _T:
            with self.storage.snapshot() as snapshot:
                return read(snapshot)

        return await asyncio.to_thread(run)

    async def close(self) -> None:
        """Commit what was submitted, and close the store."""
        await self.commits.close()
        await asyncio.to_thread(self.storage.close)
