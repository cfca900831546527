"""One peer is down for ever: what the others keep stays bounded by what lives, and purges resume.

Two replicas live on, writing, forgetting and letting lapse, for weeks of virtual time, with the ids that
clients give their requests. Their third peer never answers again. Every row of their stores is counted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cache

import pytest

from crdt.codec import encode_clock
from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import Command, Forget, Remember, Update
from replica.core.membership import slowest
from replica.core.node import Node
from replica.core.purge import Hold, Purged, purge
from replica.core.requests import prune_results
from replica.core.session import Settings
from replica.core.storage import Table, Transaction
from tests.core.replication.small_fleet import Site, Stream, World, sync

HOUR = 3600
DAY = 24 * HOUR
EVERY = 8 * HOUR
MAX_SILENCE = Millis(7 * DAY * 1000)
GRACE = Millis(HOUR * 1000)
LIVE = 24
"""Entries that live on each side, once there are so many."""
WRITES = 4
"""New entries in each round, on each side; as many are forgotten, and as many lapse by themselves."""


@dataclass
class Kept:
    """What a replica keeps at the end of a day."""

    day: int
    rows: dict[Table, int]
    bytes: int
    """Of all rows with their keys."""
    clock_bytes: int
    live: int
    purged: Purged
    """By the last purge of the day."""


@dataclass
class Writer:
    """A replica that agents write to, as clients do: each call with an id of its own."""

    site: Site
    number: int = 0
    alive: deque[EntryKey] = field(default_factory=deque)

    def do(self, command: Command) -> None:
        site = self.site
        node = Node(site.identity)

        def work(transaction: Transaction) -> None:
            now = site.now
            behind = slowest(transaction, now, MAX_SILENCE)
            match command:
                case Remember():
                    node.remember(transaction, command, now, behind)
                case Update():
                    node.update(transaction, command, now, behind)
                case Forget():
                    node.forget(transaction, command, now, behind)

        site.storage.run(work)

    def _id(self) -> str:
        self.number += 1
        return f"{self.site.name}-{self.number:08}"

    def _make(self, ttl: Millis | None) -> EntryKey:
        key = EntryKey.make("r", "t", self._id())
        self.do(Remember(key=key, title="t", body="some text " * 8, ttl=ttl, request_id=self._id()))
        return key

    def live_on(self) -> None:
        """One round: make, change, forget, and make what will lapse."""
        for _ in range(WRITES):
            self.alive.append(self._make(None))
            self._make(Millis(2 * HOUR * 1000))
        for key in list(self.alive)[:WRITES]:
            self.do(Update(key=key, body="other text " * 8, request_id=self._id()))
        while len(self.alive) > LIVE:
            self.do(Forget(key=self.alive.popleft(), request_id=self._id()))

    def compact(self) -> Purged:
        """What a replica does from time to time."""
        site, total, position = self.site, Purged(), None
        while True:
            step = site.storage.run(
                lambda tx, at=position: purge(tx, site.now, MAX_SILENCE, GRACE, at, 50)  # type: ignore[misc]
            )
            total, position = total.plus(step), step.position
            if position is None:
                break
        while site.storage.run(lambda tx: prune_results(tx, site.now, 50)):
            pass
        return total

    def kept(self, day: int, purged: Purged) -> Kept:
        with self.site.storage.snapshot() as snapshot:
            rows = {table: list(snapshot.items(table)) for table in Table}
        return Kept(
            day,
            {table: len(found) for table, found in rows.items()},
            sum(len(key) + len(value) for found in rows.values() for key, value in found),
            len(encode_clock(self.site.clock())),
            len(self.alive),
            purged,
        )


@cache
def without_the_third(days: int = 21) -> tuple[list[list[Kept]], list[set[str]]]:
    """Day by day, what each of the two keeps; and whom each lists in the end."""
    world = World()
    settings = Settings(max_silence=MAX_SILENCE)
    names = ("eu", "us", "gone")
    sites = [Site(world, name, [peer for peer in names if peer != name], settings=settings) for name in names]
    sites[2].remember("left", "behind")
    sync(*sites, rounds=3)
    left = Stream(sites[2], sites[0])
    left.run_open()
    writers = [Writer(site) for site in sites[:2]]
    history: list[list[Kept]] = []
    for day in range(1, days + 1):
        for _ in range(DAY // EVERY):
            world.wait(EVERY)
            for writer in writers:
                writer.live_on()
            sync(*sites[:2], rounds=2)
            purged = [writer.compact() for writer in writers]
        left.poll()
        assert left.serving.ended is not None, "its stream is not kept either"
        history.append([writer.kept(day, each) for writer, each in zip(writers, purged, strict=True)])
    return history, [writer.site.listed() for writer in writers]


def kept_on(*days: int) -> list[Kept]:
    return [kept for day in days for kept in without_the_third()[0][day - 1]]


def test_until_max_silence_removals_wait_for_it_and_for_nobody_else() -> None:
    for kept in kept_on(3, 5, 6):
        assert kept.purged.held.keys() == {("gone", Hold.UNSEEN), ("gone", Hold.SLOW_CLOCK)} or (
            kept.purged.held.keys() == {("gone", Hold.UNSEEN)}
        )
        assert kept.purged.tombstones == kept.purged.expired == 0


def test_after_max_silence_purges_resume_and_what_has_waited_goes() -> None:
    for waiting, kept in zip(kept_on(6), kept_on(21), strict=True):
        assert waiting.rows[Table.TOMBSTONES] > 10 * 2 * WRITES
        # What has just expired became a tombstone, which goes the next time.
        assert kept.rows[Table.TOMBSTONES] <= 2 * WRITES
        assert kept.purged.waiting == 0
        assert kept.purged.listed == ("gone",)
    assert without_the_third()[1] == [{"gone"}, {"gone"}], "and it must reconcile, if it ever comes back"


def test_then_nothing_but_what_lives_is_kept() -> None:
    for kept in kept_on(10, 15, 21):
        # On either side lives as much; what was made to lapse in the last hours is not past the grace yet.
        most = 2 * (LIVE + WRITES) + 2 * WRITES + 1
        assert kept.rows[Table.REGISTERS] <= most


@pytest.mark.parametrize("day", range(1, 22))
def test_the_change_log_has_one_row_a_register_and_no_more(day: int) -> None:
    for kept in kept_on(day):
        registers = kept.rows[Table.REGISTERS]
        assert kept.rows[Table.CHANGES] == registers
        assert kept.rows[Table.EXPIRIES] + kept.rows[Table.TOMBSTONES] <= registers


def test_the_clock_does_not_grow() -> None:
    for kept in kept_on(*range(1, 22)):
        assert kept.rows[Table.CLOCK] == 3, "one for each incarnation that ever wrote"
        assert kept.clock_bytes < 3 * 60


def test_no_table_grows_with_time() -> None:
    """Beyond max_silence, when all is in balance, a day more is no row more, in any table."""
    for early, late in zip(kept_on(12, 12), kept_on(16, 21), strict=True):
        for table in Table:
            assert abs(late.rows[table] - early.rows[table]) <= 8 + 0.1 * early.rows[table], table
        assert late.bytes <= 1.1 * early.bytes


def test_results_of_requests_are_kept_for_ten_minutes_and_no_longer() -> None:
    for kept in kept_on(*range(1, 22)):
        # The last round was just now; the one before, hours ago.
        assert kept.rows[Table.REQUESTS] == kept.rows[Table.REQUEST_TIMES] <= 4 * WRITES + 4


def test_what_is_known_of_members_does_not_grow() -> None:
    for kept in kept_on(*range(1, 22)):
        assert kept.rows[Table.MEMBERS] == 2
        assert kept.rows[Table.CURSORS] <= 2
        assert kept.rows[Table.META] <= 20


def test_a_start_in_doubt_costs_a_row_of_the_clock_once_something_is_written() -> None:
    """While a peer cannot be asked every start is one."""
    world = World()
    site = Site(world, "eu", ["gone"])
    for number in range(5):
        site.remember("k", f"{number}")
        for _ in range(3):
            world.wait(1)
            site.roll_back(site.copy())
    with site.storage.snapshot() as snapshot:
        assert snapshot.count(Table.CLOCK) == 5
        assert snapshot.count(Table.MEMBERS) == 1
