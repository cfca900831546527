"""What every store must do, written once.

The mixins are groups of statements about :class:`replica.core.storage.Storage`. A test class inherits
:class:`StorageContract` and gives a fixture `storage`; a third store would only subclass.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from replica.core.storage import (
    MAX_KEY_BYTES,
    Snapshot,
    Storage,
    StorageClosed,
    StorageError,
    Table,
    Transaction,
)

Row = tuple[bytes, bytes]
META = Table.META


class RefusedError(Exception):
    """What the work of a test raises on purpose."""


def fill(storage: Storage, *keys: bytes, table: Table = META) -> None:
    """Store a row for each of `keys`, its value the key in upper case."""
    with storage.transaction() as transaction:
        for key in keys:
            transaction.put(table, key, key.upper())


def rows(storage: Storage, table: Table = META) -> list[Row]:
    """What a new snapshot shows of `table`."""
    with storage.snapshot() as snapshot:
        return list(snapshot.items(table))


def keys(found: Iterator[Row]) -> list[bytes]:
    return [key for key, _ in found]


def next_key(model: dict[bytes, bytes], last: bytes | None, reverse: bool) -> bytes | None:
    """The key that comes after `last` in the order that is asked for."""
    if reverse:
        return max((key for key in model if last is None or key < last), default=None)
    return min((key for key in model if last is None or key > last), default=None)


class RowsContract:
    """Putting, getting, deleting, counting."""

    def test_a_new_store_is_empty(self, storage: Storage) -> None:
        with storage.snapshot() as snapshot:
            assert all(snapshot.count(table) == 0 for table in Table)
            assert all(list(snapshot.items(table)) == [] for table in Table)
            assert snapshot.get(META, b"a") is None

    def test_what_was_put_is_there_after_the_commit(self, storage: Storage) -> None:
        with storage.transaction() as transaction:
            transaction.put(META, b"a", b"1")
        assert rows(storage) == [(b"a", b"1")]

    def test_a_later_value_replaces_the_earlier(self, storage: Storage) -> None:
        fill(storage, b"a")
        with storage.transaction() as transaction:
            transaction.put(META, b"a", b"")
            assert transaction.get(META, b"a") == b""
        assert rows(storage) == [(b"a", b"")]

    def test_delete_says_whether_a_row_was_there(self, storage: Storage) -> None:
        fill(storage, b"a")
        with storage.transaction() as transaction:
            assert transaction.delete(META, b"a")
            assert not transaction.delete(META, b"a")
            assert not transaction.delete(META, b"b")
        assert rows(storage) == []

    def test_tables_are_apart(self, storage: Storage) -> None:
        for table in Table:
            with storage.transaction() as transaction:
                transaction.put(table, b"key", table.value.encode())
        for table in Table:
            assert rows(storage, table) == [(b"key", table.value.encode())]

    def test_count_follows_every_write(self, storage: Storage) -> None:
        fill(storage, b"a", b"b")
        with storage.transaction() as transaction:
            transaction.put(META, b"b", b"again")
            assert transaction.count(META) == 2
            transaction.put(META, b"c", b"")
            assert transaction.count(META) == 3
            transaction.delete(META, b"a")
            transaction.delete(META, b"missing")
            transaction.delete(META, b"c")
            assert transaction.count(META) == 1
        with storage.snapshot() as snapshot:
            assert snapshot.count(META) == 1

    def test_writes_counts_what_was_asked_for(self, storage: Storage) -> None:
        with storage.transaction() as transaction:
            assert transaction.writes == 0
            transaction.get(META, b"a")
            assert transaction.writes == 0
            transaction.put(META, b"a", b"1")
            transaction.delete(META, b"missing")
            assert transaction.writes == 2

    @pytest.mark.parametrize("key", [b"", bytes(MAX_KEY_BYTES + 1)], ids=["empty", "too long"])
    def test_a_bad_key_is_refused_and_does_no_harm(self, storage: Storage, key: bytes) -> None:
        with storage.transaction() as transaction:
            transaction.put(META, b"before", b"1")
            for attempt in (
                lambda: transaction.put(META, key, b"x"),
                lambda: transaction.delete(META, key),
                lambda: transaction.get(META, key),
            ):
                with pytest.raises(ValueError, match=f"1 to {MAX_KEY_BYTES} bytes, not {len(key)}"):
                    attempt()
            transaction.put(META, b"later", b"1")
        assert rows(storage) == [(b"before", b"1"), (b"later", b"1")]
        with storage.snapshot() as snapshot, pytest.raises(ValueError, match="storage key"):
            snapshot.get(META, key)

    def test_the_longest_key_is_a_key(self, storage: Storage) -> None:
        key = b"\xff" * MAX_KEY_BYTES
        fill(storage, key)
        assert rows(storage) == [(key, key)]

    def test_a_value_of_64_mebibytes_survives(self, storage: Storage) -> None:
        value = bytes(range(256)) * (1 << 18)
        with storage.transaction() as transaction:
            transaction.put(META, b"big", value)
            transaction.put(META, b"small", b"1")
            assert transaction.get(META, b"big") == value
        with storage.snapshot() as snapshot:
            assert snapshot.get(META, b"big") == value
            assert snapshot.get(META, b"small") == b"1"

    def test_values_outlive_the_snapshot_they_came_from(self, storage: Storage) -> None:
        fill(storage, b"a")
        with storage.snapshot() as snapshot:
            value = snapshot.get(META, b"a")
            pairs = list(snapshot.items(META))
        with storage.transaction() as transaction:
            transaction.put(META, b"a", b"other")
        assert type(value) is bytes
        assert value == b"A"
        assert pairs == [(b"a", b"A")]


class OrderContract:
    """Ranges and their order."""

    def test_rows_come_in_byte_order(self, storage: Storage) -> None:
        given = [b"\xff", b"a", b"a\0", b"\0", b"ab", b"b", b"a\xff", b"\0\0"]
        fill(storage, *given)
        with storage.snapshot() as snapshot:
            assert keys(snapshot.items(META)) == sorted(given)
            assert keys(snapshot.items(META, reverse=True)) == sorted(given, reverse=True)

    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("stop", [None, b"", b"a", b"b", b"bb", b"c", b"d", b"\xff" * 600])
    @pytest.mark.parametrize("start", [b"", b"a", b"aa", b"b", b"d", b"a" + b"\0" * 600, b"\xff" * 600])
    def test_a_range_holds_its_start_and_not_its_stop(
        self, storage: Storage, start: bytes, stop: bytes | None, reverse: bool
    ) -> None:
        given = [b"a", b"a" + b"\0" * 510, b"b", b"ba", b"c", b"\xff" * 511]
        fill(storage, *given)
        expected = [key for key in given if start <= key and (stop is None or key < stop)]
        expected.sort(reverse=reverse)
        with storage.snapshot() as snapshot:
            assert keys(snapshot.items(META, start, stop, reverse=reverse)) == expected
        with storage.transaction() as transaction:
            assert keys(transaction.items(META, start, stop, reverse=reverse)) == expected

    def test_several_iterations_go_on_side_by_side(self, storage: Storage) -> None:
        fill(storage, b"a", b"b", b"c")
        with storage.snapshot() as snapshot:
            one, other = snapshot.items(META), snapshot.items(META, reverse=True)
            assert [next(one), next(other), next(one)] == [(b"a", b"A"), (b"c", b"C"), (b"b", b"B")]


class OwnWritesContract:
    """A transaction sees what it wrote, and can write to what it iterates over."""

    def test_a_transaction_reads_its_own_writes(self, storage: Storage) -> None:
        fill(storage, b"a", b"b", b"d")
        with storage.transaction() as transaction:
            transaction.put(META, b"c", b"new")
            transaction.put(META, b"d", b"changed")
            transaction.delete(META, b"a")
            assert transaction.get(META, b"a") is None
            seen = [(b"b", b"B"), (b"c", b"new"), (b"d", b"changed")]
            assert list(transaction.items(META)) == seen
            assert list(transaction.items(META, reverse=True)) == seen[::-1]
        assert rows(storage) == seen

    @pytest.mark.parametrize("reverse", [False, True])
    def test_every_row_can_be_deleted_while_iterating(self, storage: Storage, reverse: bool) -> None:
        given = [b"%03d" % number for number in range(300)]
        fill(storage, *given)
        visited = []
        with storage.transaction() as transaction:
            for key, _ in transaction.items(META, reverse=reverse):
                visited.append(key)
                transaction.delete(META, key)
        assert visited == sorted(given, reverse=reverse)
        assert rows(storage) == []

    @pytest.mark.parametrize("reverse", [False, True])
    def test_an_iteration_follows_the_table_as_it_is_at_each_step(
        self, storage: Storage, reverse: bool
    ) -> None:
        fill(storage, b"b", b"d", b"f", b"h")
        with storage.transaction() as transaction:
            iteration = transaction.items(META, reverse=reverse)
            order = [b"h", b"f", b"d", b"b"] if reverse else [b"b", b"d", b"f", b"h"]
            assert next(iteration)[0] == order[0]
            assert next(iteration)[0] == order[1]
            transaction.put(META, b"c", b"one side")
            transaction.put(META, b"e", b"between")
            transaction.put(META, b"g", b"other side")
            transaction.delete(META, order[2])
            transaction.put(META, order[3], b"changed")
            rest = list(iteration)
        if reverse:
            assert rest == [(b"e", b"between"), (b"c", b"one side"), (b"b", b"changed")]
        else:
            assert rest == [(b"e", b"between"), (b"g", b"other side"), (b"h", b"changed")]

    @pytest.mark.parametrize("seed", range(12))
    def test_writes_at_random_keep_every_iteration_right(self, storage: Storage, seed: int) -> None:
        """Right is what a plain dictionary says: the next key in order, as things are at each step."""
        chance = random.Random(seed)
        reverse = chance.random() < 0.5
        names = [b"%05d" % number for number in range(chance.choice([30, 300, 1500]))]
        model = {name: bytes(chance.choice([0, 100, 3000])) for name in names if chance.random() < 0.3}

        def prepare(transaction: Transaction) -> None:
            for name, value in model.items():
                transaction.put(META, name, value)

        storage.run(prepare)

        def work(transaction: Transaction) -> None:
            now = dict(model)
            transaction.put(META, names[0], b"begun")
            now[names[0]] = b"begun"
            last: bytes | None = None
            for key, value in transaction.items(META, reverse=reverse):
                assert value == now[key]
                assert key == next_key(now, last, reverse)
                last = key
                for _ in range(chance.choice([0, 0, 1, 5])):
                    near = names.index(key) + chance.randint(-4, 4)
                    name = names[min(max(near, 0), len(names) - 1)]
                    if chance.random() < 0.55:
                        assert transaction.delete(META, name) == (now.pop(name, None) is not None)
                    else:
                        now[name] = bytes(chance.choice([1, 600, 3000]))
                        transaction.put(META, name, now[name])
            assert next_key(now, last, reverse) is None
            assert list(transaction.items(META)) == sorted(now.items())

        storage.run(work)

    def test_rewriting_each_row_while_iterating_visits_each_once(self, storage: Storage) -> None:
        given = [b"%03d" % number for number in range(200)]
        fill(storage, *given)
        with storage.transaction() as transaction:
            visited = []
            for key, value in transaction.items(META):
                visited.append(key)
                transaction.put(META, key, value * 300)
        assert visited == given

    def test_deleting_the_rest_ends_the_iteration(self, storage: Storage) -> None:
        fill(storage, b"a", b"b", b"c")
        with storage.transaction() as transaction:
            iteration = transaction.items(META)
            next(iteration)
            for key in (b"a", b"b", b"c"):
                transaction.delete(META, key)
            assert list(iteration) == []


class IsolationContract:
    """A snapshot shows one state, whatever happens meanwhile."""

    def test_a_snapshot_does_not_see_later_commits(self, storage: Storage) -> None:
        fill(storage, b"a", b"b")
        with storage.snapshot() as before:
            iteration = before.items(META)
            first = next(iteration)
            with storage.transaction() as transaction:
                transaction.put(META, b"a", b"changed")
                transaction.put(META, b"aa", b"new")
                transaction.delete(META, b"b")
            assert before.get(META, b"a") == b"A"
            assert [first, *iteration] == [(b"a", b"A"), (b"b", b"B")]
            assert before.count(META) == 2
            with storage.snapshot() as after:
                assert list(after.items(META)) == [(b"a", b"changed"), (b"aa", b"new")]
            fill(storage, b"z")
            assert list(before.items(META)) == [(b"a", b"A"), (b"b", b"B")]

    def test_each_snapshot_keeps_its_own_state(self, storage: Storage) -> None:
        with storage.snapshot() as zero:
            fill(storage, b"a")
            with storage.snapshot() as one:
                fill(storage, b"b")
                with storage.snapshot() as two:
                    fill(storage, b"c")
                    assert [keys(snapshot.items(META)) for snapshot in (zero, one, two)] == [
                        [],
                        [b"a"],
                        [b"a", b"b"],
                    ]
                fill(storage, b"d")
                assert keys(one.items(META)) == [b"a"]
            fill(storage, b"e")
            assert keys(zero.items(META)) == []

    def test_a_snapshot_sees_nothing_of_an_open_transaction(self, storage: Storage) -> None:
        fill(storage, b"a")
        with storage.transaction() as transaction:
            transaction.put(META, b"a", b"changed")
            transaction.put(META, b"b", b"new")
            with storage.snapshot() as snapshot:
                assert list(snapshot.items(META)) == [(b"a", b"A")]
            transaction.put(META, b"c", b"new")
            assert transaction.count(META) == 3


class AbortContract:
    """What fails changes nothing, and a later transaction is not affected."""

    def test_an_exception_aborts_and_travels_on(self, storage: Storage) -> None:
        fill(storage, b"a", b"b")

        def work(transaction: Transaction) -> None:
            transaction.put(META, b"a", b"changed")
            transaction.delete(META, b"b")
            transaction.put(Table.CLOCK, b"c", b"new")
            raise RefusedError

        with pytest.raises(RefusedError), storage.transaction() as transaction:
            work(transaction)
        assert rows(storage) == [(b"a", b"A"), (b"b", b"B")]
        assert rows(storage, Table.CLOCK) == []
        fill(storage, b"d")
        assert len(rows(storage)) == 3

    def test_run_returns_what_the_work_returned_once_it_is_committed(self, storage: Storage) -> None:
        def work(transaction: Transaction) -> str:
            transaction.put(META, b"a", b"1")
            return "done"

        assert storage.run(work) == "done"
        assert rows(storage) == [(b"a", b"1")]

    def test_run_aborts_when_the_work_fails(self, storage: Storage) -> None:
        def work(transaction: Transaction) -> None:
            transaction.put(META, b"a", b"1")
            raise RefusedError

        with pytest.raises(RefusedError):
            storage.run(work)
        assert rows(storage) == []

    def test_a_transaction_without_writes_changes_nothing(self, storage: Storage) -> None:
        fill(storage, b"a")
        with storage.transaction() as transaction:
            assert transaction.get(META, b"a") == b"A"
        assert rows(storage) == [(b"a", b"A")]


class ConcurrencyContract:
    """Threads."""

    def test_a_second_transaction_of_the_same_thread_is_refused(self, storage: Storage) -> None:
        with storage.transaction() as transaction:
            transaction.put(META, b"a", b"1")
            with pytest.raises(StorageError, match="this thread"), storage.transaction():
                pass
            with pytest.raises(StorageError, match="this thread"):
                storage.run(lambda inner: inner.put(META, b"b", b"1"))
        assert rows(storage) == [(b"a", b"1")]

    def test_transactions_of_several_threads_follow_one_another(self, storage: Storage) -> None:
        def count_up(transaction: Transaction) -> None:
            value = transaction.get(META, b"sum")
            transaction.put(META, b"sum", b"%d" % (int(value or b"0") + 1))

        def work() -> None:
            for _ in range(50):
                storage.run(count_up)

        together(work, work, work, work)
        assert rows(storage) == [(b"sum", b"200")]

    def test_readers_see_whole_commits_while_a_writer_writes(self, storage: Storage) -> None:
        done = threading.Event()
        torn: list[list[Row]] = []

        def write_all(number: int, transaction: Transaction) -> None:
            for name in (b"a", b"b", b"c"):
                transaction.put(META, name, b"%d" % number)
            transaction.put(Table.CHANGES, b"%04d" % number, b"")

        def write() -> None:
            try:
                for number in range(200):
                    storage.run(partial(write_all, number))
            finally:
                done.set()

        def read() -> None:
            latest = -1
            while not done.is_set():
                with storage.snapshot() as snapshot:
                    found = list(snapshot.items(META))
                    values = {int(value) for _, value in found}
                    log = snapshot.count(Table.CHANGES)
                    newest = next(snapshot.items(Table.CHANGES, reverse=True), (b"-1", b""))[0]
                if found and (len(found) != 3 or values != {int(newest)} or log != int(newest) + 1):
                    torn.append(found)
                if int(newest) < latest:
                    torn.append([(b"went back", newest)])
                latest = int(newest)

        together(write, read, read)
        assert torn == []

    def test_a_thread_that_holds_a_snapshot_can_write(self, storage: Storage) -> None:
        with storage.snapshot() as snapshot:
            fill(storage, b"a")
            assert snapshot.count(META) == 0


class ClosingContract:
    """What has ended cannot be used, and says so."""

    def test_a_closed_store_refuses_everything(self, storage: Storage) -> None:
        storage.close()
        with pytest.raises(StorageClosed), storage.snapshot():
            pass
        with pytest.raises(StorageClosed), storage.transaction():
            pass
        with pytest.raises(StorageClosed):
            storage.run(lambda transaction: None)

    def test_closing_twice_does_nothing(self, storage: Storage) -> None:
        storage.close()
        storage.close()

    def test_a_snapshot_that_has_ended_cannot_be_read(self, storage: Storage) -> None:
        fill(storage, b"a", b"b")
        with storage.snapshot() as snapshot:
            iterations = [snapshot.items(META) for _ in range(3)]
            next(iterations[1])
            assert [next(iterations[2])[0], next(iterations[2])[0]] == [b"a", b"b"]
        self.assert_ended(snapshot, *iterations)

    def test_a_transaction_that_has_ended_cannot_be_used(self, storage: Storage) -> None:
        fill(storage, b"a", b"b")
        with storage.transaction() as transaction:
            iterations = [transaction.items(META) for _ in range(3)]
            next(iterations[1])
            assert [next(iterations[2])[0], next(iterations[2])[0]] == [b"a", b"b"]
        self.assert_ended(transaction, *iterations)
        with pytest.raises(StorageClosed):
            transaction.put(META, b"c", b"")
        with pytest.raises(StorageClosed):
            transaction.delete(META, b"a")
        assert len(rows(storage)) == 2

    @staticmethod
    def assert_ended(view: Snapshot, *iterations: Iterator[Row]) -> None:
        with pytest.raises(StorageClosed):
            view.get(META, b"a")
        with pytest.raises(StorageClosed):
            view.count(META)
        for iteration in iterations:
            with pytest.raises(StorageClosed):
                next(iteration)

    def test_a_thread_cannot_close_what_it_still_uses(self, storage: Storage) -> None:
        with storage.snapshot() as snapshot:
            with pytest.raises(StorageError, match="this thread"):
                storage.close()
            assert snapshot.count(META) == 0
        with storage.transaction() as transaction:
            with pytest.raises(StorageError, match="this thread"):
                storage.close()
            transaction.put(META, b"a", b"1")
        assert rows(storage) == [(b"a", b"1")]

    def test_close_waits_for_what_other_threads_have_open(self, storage: Storage) -> None:
        fill(storage, b"a")
        inside, closing = threading.Event(), threading.Event()
        seen: list[bytes | None] = []

        def hold() -> None:
            with storage.snapshot() as snapshot:
                inside.set()
                closing.wait()
                seen.append(snapshot.get(META, b"a"))

        def close() -> None:
            inside.wait()
            closing.set()
            storage.close()
            seen.append(b"closed")

        together(hold, close)
        assert seen == [b"A", b"closed"]


class StorageContract(
    RowsContract,
    OrderContract,
    OwnWritesContract,
    IsolationContract,
    AbortContract,
    ConcurrencyContract,
    ClosingContract,
):
    """Everything at once."""


def together(*works: object) -> None:
    """Run each of `works` in a thread of its own, and raise what the first of them to fail raised."""
    failures: list[BaseException] = []

    def guarded(work: object) -> None:
        assert callable(work)
        try:
            work()
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
