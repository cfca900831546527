"""Group commit: what callers may rely on, over either store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from replica.core.storage import Storage, StorageClosed, StorageError, StorageFull, Table, Transaction
from replica.storage.group_commit import GroupCommit
from replica.storage.lmdb_store import LmdbStorage
from replica.storage.memory import MemoryStorage
from tests.storage.contract import META, RefusedError, rows

T = TypeVar("T")


class Watched:
    """A store that counts commits, holds them up, and fails them as told."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.commits = 0
        self.open = threading.Event()
        """Commits wait until this is set."""
        self.open.set()
        self.reached = threading.Event()
        """Set once a commit waits, or went on."""
        self.fault: Callable[[], None] = lambda: None
        """Called before each transaction; may raise."""
        self.snapshot = storage.snapshot
        self.transaction = storage.transaction
        self.close = storage.close

    def run(self, work: Callable[[Transaction], T]) -> T:
        self.reached.set()
        self.open.wait()
        self.fault()
        result = self.storage.run(work)
        self.commits += 1
        return result


@pytest.fixture(params=["memory", "lmdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    storage: Storage = MemoryStorage() if request.param == "memory" else LmdbStorage.open(tmp_path / "data")
    yield Watched(storage)
    storage.close()


@pytest.fixture
async def writer(store: Watched) -> AsyncIterator[GroupCommit]:
    commit = GroupCommit(store)
    yield commit
    store.open.set()
    await commit.close()


def putting(key: bytes, value: bytes = b"1") -> Callable[[Transaction], bytes]:
    def work(transaction: Transaction) -> bytes:
        transaction.put(META, key, value)
        return key

    return work


def refused_after(*keys: bytes) -> Callable[[Transaction], None]:
    """Work that writes `keys` and then fails."""

    def work(transaction: Transaction) -> None:
        for key in keys:
            transaction.put(META, key, b"never")
        raise RefusedError

    return work


async def held_up(store: Watched, writer: GroupCommit) -> asyncio.Task[bytes]:
    """A first submission whose commit has begun and waits: what is submitted now goes into the next one."""
    store.open.clear()
    store.reached.clear()
    first = asyncio.create_task(writer.submit(putting(b"first")))
    await asyncio.to_thread(store.reached.wait)
    return first


async def settled(tasks: list[asyncio.Task[T]]) -> None:
    """Let every task run up to where it waits."""
    for _ in range(2 * len(tasks) + 10):
        await asyncio.sleep(0)


async def test_an_answer_means_that_the_write_is_committed(store: Watched, writer: GroupCommit) -> None:
    assert await writer.submit(putting(b"a")) == b"a"
    assert rows(store) == [(b"a", b"1")]


async def test_nothing_is_answered_before_its_commit(store: Watched, writer: GroupCommit) -> None:
    first = await held_up(store, writer)
    assert not first.done()
    store.open.set()
    assert await first == b"first"


async def test_a_thousand_concurrent_writes_of_one_key_all_count(store: Watched, writer: GroupCommit) -> None:
    def add(transaction: Transaction) -> int:
        value = int(transaction.get(META, b"sum") or b"0") + 1
        transaction.put(META, b"sum", b"%d" % value)
        return value

    answers = await asyncio.gather(*(writer.submit(add) for _ in range(1000)))
    assert answers == list(range(1, 1001))
    assert rows(store) == [(b"sum", b"1000")]
    assert store.commits <= 1000 // 256 + 2


async def test_more_writers_than_places_all_get_their_turn_in_order(store: Watched) -> None:
    writer = GroupCommit(store, max_batch=4, max_waiting=8)
    first = await held_up(store, writer)
    order: list[int] = []

    def noting(number: int) -> Callable[[Transaction], None]:
        return lambda transaction: order.append(number)

    tasks = [asyncio.create_task(writer.submit(noting(number))) for number in range(100)]
    await settled(tasks)
    store.open.set()
    await asyncio.gather(first, *tasks)
    assert order == list(range(100))
    assert store.commits == 26
    await writer.close()


async def test_what_is_submitted_during_a_commit_shares_the_next(store: Watched, writer: GroupCommit) -> None:
    first = await held_up(store, writer)
    tasks = [asyncio.create_task(writer.submit(putting(b"%03d" % number))) for number in range(100)]
    await settled(tasks)
    store.open.set()
    await asyncio.gather(first, *tasks)
    assert store.commits == 2
    assert len(rows(store)) == 101


@pytest.mark.parametrize("spoilt", [False, True], ids=["before writing", "after writing"])
async def test_a_refused_neighbour_changes_nothing(store: Watched, writer: GroupCommit, spoilt: bool) -> None:
    first = await held_up(store, writer)
    keys = (b"005", b"x") if spoilt else ()
    works: list[Callable[[Transaction], bytes | None]] = [putting(b"%03d" % number) for number in range(20)]
    works[3] = works[11] = works[19] = refused_after(*keys)
    tasks = [asyncio.create_task(writer.submit(work)) for work in works]
    await settled(tasks)
    store.open.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    await first
    refused = [number for number, answer in enumerate(answers) if isinstance(answer, RefusedError)]
    assert refused == [3, 11, 19]
    written = [(b"%03d" % number, b"1") for number in range(20) if number not in refused]
    assert rows(store) == [*written, (b"first", b"1")]


async def test_work_never_sees_what_a_refused_neighbour_wrote(store: Watched, writer: GroupCommit) -> None:
    first = await held_up(store, writer)
    bad = asyncio.create_task(writer.submit(refused_after(b"a")))
    look = asyncio.create_task(writer.submit(lambda transaction: transaction.get(META, b"a")))
    await settled([bad])
    store.open.set()
    with pytest.raises(RefusedError):
        await bad
    assert await look is None
    await first


async def test_even_an_exception_that_futures_do_not_take_is_answered(
    store: Watched, writer: GroupCommit
) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await writer.submit(lambda transaction: next(transaction.items(META)))
    assert await writer.submit(putting(b"a")) == b"a"


async def test_cancelled_before_its_transaction_it_is_never_run(store: Watched, writer: GroupCommit) -> None:
    first = await held_up(store, writer)
    gone = asyncio.create_task(writer.submit(putting(b"gone")))
    stays = asyncio.create_task(writer.submit(putting(b"stays")))
    await settled([gone])
    gone.cancel()
    store.open.set()
    await asyncio.gather(first, stays)
    assert gone.cancelled()
    assert rows(store) == [(b"first", b"1"), (b"stays", b"1")]


async def test_cancelled_during_its_commit_it_is_written_and_others_are_answered(
    store: Watched, writer: GroupCommit
) -> None:
    store.open.clear()
    store.reached.clear()
    gone = asyncio.create_task(writer.submit(putting(b"gone")))
    stays = asyncio.create_task(writer.submit(putting(b"stays")))
    await asyncio.to_thread(store.reached.wait)
    gone.cancel()
    store.open.set()
    assert await stays == b"stays"
    assert gone.cancelled()
    assert rows(store) == [(b"gone", b"1"), (b"stays", b"1")]


async def test_cancelled_while_waiting_for_room_it_leaves_no_trace(store: Watched) -> None:
    writer = GroupCommit(store, max_waiting=1)
    first = await held_up(store, writer)
    tasks = [asyncio.create_task(writer.submit(putting(b"%d" % number))) for number in range(3)]
    await settled(tasks)
    tasks[2].cancel()
    store.open.set()
    await asyncio.gather(first, *tasks[:2])
    await writer.close()
    assert [key for key, _ in rows(store)] == [b"0", b"1", b"first"]


async def test_a_full_store_fails_the_large_and_not_the_small(tmp_path: Path) -> None:
    store = Watched(LmdbStorage.open(tmp_path / "data", map_limit=1 << 20))
    writer = GroupCommit(store)
    first = await held_up(store, writer)
    works = [putting(b"%03d" % number) for number in range(30)]
    works[7] = putting(b"large", bytes(1 << 21))
    tasks = [asyncio.create_task(writer.submit(work)) for work in works]
    await settled(tasks)
    store.open.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    await first
    assert [number for number, answer in enumerate(answers) if isinstance(answer, StorageFull)] == [7]
    assert len(rows(store)) == 30
    await writer.close()
    store.close()


async def test_a_write_that_was_refused_because_of_one_that_did_not_fit_is_judged_anew() -> None:
    refusals = iter([False, True, True, False])
    store = Watched(MemoryStorage(refuse_commit=lambda: next(refusals)))
    writer = GroupCommit(store)
    first = await held_up(store, writer)

    def create(transaction: Transaction) -> str:
        if transaction.get(META, b"name") is not None:
            raise RefusedError
        transaction.put(META, b"name", b"created")
        return "created"

    tasks = [asyncio.create_task(writer.submit(create)) for _ in range(2)]
    await settled(tasks)
    store.open.set()
    # Together they do not fit, and neither does the first alone, which the second had been refused for.
    with pytest.raises(StorageFull):
        await tasks[0]
    assert await tasks[1] == "created"
    await first
    await writer.close()


async def test_what_is_too_much_for_one_transaction_is_written_in_several() -> None:
    class Narrow:
        """A transaction that takes three writes."""

        def __init__(self, transaction: Transaction) -> None:
            self.get, self.items, self.count = transaction.get, transaction.items, transaction.count
            self.delete = transaction.delete
            self.inner = transaction

        @property
        def writes(self) -> int:
            return self.inner.writes

        def put(self, table: Table, key: bytes, value: bytes) -> None:
            if self.writes == 3:
                raise StorageFull("too large")
            self.inner.put(table, key, value)

    class NarrowStore(Watched):
        def run(self, work: Callable[[Transaction], T]) -> T:
            return super().run(lambda transaction: work(Narrow(transaction)))

    store = NarrowStore(MemoryStorage())
    writer = GroupCommit(store)
    first = await held_up(store, writer)
    tasks = [asyncio.create_task(writer.submit(putting(b"%d" % number))) for number in range(9)]
    await settled(tasks)
    store.open.set()
    await asyncio.gather(first, *tasks)
    assert len(rows(store)) == 10
    await writer.close()


async def test_when_every_commit_fails_for_want_of_room_every_caller_hears_of_it(tmp_path: Path) -> None:
    full = True
    store = MemoryStorage(refuse_commit=lambda: full)
    writer = GroupCommit(store)
    tasks = (writer.submit(putting(b"%d" % number)) for number in range(50))
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(answer, StorageFull) for answer in answers)
    assert rows(store) == []
    full = False
    assert await writer.submit(putting(b"a")) == b"a"
    await writer.close()


async def test_an_unexpected_failure_is_told_to_all_and_the_writer_goes_on(
    store: Watched, writer: GroupCommit, caplog: pytest.LogCaptureFixture
) -> None:
    def fault() -> None:
        raise MemoryError

    store.fault = fault
    tasks = (writer.submit(putting(b"%d" % number)) for number in range(5))
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(answer, StorageError) for answer in answers)
    assert "the writer failed" in caplog.text
    store.fault = lambda: None
    assert await writer.submit(putting(b"a")) == b"a"


