"""The links between the replicas: each is a TCP relay on loopback that can be cut and healed.

A replica is told the relay's address in place of its peer's. To cut a link is to reset its connections and
every new one, as a firewall does that has been told to reject.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

__all__ = ["Links"]

_LOOPBACK = "127.0.0.1"
_CHUNK = 1 << 16

_T = TypeVar("_T")


@dataclass(eq=False, slots=True)
class _Link:
    """From the replica that pulls to the one that it pulls from."""

    supplier: tuple[str, int] | None = None
    cut: bool = False
    ends: set[asyncio.StreamWriter] = field(default_factory=set)

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either end closes it or the link is cut."""
        ends = [writer]
        self.ends.add(writer)
        try:
            if self.cut or self.supplier is None:
                return
            far_reader, far_writer = await asyncio.open_connection(*self.supplier)
            ends.append(far_writer)
            self.ends.add(far_writer)
            if self.cut:
                return
            ways = [
                asyncio.create_task(_copy(reader, far_writer)),
                asyncio.create_task(_copy(far_reader, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
        except OSError:
            pass  # The supplier is not there: to the consumer that is a connection that was reset.
        finally:
            for end in ends:
                self.ends.discard(end)
                end.transport.abort()

    def set_cut(self, cut: bool) -> None:
        """Cut or heal it, from now on."""
        self.cut = cut
        if cut:
            for end in self.ends:
                end.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # Reset: the relay ends with it.


class Links:
    """A link from each cluster to each other one, served by a thread between `with` and its end."""

    def __init__(self, clusters: Iterable[str]) -> None:
        names = list(clusters)
        self._links = {(one, other): _Link() for one in names for other in names if one != other}
        self._addresses: dict[tuple[str, str], str] = {}
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)

    def __enter__(self) -> Links:
        self._thread.start()
        self._run(self._bind()).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._end()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def address(self, consumer: str, supplier: str) -> str:
        """Where `consumer` is to look for `supplier`: `host:port`."""
        return self._addresses[consumer, supplier]

    def lead_to(self, supplier: str, address: str) -> None:
        """Every link to `supplier` leads to this `host:port` from now on."""
        host, _, port = address.rpartition(":")
        for (_, far), link in self._links.items():
            if far == supplier:
                link.supplier = (host, int(port))

    def cut(self, *clusters: str) -> None:
        """Cut these clusters off from all others, and from each other."""
        self._set(clusters, cut=True)

    def heal(self) -> None:
        """Nothing is cut any more."""
        self._set([near for near, _ in self._links], cut=False)

    def _set(self, clusters: Iterable[str], *, cut: bool) -> None:
        apart = set(clusters)

        async def set_all() -> None:
            for ends, link in self._links.items():
                if apart.intersection(ends):
                    link.set_cut(cut)

        self._run(set_all()).result()

    def _run(self, work: Coroutine[None, None, _T]) -> Future[_T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _bind(self) -> None:
        for ends, link in self._links.items():
            server = await asyncio.start_server(link.relay, _LOOPBACK, 0)
            self._servers.append(server)
            host, port = server.sockets[0].getsockname()
            self._addresses[ends] = f"{host}:{port}"

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
