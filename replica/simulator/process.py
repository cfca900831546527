"""One replica of a simulated fleet: its disk, its clock, and what runs between them.

It is the shell of a replica without sockets and timers: it drives the very sessions that a server drives
(:mod:`replica.core.session`), over a store in memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from crdt.dot import Dot, Millis
from crdt.register import Register
from replica.core.damage import damaged_keys, fetch, heal, note_damage
from replica.core.doubt import doubt_at_start, settle
from replica.core.identity import Identity, begin_store
from replica.core.membership import clock_stepped, configure, slowest, wake
from replica.core.messages import Answer, Fetched, Question
from replica.core.node import Node
from replica.core.policy import TtlPolicy
from replica.core.rows import get_clock, read_register, registers
from replica.core.session import Attendance, Settings
from replica.core.storage import DamagedRow, Table, Transaction
from replica.core.supplier import answer
from replica.core.underway import refresh
from replica.simulator.calls import Call, Caller
from replica.simulator.oracle import Seen
from replica.storage.memory import MemoryStorage

__all__ = ["EPOCH", "Copy", "Process"]

_T = TypeVar("_T")

EPOCH = 1_700_000_000_000
"""When a run begins."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a replica's disk."""

    storage: MemoryStorage
    seen: Seen
    """What the replica had seen by then, as the oracle knows it."""
    start: Seen | None
    """See `Process.start_seen`."""


class Process:
    """A replica, from its first start on; what it keeps in memory is lost at every crash."""

    def __init__(
        self,
        name: str,
        peers: Iterable[str],
        settings: Settings,
        policy: TtlPolicy,
        skew: int,
        chance: random.Random,
    ) -> None:
        self.name = name
        self.peers = tuple(peers)
        self.settings = settings
        self.skew = skew
        """How far its clock is ahead."""
        self.latest = EPOCH + skew
        """The latest time that its clock has shown."""
        self.refusals = 0
        """So many commits will find the disk full."""
        self.version = 0
        """Grows with every commit."""
        self.copy: Copy | None = None
        self.last: Call | None = None
        """The last call that was answered with success, in this life of its disk."""
        self.start_seen: Seen | None = None
        """What the supplier of the reconcile that is under way had seen when it began."""
        self.entropy: Callable[[int], bytes] = chance.randbytes
        self._policy = policy
        self._suspect = False
        self.storage = self._disk()
        self.attendance = Attendance()
        self.identity = self._begin(self.now(EPOCH))

    def now(self, time: int) -> Millis:
        """The replica's clock at a moment of the fleet's time."""
        shown = time + self.skew
        self.latest = max(self.latest, shown)
        return Millis(shown)

    def turn(self, skew: int) -> None:
        """Step the clock; the replica notices, as a server does that also counts the time that passes."""
        step = Millis(skew - self.skew)
        self.skew = skew
        self.run(lambda transaction: clock_stepped(transaction, step))

    def caller(self, now: Millis) -> Caller:
        """The replica as its clients meet it."""
        with self.storage.snapshot() as snapshot:
            slow = slowest(snapshot, now, self.settings.max_silence)
        return Caller(self.name, self.storage, Node(self.identity, self._policy), now, slow)

    def run(self, work: Callable[[Transaction], _T]) -> _T:
        """Commit a piece of work. Raises what the work raises, and StorageFull."""
        return self.storage.run(work)

    # --- starting

    def wipe(self, now: Millis) -> None:
        """Lose the disk, and start on an empty one."""
        self.storage = self._disk()
        self.refusals = 0
        self.last, self.start_seen, self._suspect = None, None, False
        self.attendance = Attendance()
        self.identity = self._begin(now)

    def keep_copy(self, seen: Seen) -> None:
        """Copy the disk."""
        self.copy = Copy(self.storage.copy(), seen, self.start_seen)

    def restart(
        self, now: Millis, ask: Callable[[Question], Mapping[str, Answer]], copy: Copy | None
    ) -> None:
        """Start again, on the disk as it is or on a copy. ``ask`` puts a question to the peers in reach."""
        if copy is not None:
            self.storage = copy.storage.copy()
            self.last, self.start_seen, self._suspect = None, copy.start, True
        self.attendance = Attendance()
        self.refusals = 0
        self.identity = self._begin(now)
        identity = self.identity
        answers = ask(Question(identity.cluster, identity.incarnation, identity.store_id))
        with self.storage.snapshot() as snapshot:
            doubt = doubt_at_start(snapshot, identity, self.peers, answers)
        if doubt is not None:
            self.identity = self.run(lambda transaction: settle(transaction, doubt, now, self.entropy))

    def answer(self, question: Question) -> Answer:
        """What this replica knows of another one that starts."""
        with self.storage.snapshot() as snapshot:
            return answer(snapshot, self.identity, question)

    # --- damage

    def damage(self, key: bytes) -> None:
        """Flip a bit of a register's row."""
        with self.storage.snapshot() as snapshot:
            row = snapshot.get(Table.REGISTERS, key)
        assert row is not None
        flipped = row[:-1] + bytes([row[-1] ^ 1])
        refusals, self.refusals = self.refusals, 0
        self.run(lambda transaction: transaction.put(Table.REGISTERS, key, flipped))
        self.refusals = refusals
        self._suspect = True

    def repair(self, peers: Iterable[Process]) -> list[tuple[bytes, Register]]:
        """Fetch again from peers what is damaged here; the keys with what stands there now."""
        if not self._suspect:
            return []
        with self.storage.snapshot() as snapshot:
            damaged = [key for key, found in registers(snapshot) if isinstance(found, DamagedRow)]
        self.run(lambda transaction: note_damage(transaction, damaged))
        with self.storage.snapshot() as snapshot:
            keys = damaged_keys(snapshot)
        answers: dict[bytes, list[Fetched]] = {key: [] for key in keys}
        for peer in peers:
            with peer.storage.snapshot() as snapshot:
                for fetched in fetch(snapshot, keys):
                    answers[fetched.key].append(fetched)
        healed = []
        for key, given in answers.items():
            everyone = len(given) == len(self.peers)
            if self.run(partial(heal, key=key, answers=given, everyone=everyone)):
                with self.storage.snapshot() as snapshot:
                    healed.append((key, read_register(snapshot, key)))
        self._suspect = len(healed) < len(keys)
        return healed

    def has_seen(self, dots: Iterable[Dot]) -> bool:
        """Whether the replica has seen writes."""
        with self.storage.snapshot() as snapshot:
            clock = get_clock(snapshot)
        return all(clock.has(dot) for dot in dots)

    def _disk(self) -> MemoryStorage:
        return MemoryStorage(refuse_commit=self._refuse)

    def _refuse(self) -> bool:
        if self.refusals:
            self.refusals -= 1
            return True
        self.version += 1
        return False

    def _begin(self, now: Millis) -> Identity:
        def work(transaction: Transaction) -> Identity:
            identity = begin_store(transaction, self.name, now, self.entropy)
            configure(transaction, identity, self.peers, now)
            wake(transaction, now)
            refresh(transaction, now)
            return identity

        return self.run(work)