async def test_a_failure_does_not_touch_what_was_committed_before_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = iter([False, True, False])
    store = Watched(MemoryStorage(refuse_commit=lambda: next(refusals)))
    writer = GroupCommit(store)
    first = await held_up(store, writer)
    tasks = [asyncio.create_task(writer.submit(putting(b"%d" % number))) for number in range(2)]
    await settled(tasks)
    runs: list[int] = []

    def fault() -> None:
        runs.append(len(runs))
        # The first commit, the two together, one of them; then the other.
        if len(runs) == 4:
            raise MemoryError

    store.fault = fault
    store.open.set()
    assert await tasks[0] == b"0"
    with pytest.raises(StorageError, match="not known"):
        await tasks[1]
    await first
    await writer.close()


async def test_callbacks_hear_of_commits_that_wrote_something(store: Watched, writer: GroupCommit) -> None:
    heard: list[int] = []
    writer.on_commit(lambda: heard.append(store.commits))
    await writer.submit(putting(b"a"))
    assert heard == [1]
    await writer.submit(lambda transaction: transaction.get(META, b"a"))
    with pytest.raises(RefusedError):
        await writer.submit(refused_after())
    with pytest.raises(RefusedError):
        await writer.submit(refused_after(b"b"))
    assert heard == [1]


