"""Giving room back to the disk: the file is written anew, and nothing is lost on the way."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from replica.core.storage import StorageClosed, StorageError, StoreGone, Table, Transaction
from replica.storage.lmdb_map import map_store
from replica.storage.lmdb_rewrite import Rewriting
from replica.storage.lmdb_store import LmdbStorage
from tests.storage.children import lines, numbers, start
from tests.storage.contract import fill, rows

Content = Mapping[Table, list[tuple[bytes, bytes]]]
FILES = {"data.mdb", "lock.mdb", "ricordo-store.json", "ricordo.lock"}


def content(store: LmdbStorage) -> Content:
    return {table: rows(store, table) for table in Table}


def churn(store: LmdbStorage, chance: random.Random, transactions: int, keys: int) -> None:
    """Write and delete rows of all sizes, also such as take pages of their own, in several tables."""
    tables = (Table.REGISTERS, Table.CHANGES, Table.REQUESTS)

    def work(transaction: Transaction) -> None:
        for _ in range(50):
            table, key = chance.choice(tables), b"%06d" % chance.randrange(keys)
            if chance.random() < 0.3:
                transaction.delete(table, key)
            else:
                size = 9000 if chance.random() < 0.01 else chance.randrange(600)
                transaction.put(table, key, chance.randbytes(size))

    for _ in range(transactions):
        store.run(work)


def filled_anew(place: Path, found: Content) -> int:
    """How long the file of a new store with these rows is."""
    store = LmdbStorage.open(place)
    with store.transaction() as transaction:
        for table, found_rows in found.items():
            for key, value in found_rows:
                transaction.put(table, key, value)
    size = store.stats().file_bytes
    store.close()
    return size


def test_a_store_that_was_written_to_for_long_becomes_as_small_as_a_new_one(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path / "old")
    churn(store, random.Random(1), 200, 1000)
    before = content(store)
    wasted = store.stats().file_bytes
    assert store.shrink()
    assert content(store) == before
    anew = filled_anew(tmp_path / "new", before)
    assert store.stats().file_bytes <= 1.1 * anew < 0.7 * wasted
    assert {path.name for path in (tmp_path / "old").iterdir()} == FILES
    churn(store, random.Random(2), 5, 1000)
    after = content(store)
    store.close()
    store = LmdbStorage.open(tmp_path / "old", create=False)
    assert content(store) == after
    store.close()


def test_over_and_over_it_stays_within_half_as_much_again(tmp_path: Path) -> None:
    """Whatever is written between, and however little of it: what is asked for is asked each time."""
    store = LmdbStorage.open(tmp_path / "old")
    chance = random.Random(3)
    for number in range(12):
        churn(store, chance, chance.choice((1, 3, 20)), chance.choice((300, 1500)))
        store.shrink()
        found = content(store)
        assert store.stats().file_bytes <= 1.5 * filled_anew(tmp_path / f"{number}", found)
    store.close()


def test_rows_that_became_small_are_noticed_although_as_many_are_there(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path)

    def write(size: int) -> None:
        # A few at a time, so that the file does not grow for it.
        for first in range(0, 1000, 20):
            with store.transaction() as transaction:
                for number in range(first, first + 20):
                    transaction.put(Table.REGISTERS, b"%06d" % number, bytes(size))

    write(1000)
    store.run(lambda transaction: transaction.put(Table.META, b"large", bytes(1 << 21)))
    store.run(lambda transaction: transaction.delete(Table.META, b"large"))
    assert store.shrink()
    large = store.stats().file_bytes
    assert not store.shrink()
    write(100)
    assert store.shrink()
    assert store.stats().file_bytes < 0.2 * large
    store.close()


def test_a_store_in_full_pages_is_left_alone(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path)
    with store.transaction() as transaction:
        for number in range(20_000):
            transaction.put(Table.REGISTERS, b"%06d" % number, bytes(100))
    file = (tmp_path / "data.mdb").stat().st_ino
    assert not store.shrink()
    assert (tmp_path / "data.mdb").stat().st_ino == file
    store.close()


def test_what_is_written_during_the_copy_is_copied_after(tmp_path: Path) -> None:
    LmdbStorage.open(tmp_path).close()
    old = map_store(tmp_path, 1 << 26, None)
    registers = old.tables[Table.REGISTERS]
    with old.environment.begin(write=True) as transaction:
        for key in (b"a", b"b", b"c"):
            transaction.put(key, b"old", db=registers)
    rewriting = Rewriting(tmp_path, (1 << 26,))
    with old.environment.begin(buffers=True) as source:
        assert rewriting.copy(source, old.tables, lambda: False)
    with old.environment.begin(write=True) as transaction:
        transaction.put(b"a", b"new", db=registers)
        transaction.delete(b"b", db=registers)
        transaction.put(b"d", b"added", db=registers)
    with old.environment.begin(buffers=True) as source:
        rewriting.catch_up(source, old.tables, [(Table.REGISTERS, key) for key in (b"a", b"b", b"d", b"e")])
    new = rewriting.take_place()
    rewriting.abandon()
    old.environment.close()
    new.environment.close()
    store = LmdbStorage.open(tmp_path)
    assert rows(store, Table.REGISTERS) == [(b"a", b"new"), (b"c", b"old"), (b"d", b"added")]
    store.close()


def test_a_copy_that_was_interrupted_leaves_everything_as_it_was(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path)
    churn(store, random.Random(4), 20, 1000)
    before = content(store)
    store.close()
    old = map_store(tmp_path, 1 << 26, None)
    rewriting = Rewriting(tmp_path, (1 << 26,))
    with old.environment.begin(buffers=True) as source:
        assert not rewriting.copy(source, old.tables, lambda: True)
    rewriting.abandon()
    old.environment.close()
    assert {path.name for path in tmp_path.iterdir()} == FILES
    store = LmdbStorage.open(tmp_path)
    assert content(store) == before
    store.close()


def test_others_write_and_read_meanwhile_and_nothing_is_lost(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path)
    churn(store, random.Random(5), 100, 5000)
    model: dict[bytes, bytes] = {}
    ended = threading.Event()

    def write() -> None:
        chance = random.Random(6)
        while not ended.is_set():
            key, value = b"%04d" % chance.randrange(3000), chance.randbytes(chance.randrange(500))

            def work(transaction: Transaction, key: bytes = key, value: bytes = value) -> None:
                assert transaction.get(Table.META, key) == model.get(key)
                transaction.put(Table.META, key, value)

            store.run(work)
            model[key] = value

    def read() -> None:
        while not ended.is_set():
            with store.snapshot() as snapshot:
                assert len(list(snapshot.items(Table.META))) == snapshot.count(Table.META)

    shrunk, chance = 0, random.Random(7)
    with ThreadPoolExecutor() as pool:
        others = [pool.submit(write), pool.submit(read)]
        try:
            while shrunk < 10 and not any(other.done() for other in others):
                churn(store, chance, 10, 5000)
                shrunk += store.shrink()
        finally:
            ended.set()
        for other in others:
            other.result()
    assert dict(rows(store)) == model
    store.close()
    store = LmdbStorage.open(tmp_path)
    assert dict(rows(store)) == model
    store.close()


def test_who_holds_a_snapshot_keeps_the_old_file_and_what_is_seen(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path)
    churn(store, random.Random(8), 100, 1000)
    before = content(store)
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with store.snapshot() as snapshot:
            held.set()
            let_go.wait()
            assert list(snapshot.items(Table.REGISTERS)) == before[Table.REGISTERS]

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    assert not store.shrink()
    assert {path.name for path in tmp_path.iterdir()} == FILES
    let_go.set()
    holder.join()
    assert content(store) == before
    assert store.shrink()
    assert content(store) == before
    store.close()


def test_a_thread_that_would_wait_for_itself_is_told_so(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path)
    churn(store, random.Random(9), 100, 1000)
    before = content(store)
    with store.snapshot(), pytest.raises(StorageError, match="this thread has a snapshot"):
        store.shrink()
    with store.transaction(), pytest.raises(StorageError, match="this thread has a transaction open"):
        store.shrink()
    assert content(store) == before
    assert store.shrink()
    store.close()
    with pytest.raises(StorageClosed):
        store.shrink()


def test_a_store_can_be_closed_at_any_moment_of_it(tmp_path: Path) -> None:
    chance = random.Random(10)
    for number in range(8):
        store = LmdbStorage.open(tmp_path)
        churn(store, chance, 20, 2000)
        before = content(store)
        shrinking = threading.Thread(target=shrink_until_closed, args=(store,))
        shrinking.start()
        for _ in range(number):
            fill(store, b"%d" % number)
        store.close()
        shrinking.join()
        store = LmdbStorage.open(tmp_path, create=False)
        assert {**content(store), Table.META: []} == {**before, Table.META: []}
        store.close()


def shrink_until_closed(store: LmdbStorage) -> None:
    try:
        while True:
            store.shrink()
    except StorageClosed:
        pass


def test_what_an_unfinished_copy_left_behind_is_removed(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path)
    fill(store, b"a")
    store.close()
    for name in ("data.new", "data.new-lock"):
        (tmp_path / name).write_bytes(b"half a file")
    store = LmdbStorage.open(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert rows(store) == [(b"a", b"A")]
    store.close()


def test_a_store_that_took_the_place_of_this_one_is_left_alone(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path / "data")
    churn(store, random.Random(12), 100, 1000)
    (tmp_path / "data").rename(tmp_path / "moved")
    other = LmdbStorage.open(tmp_path / "data")
    fill(other, b"a")
    with pytest.raises(StoreGone):
        store.shrink()
    assert rows(other) == [(b"a", b"A")]
    other.close()
    other = LmdbStorage.open(tmp_path / "data", create=False)
    assert rows(other) == [(b"a", b"A")]
    other.close()
    store.close()


def test_without_room_for_the_copy_everything_stays_as_it_is(tmp_path: Path) -> None:
    full, shrunk = lines("shrink_in_little_room", tmp_path)
    assert full.startswith("full ")
    assert "make room" in full
    assert shrunk == "shrunk True"


def test_a_smaller_map_does_where_there_is_no_address_space_for_two(tmp_path: Path) -> None:
    shrunk, mapped = lines("shrink_in_little_address_space", tmp_path)
    assert shrunk == "shrunk True"
    assert int(mapped.split()[1]) < 1 << 27


def test_killed_at_any_moment_of_it_every_acknowledged_row_is_there(tmp_path: Path) -> None:
    chance = random.Random(11)
    acknowledged, shrunk = -1, 0
    for _ in range(6):
        with start("count_up_and_shrink", tmp_path) as writer:
            assert writer.stdout is not None
            said: list[str] = [writer.stdout.readline() for _ in range(chance.randrange(100, 400))]
            writer.send_signal(signal.SIGKILL)
            said += writer.stdout.read().splitlines(keepends=True)
        # A line may be cut short.
        whole = [line.strip() for line in said if line.endswith("\n")]
        shrunk += whole.count("shrunk")
        acknowledged = max([acknowledged, *(int(line) for line in whole if line != "shrunk")])
        store = LmdbStorage.open(tmp_path)
        found = numbers(store)
        assert found in (list(range(acknowledged + 1)), list(range(acknowledged + 2)))
        store.close()
    assert shrunk > 0
