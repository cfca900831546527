"""The links between replicas, and what may befall them: each is a TCP relay on loopback.

A replica is told the relay's address in place of its peer's. A link is named by who pulls over it and from
whom, so that the two directions of replication between two replicas can fail one by one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

__all__ = ["Links", "Pair"]

Pair = tuple[str, str]
"""The consumer's cluster and the supplier's."""

_LOOPBACK = "127.0.0.1"
_CHUNK = 1 << 14
_ON_THE_WAY = 64
"""Chunks that a link holds before it takes no more, as a network does."""

_T = TypeVar("_T")


@dataclass(eq=False, slots=True)
class _Link:
    supplier: tuple[str, int] | None = None
    cut: bool = False
    delay: float = 0.0
    rate: float | None = None
    flowing: asyncio.Event = field(default_factory=asyncio.Event)
    ends: set[asyncio.StreamWriter] = field(default_factory=set)

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either end closes it or it is broken."""
        ends = [writer]
        self.ends.add(writer)
        tasks: list[asyncio.Task[None]] = []
        try:
            if self.cut or self.supplier is None:
                return
            far_reader, far_writer = await asyncio.open_connection(*self.supplier)
            ends.append(far_writer)
            self.ends.add(far_writer)
            if self.cut:
                return
            tasks = [
                asyncio.create_task(self._carry(reader, far_writer)),
                asyncio.create_task(self._carry(far_reader, writer)),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass  # The supplier is not there, or all links end: either way the connection is reset.
        finally:
            for task in tasks:
                task.cancel()
            for end in ends:
                self.ends.discard(end)
                end.transport.abort()

    def break_connections(self) -> None:
        """Reset what is connected now."""
        for end in self.ends:
            end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction, in order: chunks wait on the way as long as the link takes."""
        clock = asyncio.get_running_loop().time
        way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_ON_THE_WAY)

        async def take() -> None:
            while data := await reader.read(_CHUNK):
                await way.put((clock() + self.delay, data))
            await way.put((clock() + self.delay, b""))

        taking = asyncio.create_task(take())
        try:
            while True:
                due, data = await way.get()
                await asyncio.sleep(max(0.0, due - clock()))
                await self.flowing.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()
                if self.rate is not None:
                    await asyncio.sleep(len(data) / self.rate)
        except OSError:
            pass  # Reset: the connection ends with it.
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)


class Links:
    """A link from each cluster to each other one, carried by a thread between `with` and its end."""

    def __init__(self, clusters: Iterable[str]) -> None:
        names = list(clusters)
        self.all: tuple[Pair, ...] = tuple((one, other) for one in names for other in names if one != other)
        self._links: dict[Pair, _Link] = {}
        self._addresses: dict[Pair, str] = {}
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)

    def __enter__(self) -> Links:
        self._thread.start()
        self._run(self._bind())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def address(self, consumer: str, supplier: str) -> str:
        """Where `consumer` is to look for `supplier`: `host:port`."""
        return self._addresses[consumer, supplier]

    def lead_to(self, supplier: str, address: str | None) -> None:
        """Every link to `supplier` leads to this `host:port` from now on; None: nobody is there."""
        place: tuple[str, int] | None = None
        if address is not None:
            host, _, port = address.rpartition(":")
            place = host, int(port)

        def lead(link: _Link) -> None:
            link.supplier = place

        self._each([pair for pair in self.all if pair[1] == supplier], lead)

    def of(self, cluster: str) -> tuple[Pair, ...]:
        """Every link from or to a cluster."""
        return tuple(pair for pair in self.all if cluster in pair)

    def between(self, one: str, other: str) -> tuple[Pair, ...]:
        """The links between two clusters."""
        return (one, other), (other, one)

    # --- what may befall them

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Reset their connections, and every new one."""

        def cut(link: _Link) -> None:
            link.cut = True
            link.break_connections()

        self._each(pairs, cut)

    def break_connections(self, pairs: Iterable[Pair]) -> None:
        """Reset their connections: what was on the way is lost, and a new one may overtake the old."""
        self._each(pairs, _Link.break_connections)

    def stall(self, pairs: Iterable[Pair]) -> None:
        """Let nothing through, and break nothing: the far end has vanished without a word."""
        self._each(pairs, lambda link: link.flowing.clear())

    def delay(self, pairs: Iterable[Pair], seconds: float) -> None:
        """Hold everything up by so much."""

        def delay(link: _Link) -> None:
            link.delay = seconds

        self._each(pairs, delay)

    def slow(self, pairs: Iterable[Pair], bytes_per_second: float) -> None:
        """Let no more through than that."""

        def slow(link: _Link) -> None:
            link.rate = bytes_per_second

        self._each(pairs, slow)

    def heal(self, pairs: Iterable[Pair] | None = None) -> None:
        """Make them, or all, as good as new. What was stalled goes on."""

        def heal(link: _Link) -> None:
            link.cut, link.delay, link.rate = False, 0.0, None
            link.flowing.set()

        self._each(self.all if pairs is None else pairs, heal)

    # --- the thread

    def _each(self, pairs: Iterable[Pair], change: Callable[[_Link], None]) -> None:
        links = [self._links[pair] for pair in pairs]

        async def change_each() -> None:
            for link in links:
                change(link)

        self._run(change_each())

    def _run(self, work: Coroutine[None, None, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _bind(self) -> None:
        for pair in self.all:
            link = self._links[pair] = _Link()
            link.flowing.set()
            server = await asyncio.start_server(link.relay, _LOOPBACK, 0)
            self._servers.append(server)
            host, port = server.sockets[0].getsockname()
            self._addresses[pair] = f"{host}:{port}"

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
