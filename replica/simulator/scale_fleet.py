"""A large fleet in virtual time, without an oracle: what is counted is messages, bytes and time (section 11).

It drives the very sessions that a server drives (:mod:`replica.core.session`), over stores in memory. The
network is that of the small fleets: the messages of a stream arrive in order, and all that is on the way is
lost when the stream ends. Here each link has a delay of its own, so time means something; computing takes
none, and a link carries any number of bytes at once.

Nothing happens but by an event, and events depend on nothing but the seed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, cast

from crdt.clock import Clock
from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import Remember
from replica.core.consumer_session import ConsumerSession
from replica.core.digest import get_digest
from replica.core.member_rows import members
from replica.core.messages import ConsumerMessage, Heartbeat, Hello, SupplierMessage, Welcome
from replica.core.policy import DURABLE
from replica.core.rows import get_clock, get_sequence
from replica.core.session import Settings, Work
from replica.core.supplier_session import SupplierSession
from replica.simulator.process import EPOCH, Process
from replica.simulator.script import NEVER

__all__ = ["DELAYS", "HEARTBEAT", "Measure", "ScaleFleet", "Stuck", "Tally", "Traffic"]

HEARTBEAT = Millis(5_000)
DELAYS = (5, 50)
"""The least and the greatest delay of a link, one way, in milliseconds."""

_RECONNECT = 1_000
"""Within so long a stream is opened again."""

_QUIET = HEARTBEAT + DELAYS[1] + 1_000
"""After so long without news nobody has any left to tell."""

Measure: TypeAlias = Callable[[ConsumerMessage | SupplierMessage, bool], int]
"""How many bytes a message takes; the flag says that it goes to the supplier."""


class Stuck(Exception):
    """A fleet did not get where it had to in time; says where."""


@dataclass(slots=True)
class Traffic:
    """Messages of one kind that were delivered."""

    messages: int = 0
    bytes: int = 0
    copies: int = 0
    """Registers in them."""
    statements: int = 0
    """Statements about members in them."""


@dataclass(slots=True)
class Tally:
    """What was delivered since it was begun."""

    data: Traffic = field(default_factory=Traffic)
    """Batches, ranges, and what acknowledges them."""
    gossip: Traffic = field(default_factory=Traffic)
    """Heartbeats that tell something of members."""
    beats: Traffic = field(default_factory=Traffic)
    """Heartbeats that tell nothing but that the sender is there."""
    greetings: Traffic = field(default_factory=Traffic)
    """Hellos and welcomes."""
    by_replica: dict[str, int] = field(default_factory=dict)
    """Bytes that each replica has sent and received."""

    @property
    def busiest(self) -> int:
        """The most bytes that one replica has sent and received."""
        return max(self.by_replica.values(), default=0)


class _End:
    """One end of a stream."""

    __slots__ = ("process", "session", "stream", "timer", "wanted")

    def __init__(self, stream: _Stream, process: Process, session: ConsumerSession | SupplierSession) -> None:
        self.stream = stream
        self.process = process
        self.session = session
        self.timer = NEVER + EPOCH
        """When its timer runs down."""
        self.wanted = False
        """It is about to be asked what it has to say."""


class _Stream:
    """A stream: both its ends, from when it is opened until it ends."""

    __slots__ = ("consumer", "delay", "over", "supplier")

    def __init__(self, at: Process, source: Process, settings: Settings, delay: int) -> None:
        self.delay = delay
        self.over = False
        self.consumer = _End(self, at, ConsumerSession(source.name, settings, at.entropy, at.attendance))
        self.supplier = _End(self, source, SupplierSession(settings, source.entropy, source.attendance))


class ScaleFleet:
    """Replicas with streams both ways over every link; nothing is open yet."""

    def __init__(
        self,
        names: Collection[str],
        links: Iterable[tuple[str, str]],
        chance: random.Random,
        measure: Measure,
    ) -> None:
        self.time = EPOCH
        self.tally = Tally()
        self.reopened = 0
        """Streams that ended by themselves."""
        self.reached: list[int] = []
        """For each write that has arrived everywhere, after how long."""
        self._chance = chance
        self._measure = measure
        self._settings = Settings(heartbeat=HEARTBEAT, silence=Millis(NEVER))
        self._delays = {link: chance.randint(*DELAYS) for link in links}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._flying = 0
        """Messages on the way that are no heartbeats."""
        self._wanted = 0
        self._opening = 0
        self._news_at = self.time
        self._missing: dict[bytes, set[str]] = {}
        """The keys that were written, with the replicas that do not hold them yet."""
        self._written_at: dict[bytes, int] = {}
        self._held: dict[str, tuple[int, Clock]] = {}
        """Where the log of each replica ended, and its clock, when its consumers were last told to look."""
        self._cut: set[tuple[str, str]] = set()
        self._streams: dict[tuple[str, str], _Stream] = {}
        peers: dict[str, list[str]] = {name: [] for name in names}
        for one, other in self._delays:
            peers[one].append(other)
            peers[other].append(one)
        self.processes: Mapping[str, Process] = {
            name: Process(
                name, peers[name], self._settings, DURABLE, 0, random.Random(chance.getrandbits(64))
            )
            for name in names
        }
        self._serving: dict[str, list[_End]] = {name: [] for name in names}
        self._pulling: dict[str, list[_End]] = {name: [] for name in names}

    # --- what one does to it

    def open_all(self, within: int = HEARTBEAT) -> None:
        """Open every stream, each at some moment within so many milliseconds."""
        for link in self._delays:
            self._open_soon(link, within)

    def write(self, name: str, key: EntryKey, body: str) -> None:
        """Write a new entry at a replica."""
        process = self.processes[name]
        caller = process.caller(process.now(self.time))
        command = Remember(key=key, title=str(key), body=body)
        process.run(
            lambda transaction: caller.node.remember(transaction, command, caller.now, caller.slowest)
        )
        stored = key.to_store()
        self._missing[stored] = set(self.processes) - {name}
        self._written_at[stored] = self.time
        self._news_at = self.time
        self._stir(process)

    def cut(self, apart: Collection[str]) -> None:
        """Cut these replicas off from all others."""
        for link in self._delays:
            if (link[0] in apart) != (link[1] in apart):
                self._cut.add(link)
                for way in (link, link[::-1]):
                    if way in self._streams:
                        self._close(self._streams[way], "the network is cut")

    def mend(self) -> None:
        """Make the network whole, and open again what was cut. What has not arrived counts from now on."""
        self._written_at.update(dict.fromkeys(self._missing, self.time))
        cut, self._cut = sorted(self._cut), set()
        for link in cut:
            self._open_soon(link, _RECONNECT)

    def skip(self, ms: int) -> None:
        """Let time pass in which nobody says anything."""
        self.time += ms

    # --- how far it gets

    def run_for(self, ms: int) -> None:
        """Let so much time pass."""
        end = self.time + ms
        while self._events and self._events[0][0] <= end:
            self._next()
        self.time = max(self.time, end)

    def run_until_still(self, limit: int) -> None:
        """Go on until only heartbeats are on the way. Raises Stuck after ``limit`` milliseconds."""
        self._run_until(lambda: not (self._flying or self._wanted or self._opening), limit, "never still")

    def run_until_reached(self, limit: int) -> None:
        """Go on until every write has arrived everywhere. Raises Stuck after ``limit`` milliseconds."""
        self._run_until(lambda: not self._missing, limit, "writes that did not arrive everywhere")

    def run_until_quiet(self, limit: int) -> None:
        """Go on until nobody has any news for another, of members either. Raises Stuck."""
        self._run_until(
            lambda: not (self._flying or self._opening) and self.time - self._news_at > _QUIET,
            limit,
            "news without end",
        )

    def _run_until(self, done: Callable[[], bool], limit: int, failure: str) -> None:
        end = self.time + limit
        while not done():
            if not self._events or self.time > end:
                raise Stuck(f"after {limit} ms: {failure}")
            self._next()

    def agree(self) -> bool:
        """Whether all replicas hold the same live entries."""
        digests = set()
        for process in self.processes.values():
            with process.storage.snapshot() as snapshot:
                digests.add(get_digest(snapshot, Millis(self.time)))
        return len(digests) == 1

    def acquainted(self) -> bool:
        """Whether every replica has heard from every other one, if only through others."""
        for process in self.processes.values():
            with process.storage.snapshot() as snapshot:
                if sum(member.known is not None for member in members(snapshot)) < len(self.processes) - 1:
                    return False
        return True

    # --- events

    def _at(self, time: int, event: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._events, (time, self._scheduled, event))

    def _next(self) -> None:
        time, _, event = heapq.heappop(self._events)
        self.time = max(self.time, time)
        event()

    def _open_soon(self, link: tuple[str, str], within: int) -> None:
        for way in (link, link[::-1]):
            self._opening += 1
            self._at(self.time + self._chance.randrange(within), partial(self._open, link, way))

    def _open(self, link: tuple[str, str], way: tuple[str, str]) -> None:
        self._opening -= 1
        if link in self._cut or way in self._streams:
            return
        at, source = (self.processes[name] for name in way)
        stream = _Stream(at, source, self._settings, self._delays[link])
        self._streams[way] = stream
        self._pulling[at.name].append(stream.consumer)
        self._serving[source.name].append(stream.supplier)
        assert isinstance(stream.consumer.session, ConsumerSession)
        assert isinstance(stream.supplier.session, SupplierSession)
        stream.consumer.session.open(at.now(self.time))
        with source.storage.snapshot() as snapshot:
            stream.supplier.session.open(snapshot, source.now(self.time))
        self._poll(stream.supplier)
        self._poll(stream.consumer)

    def _close(self, stream: _Stream, reason: str) -> None:
        stream.over = True
        at, source = stream.consumer.process.name, stream.supplier.process.name
        del self._streams[at, source]
        self._pulling[at].remove(stream.consumer)
        self._serving[source].remove(stream.supplier)
        stream.consumer.session.fail(reason)
        stream.supplier.session.fail(reason)

    def _give_up(self, stream: _Stream) -> None:
        """A session is over by its own decision: try again."""
        way = (stream.consumer.process.name, stream.supplier.process.name)
        self._close(stream, "the other end gave up")
        self.reopened += 1
        link = way if way in self._delays else way[::-1]
        self._opening += 1
        self._at(self.time + 1 + self._chance.randrange(_RECONNECT), partial(self._open, link, way))

    def _want(self, end: _End) -> None:
        if not end.wanted:
            end.wanted = True
            self._wanted += 1
            self._at(self.time, partial(self._poll_wanted, end))

    def _poll_wanted(self, end: _End) -> None:
        self._wanted -= 1
        end.wanted = False
        if not end.stream.over:
            self._poll(end)

    def _ring(self, end: _End, time: int) -> None:
        if end.timer == time and not end.stream.over:
            end.timer = NEVER + EPOCH
            self._poll(end)

    def _stir(self, process: Process) -> None:
        """If what a replica holds has changed, those who pull from it are to hear of it."""
        with process.storage.snapshot() as snapshot:
            now = (get_sequence(snapshot), get_clock(snapshot))
        if self._held.get(process.name) != now:
            self._held[process.name] = now
            for end in self._serving[process.name]:
                self._want(end)

    def _poll(self, end: _End) -> None:
        """Do what is due at an end, and send what it has to say."""
        session, process = end.session, end.process
        now = process.now(self.time)
        if session.deadline() <= now:
            self._run(end, session.due(now), now)
        messages: tuple[ConsumerMessage | SupplierMessage, ...]
        with process.storage.snapshot() as snapshot:
            messages = session.poll(snapshot, now)
        stream = end.stream
        other = stream.supplier if end is stream.consumer else stream.consumer
        for message in messages:
            self._flying += not isinstance(message, Heartbeat)
            self._at(self.time + stream.delay, partial(self._deliver, end, other, message))
        if session.ended is not None:
            if not stream.over:
                self._give_up(stream)
            return
        deadline = max(session.deadline(), self.time + 1)
        if deadline != end.timer:
            end.timer = deadline
            self._at(deadline, partial(self._ring, end, deadline))

    def _deliver(self, sender: _End, end: _End, message: ConsumerMessage | SupplierMessage) -> None:
        self._flying -= not isinstance(message, Heartbeat)
        if end.stream.over:
            return
        self._count(sender.process.name, end.process.name, message, end is end.stream.supplier)
        now = end.process.now(self.time)
        work = (
            end.session.receive(cast(SupplierMessage, message), now)
            if isinstance(end.session, ConsumerSession)
            else end.session.receive(cast(ConsumerMessage, message), now)
        )
        self._run(end, work, now)
        if not end.stream.over:
            self._poll(end)

    def _run(self, end: _End, work: Work | None, now: Millis) -> None:
        if work is None:
            return
        outcome = end.process.run(work)
        end.session.committed(outcome, now)
        if outcome.begun is not None:
            raise Stuck(f"{end.process.name} has begun a new incarnation: {outcome.error}")
        if outcome.released:
            for other in self._pulling[end.process.name]:
                assert isinstance(other.session, ConsumerSession)
                other.session.wake()
                self._want(other)
        if outcome.applied is not None:
            for key in outcome.applied.changed:
                self._arrived(end.process.name, key)
            self._stir(end.process)

    def _arrived(self, name: str, key: bytes) -> None:
        missing = self._missing.get(key)
        if missing is None:
            return
        missing.discard(name)
        if not missing:
            del self._missing[key]
            self.reached.append(self.time - self._written_at[key])

    def _count(
        self, sender: str, receiver: str, message: ConsumerMessage | SupplierMessage, to_supplier: bool
    ) -> None:
        tally = self.tally
        statements = len(getattr(message, "knowledge", ()))
        match message:
            case Hello() | Welcome():
                traffic = tally.greetings
            case Heartbeat():
                traffic = tally.gossip if statements else tally.beats
            case _:
                traffic = tally.data
        size = self._measure(message, to_supplier)
        traffic.messages += 1
        traffic.bytes += size
        traffic.copies += len(getattr(message, "changes", ()))
        traffic.statements += statements
        for name in (sender, receiver):
            tally.by_replica[name] = tally.by_replica.get(name, 0) + size
        if statements or not isinstance(message, Heartbeat):
            self._news_at = self.time