async def test_transactions_and_the_writes_they_held_are_counted(store: Watched, writer: GroupCommit) -> None:
    assert (writer.transactions, writer.writes) == (0, 0)
    first = await held_up(store, writer)
    others = [asyncio.create_task(writer.submit(putting(key))) for key in (b"a", b"b")]
    refused = asyncio.create_task(writer.submit(refused_after(b"c")))
    reading = asyncio.create_task(writer.submit(lambda transaction: transaction.get(META, b"a")))
    await settled([first, *others])
    store.open.set()
    await asyncio.gather(first, *others, reading)
    with pytest.raises(RefusedError):
        await refused
    assert (writer.transactions, writer.writes) == (2, 3)


async def test_a_failing_callback_fails_no_write(
    store: Watched, writer: GroupCommit, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def fail() -> None:
        raise RefusedError

    writer.on_commit(fail)
    writer.on_commit(lambda: heard.append("second"))
    assert await writer.submit(putting(b"a")) == b"a"
    assert heard == ["second"]
    assert "callback failed" in caplog.text


async def test_close_drains_what_was_submitted_and_takes_no_more(store: Watched) -> None:
    writer = GroupCommit(store, max_batch=3, max_waiting=5)
    first = await held_up(store, writer)
    tasks = [asyncio.create_task(writer.submit(putting(b"%02d" % number))) for number in range(20)]
    await settled(tasks)
    closing = asyncio.create_task(writer.close())
    await settled([closing])
    assert not closing.done()
    with pytest.raises(StorageClosed, match="stopping"):
        await writer.submit(putting(b"late"))
    store.open.set()
    await closing
    assert all(task.done() for task in [first, *tasks])
    assert len(rows(store)) == 21
    await writer.close()


async def test_close_waits_for_a_caller_that_waits_for_room(store: Watched) -> None:
    writer = GroupCommit(store, max_waiting=1)
    first = await held_up(store, writer)
    tasks = [asyncio.create_task(writer.submit(putting(b"%d" % number))) for number in range(2)]
    await settled(tasks)
    # What is in the queue has gone when its turn comes; what waits for its place has not.
    tasks[0].cancel()
    closing = asyncio.create_task(writer.close())
    await settled([closing])
    store.open.set()
    await closing
    assert tasks[1].done()
    assert await tasks[1] == b"1"
    await first


async def test_close_waits_for_a_commit_whose_caller_has_gone(store: Watched) -> None:
    writer = GroupCommit(store)
    first = await held_up(store, writer)
    first.cancel()
    closing = asyncio.create_task(writer.close())
    await settled([closing])
    assert not closing.done()
    store.open.set()
    await closing
    assert rows(store) == [(b"first", b"1")]


async def test_work_runs_again_when_the_map_has_to_grow(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path / "data", map_size=1)
    writer = GroupCommit(store)
    before = store.stats().map_bytes
    value = bytes(1 << 18)
    await asyncio.gather(*(writer.submit(putting(b"%02d" % number, value)) for number in range(40)))
    assert store.stats().map_bytes > before
    with store.snapshot() as snapshot:
        assert snapshot.count(Table.META) == 40
    await writer.close()
    store.close()
