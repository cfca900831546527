"""When the map, the address space or the disk is full: nothing acknowledged is lost, and reads go on."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from replica.core.storage import StorageFull, Table, Transaction
from replica.storage.lmdb_store import LmdbStorage
from tests.storage.children import lines, numbers
from tests.storage.contract import META, RefusedError, fill, rows, together

MEBIBYTE = 1 << 20


def putting(key: bytes, size: int) -> Callable[[Transaction], None]:
    return lambda transaction: transaction.put(META, key, bytes(size))


def test_the_map_grows_under_readers(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path, map_size=1)
    before = store.stats().map_bytes
    done = threading.Event()

    def write() -> None:
        try:
            for number in range(100):
                store.run(putting(b"%03d" % number, MEBIBYTE // 10))
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            with store.snapshot() as snapshot:
                count = snapshot.count(META)
                newest = list(islice(snapshot.items(META, reverse=True), 3))
                assert [int(key) for key, _ in newest] == list(range(count - 1, max(count - 4, -1), -1))
                assert all(len(value) == MEBIBYTE // 10 for _, value in newest)

    together(write, read, read)
    assert store.stats().map_bytes >= 8 * before
    assert len(rows(store)) == 100
    store.close()


def test_a_transaction_that_found_the_map_full_succeeds_when_it_is_tried_again(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path, map_size=1)

    def attempt() -> None:
        with store.transaction() as transaction:
            transaction.put(META, b"a", b"1")
            transaction.put(META, b"b", bytes(MEBIBYTE))

    with pytest.raises(StorageFull, match=r"has been grown.*try again"):
        attempt()
    assert rows(store) == []
    attempt()
    assert len(rows(store)) == 2
    store.close()


def test_work_that_hides_the_full_map_is_run_again_all_the_same(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path, map_size=1)
    attempts = []

    def work(transaction: Transaction) -> str:
        attempts.append(1)
        try:
            transaction.put(META, b"a", bytes(MEBIBYTE))
        except StorageFull:
            return "hidden"
        return "written"

    assert store.run(work) == "written"
    assert len(attempts) > 1
    assert len(rows(store)) == 1
    store.close()


def test_work_that_fails_because_of_the_full_map_is_run_again(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path, map_size=1)

    def work(transaction: Transaction) -> str:
        try:
            transaction.put(META, b"a", bytes(MEBIBYTE))
        except StorageFull:
            raise RefusedError from None
        return "written"

    assert store.run(work) == "written"
    store.close()


def test_the_map_does_not_move_under_a_snapshot(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path, map_size=1, patience=0)
    fill(store, b"a")
    with store.snapshot() as snapshot:
        iteration = snapshot.items(META)
        with pytest.raises(StorageFull, match="while snapshots are open"):
            store.run(putting(b"b", MEBIBYTE))
        failures: list[StorageFull] = []

        def elsewhere() -> None:
            try:
                store.run(putting(b"b", MEBIBYTE))
            except StorageFull as error:
                failures.append(error)

        together(elsewhere)
        assert len(failures) == 1
        assert list(iteration) == [(b"a", b"A")]
    store.run(putting(b"b", MEBIBYTE))
    assert len(rows(store)) == 2
    store.close()


def test_growing_waits_for_a_snapshot_to_end_and_lets_its_holder_write(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path, map_size=1, patience=60)
    held, tried = threading.Event(), threading.Event()

    def hold() -> None:
        with store.snapshot() as snapshot:
            held.set()
            tried.wait()
            # The other thread waits for this snapshot to end, or will; this one must not wait for it.
            store.run(lambda transaction: transaction.put(META, b"held", b"1"))
            assert snapshot.count(META) == 0

    def grow() -> None:
        held.wait()

        def work(transaction: Transaction) -> None:
            tried.set()
            transaction.put(META, b"large", bytes(4 * MEBIBYTE))

        store.run(work)

    together(hold, grow)
    assert [key for key, _ in rows(store)] == [b"held", b"large"]
    store.close()


def test_a_store_at_its_limit_refuses_and_goes_on_reading(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path, map_size=1, map_limit=2 * MEBIBYTE)
    accepted: list[int] = []

    def fill_up() -> None:
        while True:
            store.run(putting(b"%06d" % len(accepted), 10_000))
            accepted.append(len(accepted))

    with pytest.raises(StorageFull, match=r"limit of 2097152 bytes.*raise the limit"):
        fill_up()
    assert store.stats().map_bytes == 2 * MEBIBYTE
    assert [key for key, _ in rows(store)] == [b"%06d" % number for number in accepted]
    store.close()
    store = LmdbStorage.open(tmp_path)
    assert len(rows(store)) == len(accepted)
    store.run(putting(b"more", MEBIBYTE))
    store.close()


def test_with_little_address_space_a_store_opens_and_grows_as_far_as_it_goes(tmp_path: Path) -> None:
    said = lines("little_address_space", tmp_path)
    assert int(said[0].split()[1]) < 1 << 28
    assert said[1].startswith("full the memory map is full at")
    assert "ulimit -v" in said[1]
    assert said[2].startswith("went on")


def test_with_limited_address_space_a_store_leaves_most_of_it_to_the_rest(tmp_path: Path) -> None:
    reserved, limit = map(int, lines("address_space", tmp_path))
    assert reserved <= limit // 4


def test_at_the_limit_on_file_sizes_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    said = lines("limited_file", tmp_path)
    acknowledged = [int(line) for line in said if line.isdigit()]
    refusals = [line for line in said if line.startswith("full")]
    assert len(acknowledged) > 10
    assert len(refusals) == 2
    assert all("the disk refuses more data" in line and "nothing was written" in line for line in refusals)
    store = LmdbStorage.open(tmp_path)
    assert numbers(store) == list(range(int(said[-1].removeprefix("went on ")) + 1))
    store.close()


def test_on_a_full_disk_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    alone = ("unshare", "--mount")
    try:
        subprocess.run([*alone, "mount", "-t", "tmpfs", "tmpfs", tmp_path], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a file system of its own")
    said = lines("full_disk", tmp_path, prefix=alone)
    assert said[1].startswith("refused")
    assert "No space left" in said[1]
    assert sum(line.startswith("full the disk refuses more data") for line in said) == 2
    assert said[-1].startswith("went on")


def test_a_write_that_is_too_large_does_not_stop_later_ones(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path, map_limit=MEBIBYTE)
    fill(store, b"a", table=Table.CLOCK)
    with pytest.raises(StorageFull):
        store.run(putting(b"a", 2 * MEBIBYTE))
    fill(store, b"b", table=Table.CLOCK)
    assert rows(store, Table.CLOCK) == [(b"a", b"A"), (b"b", b"B")]
    store.close()
