"""Replicas on loopback, on ports and in folders of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from replica.config import load_config
from replica.server.replica import Replica
from replica.server.runtime import Clock, system_clock
from replica.wire.admin_pb2_grpc import AdminStub
from replica.wire.memory_pb2_grpc import MemoryStub
from tests.server.link import Lay, Link
from tests.server.served import QUICK, Served, Start


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts replicas, by cluster, and stops them when the test ends."""
    async with AsyncExitStack() as stack:

        async def start_one(cluster: str = "eu", clock: Clock = system_clock, **flags: object) -> Served:
            folder = tmp_path / cluster
            given = {
                "cluster": cluster,
                "data_dir": str(folder),
                "listen": "127.0.0.1:0",
                "replication_listen": "127.0.0.1:0",
                **QUICK,
                **{key.replace("__", "."): value for key, value in flags.items()},
            }
            config = load_config(given, environ={})
            replica = await stack.enter_async_context(Replica.serving(config, clock))
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(replica.listen_address))
            memory, admin = MemoryStub(channel), AdminStub(channel)
            return Served(replica, channel, memory, admin, folder)

        yield start_one


@pytest.fixture
async def served(start: Start) -> Served:
    """One replica, of the cluster `eu`."""
    return await start()


@pytest.fixture
async def lay() -> AsyncIterator[Lay]:
    """Lays links, and takes them away when the test ends."""
    async with AsyncExitStack() as stack:

        async def lay_one(target: str = "") -> Link:
            link = await Link.lay(target)
            stack.push_async_callback(link.close)
            return link

        yield lay_one
