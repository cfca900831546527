"""A link between replicas that a test can cut, stop and mend: a TCP proxy on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

__all__ = ["Lay", "Link"]


class Link:
    """Passes on what arrives at :attr:`address` to a target, unless it is cut or stalled."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        host, port = server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        self.target = ""
        """Where it leads; may change while it is cut."""
        self._whole = asyncio.Event()
        self._whole.set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def lay(cls, target: str = "") -> Link:
        """A link that leads to a target, or, for now, nowhere."""
        made: list[Link] = []

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            made[0]._begin(reader, writer)

        link = cls(await asyncio.start_server(connected, "127.0.0.1", 0))
        link.target = target
        made.append(link)
        return link

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        self._whole.clear()
        for end in self._ends:
            end.transport.abort()

    def stall(self) -> None:
        """Keep the connections, and let nothing through: the far end seems to have vanished."""
        self._flowing.clear()

    def mend(self) -> None:
        """Be whole again. Connections that were stalled go on."""
        self._whole.set()
        self._flowing.set()

    async def close(self) -> None:
        """Take it away."""
        self.cut()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._whole.is_set() or not self.target:
            writer.transport.abort()
            return
        host, _, port = self.target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._ends |= {writer, far_writer}
        passing = {
            asyncio.create_task(self._pass_on(reader, far_writer)),
            asyncio.create_task(self._pass_on(far_reader, writer)),
        }
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in (writer, far_writer):
                end.transport.abort()
            self._ends -= {writer, far_writer}
            for task in passing:
                task.cancel()
            await asyncio.wait(passing)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()


Lay = Callable[..., Awaitable[Link]]
"""Lays a link to a target."""
