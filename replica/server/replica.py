"""A whole replica: its store, its two listeners and its peers, put together and taken apart in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from replica.config import Config
from replica.core.doubt import doubt_at_start, settle
from replica.core.messages import Question
from replica.core.peers import stored_peers
from replica.core.rows import get_clock
from replica.logs import logger
from replica.server.admin_service import AdminService
from replica.server.asking import ask
from replica.server.compaction import Compactor
from replica.server.fleet import Fleet
from replica.server.healing import Healer
from replica.server.housekeeping import keep_house
from replica.server.listener import CLIENT_MESSAGE_MAX, REPLICATION_MESSAGE_MAX, Listener
from replica.server.memory_service import MemoryService
from replica.server.peer_book import Origin, PeerBook
from replica.server.peers import Backoff, Peers
from replica.server.pulling import Puller
from replica.server.replication_service import ReplicationService
from replica.server.runtime import Clock, Runtime, system_clock
from replica.wire.admin_pb2_grpc import add_AdminServicer_to_server
from replica.wire.memory_pb2_grpc import add_MemoryServicer_to_server
from replica.wire.replication_pb2_grpc import add_ReplicationServicer_to_server

__all__ = ["Replica"]

_MEMORY, _ADMIN, _REPLICATION = (f"ricordo.v1.{name}" for name in ("Memory", "Admin", "Replication"))

_log = logger()


class Replica:
    """A replica that serves, between :meth:`start` and :meth:`stop`."""

    def __init__(
        self,
        runtime: Runtime,
        peers: Peers,
        clients: Listener,
        replicas: Listener,
        chores: list[asyncio.Task[None]],
    ) -> None:
        self.runtime = runtime
        self._peers = peers
        self._clients = clients
        self._replicas = replicas
        self._chores = chores

    @classmethod
    async def start(cls, config: Config, clock: Clock = system_clock) -> Replica:
        """Open the store, take both addresses, answer, and begin to pull from the peers.

        Raises StorageError, Refused (the store is of another cluster) and Unbindable; nothing is left open.
        """
        runtime = Runtime.open(config, clock)
        try:
            return await cls._serve(runtime)
        except BaseException:
            await runtime.close()
            raise

    @classmethod
    async def _serve(cls, runtime: Runtime) -> Replica:
        config = runtime.config
        book = PeerBook()
        healer, compactor = Healer(runtime, book), Compactor(runtime)
        fleet = Fleet(runtime, healer)
        puller = Puller(runtime, fleet)
        backoff = Backoff(config.replication.backoff, config.replication.backoff_max)
        peers = Peers(book, puller.pull, backoff, runtime.clock, random.Random())
        clients, replicas = Listener(CLIENT_MESSAGE_MAX), Listener(REPLICATION_MESSAGE_MAX)
        admin = AdminService(runtime, book, peers, compactor, healer)
        add_MemoryServicer_to_server(MemoryService(runtime, healer), clients.server)
        add_AdminServicer_to_server(admin, clients.server)
        supplier = ReplicationService(runtime, fleet, book, peers)
        add_ReplicationServicer_to_server(supplier, replicas.server)
        clients.reflect((_MEMORY, _ADMIN))
        clients.bind(config.listen)
        replicas.bind(config.replication_listen)
        admin.listen_address, admin.replication_address = clients.address, replicas.address
        with runtime.snapshot() as snapshot:
            added = stored_peers(snapshot)
        await replicas.start((_REPLICATION,))
        await _settle_past(runtime, {**added, **config.peers})
        supplier.begin()
        await clients.start((_MEMORY, _ADMIN))
        for cluster, address in config.peers.items():
            peers.add(cluster, address, Origin.CONFIGURED)
        for cluster, address in added.items():
            peers.add(cluster, address, Origin.ADDED)
        chores = [compactor.run(), healer.run(), keep_house(runtime)]
        return cls(runtime, peers, clients, replicas, [asyncio.create_task(chore) for chore in chores])

    @classmethod
    @asynccontextmanager
    async def serving(cls, config: Config, clock: Clock = system_clock) -> AsyncIterator[Replica]:
        """A replica for the length of a block."""
        replica = await cls.start(config, clock)
        try:
            yield replica
        finally:
            await replica.stop()

    @property
    def listen_address(self) -> str:
        """Where agents and operators reach it: ``host:port`` as bound."""
        return self._clients.address

    @property
    def replication_address(self) -> str:
        """Where its peers reach it: ``host:port`` as bound."""
        return self._replicas.address

    async def stop(self) -> None:
        """Stop: refuse new calls, let those under way end, then close the store.

        Calls that take longer than ``stop_timeout`` are cut off; no acknowledged write is lost.
        """
        self.runtime.begin_stop()
        for chore in self._chores:
            chore.cancel()
        await asyncio.wait(self._chores)
        grace = self.runtime.config.stop_timeout / 1000
        await asyncio.gather(self._clients.stop(grace), self._replicas.stop(grace), self._peers.close())
        await self.runtime.close()
        _log.info("stopped", cluster=self.runtime.identity.cluster)


async def _settle_past(runtime: Runtime, peers: Mapping[str, str]) -> None:
    """Before anything is written: is this store the newest there was of itself? If in doubt, begin anew."""
    identity = runtime.identity
    with runtime.snapshot() as snapshot:
        if not peers or not get_clock(snapshot):
            return
    question = Question(identity.cluster, identity.incarnation, identity.store_id)
    answers = await ask(peers, question, runtime.config.replication.ask_timeout / 1000)
    with runtime.snapshot() as snapshot:
        doubt = doubt_at_start(snapshot, identity, peers, answers)
    if doubt is not None:
        now = runtime.clock()
        runtime.adopt(
            await runtime.write(lambda transaction: settle(transaction, doubt, now, runtime.entropy))
        )
        _log.warning("began a new incarnation", reason=doubt.reason)
