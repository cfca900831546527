"""The store on LMDB: the contract, and that it is there again after it was closed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from replica.core.storage import Snapshot, Storage, StoreDamaged, StoreGone, Table
from replica.storage.lmdb_store import LmdbStorage
from tests.storage.contract import StorageContract, fill, rows


class TestContract(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[Storage]:
        store = LmdbStorage.open(tmp_path / "data")
        yield store
        store.close()


class TestContractWhileTheMapGrows(StorageContract):
    """The same, beginning with the smallest map, so that every large write has to grow it."""

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[Storage]:
        store = LmdbStorage.open(tmp_path / "data", map_size=1)
        yield store
        store.close()

    def test_a_value_of_64_mebibytes_survives(self, storage: Storage) -> None:
        value = bytes(range(256)) * (1 << 18)
        storage.run(lambda transaction: transaction.put(Table.META, b"big", value))
        with storage.snapshot() as snapshot:
            assert snapshot.get(Table.META, b"big") == value


def test_everything_is_there_after_opening_again(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path / "deep" / "data")
    for table in Table:
        fill(store, b"a", table.value.encode(), table=table)
    store.close()
    store = LmdbStorage.open(tmp_path / "deep" / "data", create=False)
    for table in Table:
        name = table.value.encode()
        assert rows(store, table) == [(b"a", b"A"), (name, name.upper())]
    store.close()


def test_a_store_keeps_its_place_when_it_is_moved_and_a_copy_has_another(tmp_path: Path) -> None:
    def place(directory: Path) -> bytes:
        store = LmdbStorage.open(directory)
        fill(store, b"a")
        store.close()
        return store.place

    first = place(tmp_path / "first")
    assert place(tmp_path / "first") == first
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    assert place(tmp_path / "second") != first
    (tmp_path / "first").rename(tmp_path / "third")
    assert place(tmp_path / "third") == first


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_that_are_out_of_order_are_damage(tmp_path: Path, *, reverse: bool) -> None:
    store = LmdbStorage.open(tmp_path)
    fill(store, b"row-1", b"row-2", b"row-3", table=Table.REGISTERS)
    store.close()
    file = tmp_path / "data.mdb"
    file.write_bytes(file.read_bytes().replace(b"row-2", b"Row-2"))
    store = LmdbStorage.open(tmp_path)

    def walk(snapshot: Snapshot) -> list[bytes]:
        return [key for key, _ in snapshot.items(Table.REGISTERS, reverse=reverse)]

    with store.snapshot() as snapshot, pytest.raises(StoreDamaged, match="out of order"):
        walk(snapshot)
    with pytest.raises(StoreDamaged, match="move its data directory away"):
        store.run(walk)
    store.close()


def test_the_statistics_follow_the_store(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path)
    before = store.stats()
    fill(store, *(b"%05d" % number for number in range(5000)))
    after = store.stats()
    assert after.map_bytes == before.map_bytes > after.file_bytes >= after.used_bytes > before.used_bytes
    assert after.pages > before.pages
    assert after.max_readers >= 512
    with store.transaction() as transaction:
        for key, _ in transaction.items(Table.META):
            transaction.delete(Table.META, key)
    emptied = store.stats()
    assert emptied.used_bytes < after.used_bytes
    assert emptied.file_bytes >= after.file_bytes
    store.close()


def test_space_that_was_freed_is_used_again(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path)
    sizes = []
    for _ in range(20):
        fill(store, *(b"%04d" % number for number in range(2000)))
        with store.transaction() as transaction:
            for key, _ in transaction.items(Table.META):
                transaction.delete(Table.META, key)
        sizes.append(store.stats().file_bytes)
    assert sizes[-1] == sizes[5]
    store.close()


def test_five_hundred_snapshots_can_be_open_at_once(tmp_path: Path) -> None:
    from contextlib import ExitStack

    store = LmdbStorage.open(tmp_path)
    with ExitStack() as stack:
        for number in range(500):
            fill(store, b"%03d" % number) if number % 100 == 0 else None
            snapshot = stack.enter_context(store.snapshot())
            assert snapshot.count(Table.META) == number // 100 + 1
        assert store.stats().readers >= 500
    store.close()


@pytest.mark.parametrize("fate", ["removed", "moved", "replaced"])
def test_nothing_is_written_into_a_directory_that_is_gone(tmp_path: Path, fate: str) -> None:
    place = tmp_path / "data"
    with closing(LmdbStorage.open(place)) as store:
        fill(store, b"kept")
        if fate == "removed":
            shutil.rmtree(place)
        else:
            place.rename(tmp_path / "elsewhere")
        if fate == "replaced":
            LmdbStorage.open(place).close()
        with pytest.raises(StoreGone, match="removed, moved or replaced"):
            fill(store, b"lost")
        with pytest.raises(StoreGone), store.transaction():
            raise AssertionError("no transaction can begin")
        assert rows(store) == [(b"kept", b"KEPT")]
        if fate == "moved":
            (tmp_path / "elsewhere").rename(place)
            fill(store, b"more")
