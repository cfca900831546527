"""A few replicas in one process, driven by hand: what the scripted histories are told with."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from crdt.clock import Clock
from crdt.dot import Dot, Millis
from crdt.expiry import life, with_ttl
from crdt.key import EntryKey
from crdt.record import Edit
from crdt.register import Register
from crdt.write import basis, bury, rewrite
from replica.core.consumer_session import ConsumerSession
from replica.core.doubt import Doubt, settle
from replica.core.identity import Identity, begin_store, read_identity
from replica.core.member_rows import members
from replica.core.membership import configure, wake
from replica.core.messages import Batch, ConsumerMessage, Outline, Range, SupplierMessage
from replica.core.purge import Purged, purge
from replica.core.rows import get_clock, get_runs, put_register, put_runs, read_register, registers
from replica.core.session import Attendance, Outcome, Settings, Work
from replica.core.storage import Snapshot, Transaction
from replica.core.supplier_session import SupplierSession
from replica.core.underway import refresh
from replica.storage.memory import MemoryStorage

START = Millis(1_000_000)
LAPSE = Millis(60_000)
GRACE = Millis(5_000)
SETTINGS = Settings(max_silence=LAPSE, reconcile_timeout=Millis(30_000))


@dataclass
class World:
    """The time, and the chance, of a fleet."""

    now: Millis = START
    random: random.Random = field(default_factory=lambda: random.Random(1))

    def wait(self, seconds: float) -> None:
        self.now = Millis(self.now + int(seconds * 1000))

    def entropy(self, count: int) -> bytes:
        return self.random.randbytes(count)


class Site:
    """One replica."""

    def __init__(
        self,
        world: World,
        name: str,
        peers: Iterable[str] = (),
        *,
        skew: float = 0,
        settings: Settings = SETTINGS,
    ) -> None:
        self.world = world
        self.name = name
        self.skew = int(skew * 1000)
        self.settings = settings
        self.peers = tuple(peers)
        self.storage = MemoryStorage()
        self.attendance = Attendance()
        self.begun: list[Identity] = []
        """New incarnations that were begun in doubt."""
        self.wipe()

    @property
    def now(self) -> Millis:
        return Millis(self.world.now + self.skew)

    @property
    def identity(self) -> Identity:
        with self.storage.snapshot() as snapshot:
            found = read_identity(snapshot)
        assert found is not None
        return found

    # --- life and death

    def wipe(self) -> None:
        """Lose everything, and begin with an empty directory."""
        self.world.wait(0.001)
        self.storage = MemoryStorage()
        self.storage.run(lambda tx: begin_store(tx, self.name, self.now, self.world.entropy))
        self._start()

    def _start(self) -> None:
        def start(transaction: Transaction) -> None:
            identity = read_identity(transaction)
            assert identity is not None
            wake(transaction, self.now)
            refresh(transaction, self.now)
            configure(transaction, identity, self.peers, self.now)

        self.attendance = Attendance()
        self.storage.run(start)

    def copy(self) -> MemoryStorage:
        return self.storage.copy()

    def roll_back(self, copy: MemoryStorage, *, noticed: bool = True) -> None:
        """Go back to a copy of the directory; when that is noticed at the start, a new incarnation begins."""
        self.storage = copy.copy()
        self._start()
        if noticed:
            doubt = Doubt("a peer could not be asked")
            self.storage.run(lambda tx: settle(tx, doubt, self.now, self.world.entropy))

    # --- reads and writes

    def read(self, key: str) -> Register:
        with self.storage.snapshot() as snapshot:
            return read_register(snapshot, store_key(key))

    def titles(self, key: str, now: Millis | None = None) -> set[str]:
        """The titles of the live siblings."""
        from crdt.fold import read_record

        alive = life(self.read(key), self.now if now is None else now)
        found: set[str] = set()
        for sibling in () if alive is None else alive.values:
            record = read_record(sibling)
            assert record is not None
            found |= {str(value.value) for value in record.fields["title"].values()}
        return found

    def clock(self) -> Clock:
        with self.storage.snapshot() as snapshot:
            return get_clock(snapshot)

    def everything(self) -> dict[bytes, Register]:
        with self.storage.snapshot() as snapshot:
            return {key: register for key, register in registers(snapshot) if isinstance(register, tuple)}

    def listed(self) -> set[str]:
        """The members that must reconcile with this replica."""
        with self.storage.snapshot() as snapshot:
            return {member.cluster for member in members(snapshot) if member.listed}

    def remember(self, key: str, title: str, ttl: float | None = None) -> Dot:
        def write(transaction: Transaction) -> Dot:
            raw = store_key(key)
            found = basis(read_register(transaction, raw), self.now)
            expires_at = None if found.life is None else found.life.expires_at
            if ttl is not None:
                expires_at = with_ttl(expires_at, self.now, Millis(int(ttl * 1000)))
            dot = self._mint(transaction)
            put_register(
                transaction,
                raw,
                rewrite(found, Edit(fields={"title": title}), dot, self.now, expires_at),
                origin=None,
            )
            return dot

        return self.storage.run(write)

    def forget(self, key: str) -> None:
        def write(transaction: Transaction) -> None:
            register = read_register(transaction, store_key(key))
            if any(not sibling.tombstone for sibling in register):
                put_register(
                    transaction,
                    store_key(key),
                    bury(register, self._mint(transaction), self.now),
                    origin=None,
                )

        self.storage.run(write)

    def _mint(self, transaction: Transaction) -> Dot:
        identity = read_identity(transaction)
        assert identity is not None
        runs = get_runs(transaction, identity.actor)
        counter = runs[-1] + 1 if runs else 1
        put_runs(transaction, identity.actor, (1, counter))
        return Dot(identity.actor, counter)

    def purge(self) -> Purged:
        """One whole purge, step by step."""
        return purge_all(self)

    # --- replication

    def do(self, work: Work | None) -> Outcome | None:
        if work is None:
            return None
        outcome = self.storage.run(work)
        if outcome.begun is not None:
            self.begun.append(outcome.begun)
        return outcome


def store_key(key: str) -> bytes:
    return EntryKey.make("r", "t", key).to_store()


def purge_all(site: Site) -> Purged:
    total = Purged()
    position = None
    while True:
        step = site.storage.run(
            lambda tx, at=position: purge(tx, site.now, LAPSE, GRACE, at, 3)  # type: ignore[misc]
        )
        total = total.plus(step)
        position = step.position
        if position is None:
            return total


class Stream:
    """A stream on which one site pulls from another, a message at a time."""

    def __init__(self, consumer: Site, supplier: Site, **settings: int) -> None:
        self.consumer, self.supplier = consumer, supplier
        chosen = replace(consumer.settings, **settings)  # type: ignore[arg-type]
        entropy = consumer.world.entropy
        self.pulling = ConsumerSession(supplier.name, chosen, entropy, consumer.attendance)
        self.serving = SupplierSession(chosen, entropy, supplier.attendance)
        self.up: list[ConsumerMessage] = []
        self.down: list[SupplierMessage] = []
        self.pulling.open(consumer.now)
        with supplier.storage.snapshot() as snapshot:
            self.serving.open(snapshot, supplier.now)

    @property
    def ended(self) -> bool:
        return self.pulling.ended is not None or self.serving.ended is not None

    def poll(self) -> None:
        now = self.consumer.now
        self.consumer_does(self.pulling.due(now))
        with self.consumer.storage.snapshot() as snapshot:
            self.up += self.pulling.poll(snapshot, now)
        now = self.supplier.now
        self.supplier_does(self.serving.due(now))
        with self.supplier.storage.snapshot() as snapshot:
            self.down += self.serving.poll(snapshot, now)

    def consumer_does(self, work: Work | None) -> Outcome | None:
        outcome = self.consumer.do(work)
        if outcome is not None:
            self.pulling.committed(outcome, self.consumer.now)
        return outcome

    def supplier_does(self, work: Work | None) -> Outcome | None:
        outcome = self.supplier.do(work)
        if outcome is not None:
            self.serving.committed(outcome, self.supplier.now)
        return outcome

    def deliver_up(self) -> None:
        message = self.up.pop(0)
        self.supplier_does(self.serving.receive(message, self.supplier.now))

    def deliver_down(self) -> Outcome | None:
        message = self.down.pop(0)
        return self.consumer_does(self.pulling.receive(message, self.consumer.now))

    def run_open(self) -> None:
        """Let messages flow until nobody has anything to say, and leave the stream open."""
        for _ in range(10_000):
            self.poll()
            if self.up:
                self.deliver_up()
            elif self.down:
                self.deliver_down()
            else:
                return

    def beat(self) -> None:
        """Let the time of the next heartbeat come, and everything flow that it brings."""
        due = max(self.pulling.deadline() - self.consumer.skew, self.serving.deadline() - self.supplier.skew)
        self.consumer.world.now = Millis(max(due, self.consumer.world.now))
        self.run_open()

    def run(self, batches: int | None = None, *, beats: int = 0) -> int:
        """Let messages flow until nobody has anything to say, or so many batches or ranges were delivered.

        Returns how many batches, ranges and outlines were delivered.
        """
        delivered = 0
        for _ in range(10_000):
            self.poll()
            if self.up:
                self.deliver_up()
            elif self.down:
                data = isinstance(self.down[0], Batch | Range | Outline)
                if data and batches is not None and delivered >= batches:
                    break
                delivered += data
                self.deliver_down()
            elif beats and not self.ended:
                # Nothing to do but to let a heartbeat pass, with what it has to tell.
                beats -= 1
                self.consumer.world.now = Millis(
                    max(self.pulling.deadline() - self.consumer.skew, self.consumer.world.now)
                )
            else:
                break
        self.close()
        return delivered

    def close(self) -> None:
        self.poll()
        self.pulling.fail("closed")
        self.serving.fail("closed")


def pull(consumer: Site, supplier: Site, batches: int | None = None, **settings: int) -> Stream:
    """One whole stream: until the consumer has everything, or has received so many batches or ranges."""
    stream = Stream(consumer, supplier, **settings)
    stream.run(batches)
    return stream


def one_by_one(consumer: Site, supplier: Site, batches: int) -> Stream:
    """So many batches of one register each, then the stream breaks."""
    return pull(consumer, supplier, batches, batch_bytes=1, window=1)


def sync(*sites: Site, rounds: int = 4) -> None:
    """Let every site pull from every other, some rounds."""
    for _ in range(rounds):
        for consumer in sites:
            for supplier in sites:
                if consumer is not supplier:
                    pull(consumer, supplier)


def in_snapshot(site: Site, look: Callable[[Snapshot], object]) -> object:
    with site.storage.snapshot() as snapshot:
        return look(snapshot)
