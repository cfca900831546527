"""A fleet in virtual time: replicas, the streams between them, and what each step of a script does.

Nothing happens but by a step, and a step depends on nothing but the script so far: no clock is read, no
chance is drawn but from a generator that the script seeds.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from crdt.dot import Dot, Millis
from crdt.key import EntryKey
from crdt.register import Register
from replica.core.consumer_session import ConsumerSession
from replica.core.digest import get_digest
from replica.core.messages import Answer, Batch, ConsumerMessage, Question, Range, SupplierMessage, Welcome
from replica.core.policy import TtlPolicy
from replica.core.purge import Place, purge
from replica.core.rows import get_clock
from replica.core.session import Outcome, Settings, Work
from replica.core.storage import StorageFull, Table
from replica.core.supplier_session import SupplierSession
from replica.core.underway import get_reconcile
from replica.simulator.calls import Calls
from replica.simulator.oracle import Contradiction, Oracle
from replica.simulator.process import EPOCH, Process
from replica.simulator.script import (
    NEVER,
    Again,
    Crash,
    Cut,
    Damage,
    Drop,
    Duplicate,
    Forget,
    Full,
    Lapse,
    Mend,
    Pass,
    Pull,
    Purge,
    Remember,
    Rollback,
    Save,
    Setup,
    Step,
    Stray,
    Swap,
    Tick,
    Turn,
    Update,
    Wipe,
    Write,
    names,
)
from replica.simulator.stream import Stream, size_of
from replica.simulator.witness import Flight, Witness, readable, readable_range

__all__ = ["Fleet", "Tally"]

_NOT_POLLED = -1

_BUDGET = 3
"""How many registers a purge looks at in one transaction."""

_CHANCE = 0x51C0
"""Seeds the randomness of every fleet: what differs between runs is their scripts."""


@dataclass(slots=True)
class Tally:
    """What a run came to."""

    steps: int = 0
    writes: int = 0
    """Calls that were answered with success."""
    messages: int = 0
    """Delivered."""
    bytes: int = 0
    """Of those; about."""
    streams: int = 0
    """Opened."""
    reconciles: int = 0
    """Finished."""
    purged: int = 0
    """Registers dropped."""
    conflicts: int = 0
    """Changes that left a register with concurrent values."""


class Fleet:
    """The replicas of a run, judged by an oracle as it goes."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.time = EPOCH
        self.keys = tuple(EntryKey.make("repo", "topic", f"k{number}") for number in range(setup.keys))
        self.oracle = Oracle()
        self.tally = Tally()
        self.lapsed = False
        """Something was purged without waiting for a member that was silent."""
        self.settings = Settings(
            heartbeat=Millis(5_000),
            silence=Millis(NEVER),
            reconcile_timeout=Millis(20_000),
            batch_bytes=setup.batch_bytes,
            max_silence=Millis(setup.max_silence),
        )
        default = Millis(setup.default_ttl) if setup.default_ttl else None
        self._calls = Calls(self.oracle, forgiving=setup.forgiving, default_ttl=default)
        self._witness = Witness(self.oracle, self.keys)
        self._trace = hashlib.blake2b(digest_size=16)
        self._links = {frozenset(link) for link in setup.links}
        self._cut: set[frozenset[str]] = set()
        self._streams: dict[tuple[str, str], Stream] = {}
        self._strays: dict[tuple[str, str], Flight] = {}
        chance = random.Random(_CHANCE)
        skews = dict(zip(names(setup), setup.skews, strict=False))
        self.replicas: dict[str, Process] = {}
        for name in names(setup):
            peers = [other for other in names(setup) if frozenset((name, other)) in self._links]
            self.oracle.join(name)
            self.replicas[name] = Process(
                name,
                peers,
                self.settings,
                TtlPolicy(default),
                skews.get(name, 0),
                random.Random(chance.randrange(1 << 32)),
            )

    # --- what happened

    @property
    def trace(self) -> str:
        """A hash of all that has happened: equal for equal runs."""
        return self._trace.hexdigest()

    def _record(self, *what: object) -> None:
        self._trace.update(repr(what).encode())

    def record_stores(self) -> None:
        """Put every row of every store into the trace."""
        for replica in self.replicas.values():
            with replica.storage.snapshot() as snapshot:
                for table in Table:
                    for key, value in snapshot.items(table):
                        self._trace.update(key + value)

    def live(self) -> int:
        """How many entries are live, by the first replica and the latest clock."""
        with next(iter(self.replicas.values())).storage.snapshot() as snapshot:
            return get_digest(snapshot, self.latest).live

    @property
    def latest(self) -> Millis:
        """The latest time that any clock of the fleet has shown."""
        return Millis(max(replica.latest for replica in self.replicas.values()))

    # --- steps

    def do(self, step: Step) -> None:
        """Do one step. Raises Contradiction when a replica does what none may do."""
        self.tally.steps += 1
        match step:
            case Remember() | Update() | Forget() | Lapse():
                self._write(step)
            case Again():
                self._again(self.replicas[step.at])
            case Pull():
                self.pull(step.at, step.source, step.messages)
            case Pass():
                self.time += step.ms
            case Turn():
                with suppress(StorageFull):
                    self.replicas[step.at].turn(step.skew)
            case Tick():
                self.tick(self.replicas[step.at])
            case Purge():
                self.purge(self.replicas[step.at])
            case Drop():
                self._end(step.at, step.source, "the connection broke")
            case Duplicate():
                self._duplicate(step.at, step.source)
            case Swap():
                self._swap(step.at, step.source)
            case Stray():
                self._stray(step.at, step.source)
            case Cut():
                self._cut.add(frozenset((step.at, step.source)))
                self._end(step.at, step.source, "the network is cut")
                self._end(step.source, step.at, "the network is cut")
            case Mend():
                self._cut.discard(frozenset((step.at, step.source)))
            case _:
                self._fault(step)

    def _fault(self, step: Crash | Full | Damage | Wipe | Save | Rollback) -> None:
        replica = self.replicas[step.at]
        now = replica.now(self.time)
        match step:
            case Full():
                replica.refusals += step.commits
            case Damage():
                self._damage(replica, self.keys[step.key].to_store())
            case Save():
                replica.keep_copy(self.oracle.snapshot(replica.name))
            case Crash():
                self._end_all(replica, "the replica stopped")
                replica.restart(now, lambda question: self._ask(replica, question), None)
            case Rollback() if replica.copy is not None:
                self._end_all(replica, "the replica stopped")
                self.oracle.rolled_back(replica.name, replica.copy.seen)
                replica.restart(now, lambda question: self._ask(replica, question), replica.copy)
            case Wipe():
                self._end_all(replica, "the replica stopped")
                self.oracle.wiped(replica.name)
                replica.wipe(now)
            case _:
                pass

    def _write(self, step: Write) -> None:
        replica = self.replicas[step.at]
        now = replica.now(self.time)
        key = self.keys[step.key]
        call = self._calls.make(replica.caller(now), key, step, f"request {self.tally.steps}")
        self._record(step.at, None if call is None else call.result)
        if call is not None:
            self.tally.writes += 1
            replica.last = call
            self._judge(replica, (key.to_store(),), now)

    def _judge(self, replica: Process, keys: Iterable[bytes], now: Millis) -> None:
        """Judge what a replica holds of registers that have just changed."""
        with replica.storage.snapshot() as snapshot:
            held = {key: register for key in keys if (register := readable(snapshot, key)) is not None}
            clock = get_clock(snapshot)
        for register in held.values():
            for sibling in register:
                replaced = (Dot(actor, top) for actor, top in sibling.context.items())
                if not all(map(clock.has, (sibling.dot, *replaced))):
                    raise Contradiction(f"{replica.name} holds what its clock has not seen: {sibling.dot}")
        self.tally.conflicts += sum(
            sum(not sibling.tombstone for sibling in register) > 1 for register in held.values()
        )
        if not self.setup.forgiving:
            self._witness.judge(replica.name, held, now)

    def _again(self, replica: Process) -> None:
        if replica.last is not None:
            now = replica.now(self.time)
            self._calls.again(replica.caller(now), replica.last, Millis(replica.latest))

    def _damage(self, replica: Process, key: bytes) -> None:
        """Damage a row, unless a peer lacks something of it: data that is lost for good is another fault."""
        held = {name: self._readable(one, key) for name, one in self.replicas.items()}
        if any(register is None for register in held.values()):
            return
        dots = [sibling.dot for sibling in held[replica.name] or ()]
        if dots and any(self.replicas[peer].has_seen(dots) for peer in replica.peers):
            replica.damage(key)

    def _readable(self, replica: Process, key: bytes) -> Register | None:
        with replica.storage.snapshot() as snapshot:
            return readable(snapshot, key)

    def _ask(self, replica: Process, question: Question) -> Mapping[str, Answer]:
        reached = [peer for peer in replica.peers if self._reach(replica.name, peer)]
        return {peer: self.replicas[peer].answer(question) for peer in reached}

    def mend(self) -> None:
        """Make the network whole, and every disk take what it is given."""
        self._cut.clear()
        for replica in self.replicas.values():
            replica.refusals = 0

    def streams(self) -> tuple[tuple[str, str], ...]:
        """The streams that are open: consumer and supplier."""
        return tuple(self._streams)

    def backbone(self) -> tuple[str, ...]:
        """So many links that every replica is reached, and no more."""
        joined = {name: {name} for name in self.replicas}
        chosen = []
        for link in self.setup.links:
            one, other = joined[link[0]], joined[link[1]]
            if one is not other:
                chosen.append(link)
                one |= other
                joined.update((name, one) for name in other)
        return tuple(chosen)

    # --- streams

    def _reach(self, a: str, b: str) -> bool:
        link = frozenset((a, b))
        return link in self._links and link not in self._cut

    def _open(self, at: str, source: str) -> Stream | None:
        stream = self._streams.get((at, source))
        if stream is not None or not self._reach(at, source):
            return stream
        consumer, supplier = self.replicas[at], self.replicas[source]
        stream = Stream(
            consumer,
            supplier,
            ConsumerSession(source, self.settings, consumer.entropy, consumer.attendance),
            SupplierSession(self.settings, supplier.entropy, supplier.attendance),
        )
        stream.pulling.open(consumer.now(self.time))
        with supplier.storage.snapshot() as snapshot:
            stream.serving.open(snapshot, supplier.now(self.time))
        self._streams[at, source] = stream
        self.tally.streams += 1
        return stream

    def _end(self, at: str, source: str, reason: str) -> None:
        stream = self._streams.pop((at, source), None)
        if stream is not None:
            stream.close(reason)

    def _end_all(self, replica: Process, reason: str) -> None:
        for at, source in [*self._streams]:
            if replica.name in (at, source):
                self._end(at, source, reason)

    def pull(self, at: str, source: str, most: int) -> int:
        """Bring over up to so many messages of a stream, opening it if need be; how many there were."""
        stream = self._open(at, source)
        if stream is None:
            return 0
        consumer, supplier = stream.consumer, stream.supplier
        # Nothing is to be said that was not before, unless a store has changed or a timer has run down.
        if stream.consumer_polled != consumer.version or stream.pulling.deadline() <= consumer.now(self.time):
            self._poll_consumer(stream)
        if stream.supplier_polled != supplier.version or stream.serving.deadline() <= supplier.now(self.time):
            self._poll_supplier(stream)
        delivered = 0
        while delivered < most and not self._over(stream) and not stream.idle:
            if stream.to_supplier and stream.serving.ended is None:
                self._deliver_to_supplier(stream, stream.to_supplier.popleft())
            else:
                self._deliver_to_consumer(stream, stream.to_consumer.popleft())
            delivered += 1
        self._over(stream)
        return delivered

    def _over(self, stream: Stream) -> bool:
        if stream.ended:
            self._end(stream.consumer.name, stream.supplier.name, "the other end gave up")
            return True
        return False

    def tick(self, replica: Process) -> None:
        """Let the timers of a replica run."""
        for stream in [*self._streams.values()]:
            if stream.consumer is replica:
                self._poll_consumer(stream)
            elif stream.supplier is replica:
                self._poll_supplier(stream)
            self._over(stream)
        with suppress(StorageFull):
            self._repair(replica)

    def purge(self, replica: Process) -> None:
        """Let a replica drop what it may drop."""
        now = replica.now(self.time)
        position: Place | None = None
        while True:
            with replica.storage.snapshot() as snapshot:
                before = readable_range(snapshot)
            step = partial(
                purge,
                now=now,
                max_silence=self.settings.max_silence,
                grace=Millis(self.setup.grace),
                position=position,
                budget=_BUDGET,
                patience=self.settings.reconcile_timeout,
            )
            try:
                purged = replica.run(step)
            except StorageFull:
                return
            with replica.storage.snapshot() as snapshot:
                after = readable_range(snapshot)
            actor = replica.identity.actor
            self._witness.removed(replica.name, before, after, actor, now, self.latest)
            self._judge(replica, [key for key in before if after.get(key) != before[key]], now)
            self.lapsed = self.lapsed or bool(purged.superseded or purged.listed)
            self.tally.purged += purged.tombstones + purged.expired
            position = purged.position
            if position is None:
                return

    def _repair(self, replica: Process) -> None:
        """Fetch from the peers in reach what is damaged here."""
        reached = [peer for peer in replica.peers if self._reach(replica.name, peer)]
        for key, register in replica.repair([self.replicas[peer] for peer in reached]):
            self._witness.repaired(replica.name, key, register)

    def _poll_consumer(self, stream: Stream) -> None:
        """Do what is due at the consumer's end, and send what it has to say."""
        consumer, session = stream.consumer, stream.pulling
        now = consumer.now(self.time)
        if session.deadline() <= now:
            self._run(consumer, session, session.due(now), now)
        stream.consumer_polled = consumer.version
        with consumer.storage.snapshot() as snapshot:
            stream.to_supplier += session.poll(snapshot, now)

    def _poll_supplier(self, stream: Stream) -> None:
        supplier, session = stream.supplier, stream.serving
        now = supplier.now(self.time)
        if session.deadline() <= now:
            self._run(supplier, session, session.due(now), now)
        stream.supplier_polled = supplier.version
        with supplier.storage.snapshot() as snapshot:
            messages = session.poll(snapshot, now)
        stream.to_consumer += [self._witness.note(supplier.name, message) for message in messages]

    def _count(self, sender: str, receiver: str, message: ConsumerMessage | SupplierMessage) -> None:
        size = size_of(message)
        self.tally.messages += 1
        self.tally.bytes += size
        self._record(sender, receiver, type(message).__name__, size)

    def _run(
        self, replica: Process, session: ConsumerSession | SupplierSession, work: Work | None, now: Millis
    ) -> Outcome | None:
        """Commit what a session wants done; none if nothing came of it."""
        if work is None:
            return None
        try:
            outcome = replica.run(work)
        except StorageFull as full:
            session.fail(str(full))
            return None
        session.committed(outcome, now)
        if outcome.begun is not None:
            replica.identity = outcome.begun
            replica.last = None
            self._end_all(replica, "the replica has begun a new incarnation")
        if outcome.released:
            for stream in self._streams.values():
                if stream.consumer is replica:
                    stream.pulling.wake()
                    stream.consumer_polled = _NOT_POLLED
        return outcome

    def _deliver_to_supplier(self, stream: Stream, message: ConsumerMessage) -> None:
        supplier = stream.supplier
        now = supplier.now(self.time)
        self._count(stream.consumer.name, supplier.name, message)
        self._run(supplier, stream.serving, stream.serving.receive(message, now), now)
        stream.supplier_polled = _NOT_POLLED
        if not stream.to_supplier and not stream.ended:
            self._poll_supplier(stream)

    def _deliver_to_consumer(self, stream: Stream, flight: Flight) -> None:
        consumer, message = stream.consumer, flight.message
        self._strays[consumer.name, stream.supplier.name] = flight
        now = consumer.now(self.time)
        self._count(stream.supplier.name, consumer.name, message)
        work = stream.pulling.receive(message, now)
        if isinstance(message, Batch | Range):
            self._apply(stream, flight, message, work, now)
        else:
            outcome = self._run(consumer, stream.pulling, work, now)
            if isinstance(message, Welcome) and outcome is not None and outcome.step is not None:
                self._began(consumer, message, flight)
        stream.consumer_polled = _NOT_POLLED
        if not stream.to_consumer and not stream.ended:
            self._poll_consumer(stream)

    def _began(self, consumer: Process, welcome: Welcome, flight: Flight) -> None:
        with consumer.storage.snapshot() as snapshot:
            state = get_reconcile(snapshot)
        if state is not None and (state.start_sequence, state.start_clock) == (
            welcome.sequence,
            welcome.clock,
        ):
            consumer.start_seen = flight.seen

    def _apply(
        self, stream: Stream, flight: Flight, message: Batch | Range, work: Work | None, now: Millis
    ) -> None:
        consumer = stream.consumer
        before: dict[bytes, Register] = {}
        if isinstance(message, Range):
            # Here, and nowhere else, what comes from a supplier makes a replica write on its own.
            with consumer.storage.snapshot() as snapshot:
                before = readable_range(snapshot, message.start, message.stop or None)
        actor = consumer.identity.actor
        outcome = self._run(consumer, stream.pulling, work, now)
        if outcome is None or outcome.applied is None or outcome.applied.dropped is not None:
            return
        applied, done = outcome.applied, outcome.step is not None and outcome.step.done
        self._witness.applied(consumer.name, flight, applied.damaged)
        with consumer.storage.snapshot() as snapshot:
            if isinstance(message, Range):
                after = readable_range(snapshot, message.start, message.stop or None)
                self._witness.removed(consumer.name, before, after, actor, now, self.latest)
            if done:
                self._witness.reconciled(consumer.name, consumer.start_seen)
        self._judge(consumer, applied.changed, now)
        self.tally.reconciles += done

    # --- faults of the network

    def _duplicate(self, at: str, source: str) -> None:
        stream = self._streams.get((at, source))
        if stream is not None and stream.to_consumer:
            stream.to_consumer.appendleft(stream.to_consumer[0])

    def _swap(self, at: str, source: str) -> None:
        stream = self._streams.get((at, source))
        coming = [] if stream is None else [*islice(stream.to_consumer, 2)]
        if stream is not None and [type(flight.message) for flight in coming] == [Batch, Batch]:
            stream.to_consumer.rotate(-1)
            stream.to_consumer.insert(1, stream.to_consumer.pop())

    def _stray(self, at: str, source: str) -> None:
        stream, flight = self._streams.get((at, source)), self._strays.get((at, source))
        if stream is not None and flight is not None:
            self._deliver_to_consumer(stream, flight)
            self._over(stream)
