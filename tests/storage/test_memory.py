"""The store in memory: the contract, and what only it can do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from replica.core.storage import Storage, StorageClosed, StorageFull, Table
from replica.storage.memory import MemoryStorage
from tests.storage.contract import META, StorageContract, fill, rows


class TestContract(StorageContract):
    @pytest.fixture
    def storage(self) -> Iterator[Storage]:
        store = MemoryStorage()
        yield store
        store.close()


def test_a_refused_commit_is_a_full_store_and_changes_nothing() -> None:
    answers = iter([False, True, False])
    store = MemoryStorage(refuse_commit=lambda: next(answers))
    fill(store, b"a")
    with pytest.raises(StorageFull, match="nothing was written"):
        fill(store, b"a", b"b")
    assert rows(store) == [(b"a", b"A")]
    fill(store, b"c")
    assert rows(store) == [(b"a", b"A"), (b"c", b"C")]


def test_only_a_commit_that_writes_can_be_refused() -> None:
    store = MemoryStorage(refuse_commit=lambda: True)
    with store.transaction() as transaction:
        assert transaction.get(META, b"a") is None
    store.run(lambda transaction: None)


def test_a_copy_goes_its_own_way() -> None:
    store = MemoryStorage()
    fill(store, b"a", b"b")
    fill(store, b"c", table=Table.CLOCK)
    copy = store.copy()
    fill(store, b"d")
    with copy.transaction() as transaction:
        transaction.delete(META, b"a")
    assert rows(store) == [(b"a", b"A"), (b"b", b"B"), (b"d", b"D")]
    assert rows(copy) == [(b"b", b"B")]
    assert rows(copy, Table.CLOCK) == [(b"c", b"C")]
    store.close()
    assert rows(copy) == [(b"b", b"B")]
    with pytest.raises(StorageClosed):
        store.copy()


def test_many_rows_at_once_stay_in_order() -> None:
    store = MemoryStorage()
    fill(store, *(b"%03d" % (number * 7 % 500) for number in range(500)))
    with store.transaction() as transaction:
        for number in range(0, 500, 3):
            transaction.delete(META, b"%03d" % number)
    assert [key for key, _ in rows(store)] == [b"%03d" % number for number in range(500) if number % 3]
