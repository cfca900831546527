"""A store in memory, with the same contract as the one on disk, for simulated fleets and for tests.

Committed rows are never changed while a snapshot can see them: a commit copies the tables it writes to if
an open snapshot is as new as they are (copy on write). A transaction keeps its writes to itself until it
commits, so abort is forgetting them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TypeVar

from replica.core.storage import (
    Snapshot,
    StorageClosed,
    StorageError,
    StorageFull,
    Table,
    Transaction,
    check_key,
)
from replica.storage.turn import WriterTurn

__all__ = ["MemoryStorage"]

T = TypeVar("T")

_FEW = 8
"""Up to so many new or vanished keys are moved one by one; more are sorted or filtered in one go."""


class _Rows:
    """The committed rows of one table."""

    __slots__ = ("born", "keys", "values")

    def __init__(self, values: dict[bytes, bytes], keys: list[bytes], born: int) -> None:
        self.values = values
        self.keys = keys
        """The keys of `values`, sorted."""
        self.born = born
        """The number of the commit that made this copy."""

    def copy(self, born: int) -> _Rows:
        return _Rows(dict(self.values), list(self.keys), born)

    def apply(self, writes: dict[bytes, bytes | None]) -> None:
        values, keys = self.values, self.keys
        added: list[bytes] = []
        removed: list[bytes] = []
        for key, value in writes.items():
            if value is None:
                if values.pop(key, None) is not None:
                    removed.append(key)
            else:
                if key not in values:
                    added.append(key)
                values[key] = value
        if len(removed) <= _FEW:
            for key in removed:
                del keys[bisect_left(keys, key)]
        else:
            gone = set(removed)
            keys[:] = [key for key in keys if key not in gone]
        if len(added) <= _FEW:
            for key in added:
                insort(keys, key)
        else:
            keys.extend(added)
            keys.sort()


class MemoryStorage:
    """A store that lives as long as the process.

    `refuse_commit` is asked before every commit that writes something: when it answers True, the commit
    fails with StorageFull and changes nothing, as a full disk would have it.
    """

    def __init__(self, *, refuse_commit: Callable[[], bool] | None = None) -> None:
        self._refuse_commit = refuse_commit
        self._tables = {table: _Rows({}, [], 0) for table in Table}
        self._commits = 0
        self._open: list[int] = []
        """For each open snapshot, the number of the last commit it sees; in order."""
        self._holders: dict[int, int] = {}
        """Thread → how many snapshots it has open."""
        self._turn = WriterTurn()
        self._changed = threading.Condition(threading.Lock())
        """Guards everything above; notified when a snapshot ends."""
        self._closed = False

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        return _MemorySnapshot(self)

    def transaction(self) -> AbstractContextManager[Transaction]:
        return _MemoryTransaction(self)

    def run(self, work: Callable[[Transaction], T]) -> T:
        with _MemoryTransaction(self) as transaction:
            return work(transaction)

    def close(self) -> None:
        thread = threading.get_ident()
        if self._holders.get(thread):
            raise StorageError("this thread has a snapshot open: end it before closing the store")
        self._turn.take()
        try:
            with self._changed:
                self._closed = True
                self._changed.wait_for(lambda: not self._open)
                self._tables = {}
        finally:
            self._turn.give_back()

    def copy(self) -> MemoryStorage:
        """A store of its own with the rows committed here by now, and the same `refuse_commit`."""
        twin = MemoryStorage(refuse_commit=self._refuse_commit)
        with self._changed:
            self._forbid_closed()
            twin._tables = {table: rows.copy(0) for table, rows in self._tables.items()}
        return twin

    def _forbid_closed(self) -> None:
        if self._closed:
            raise StorageClosed("the store is closed")

    def _enter(self) -> tuple[dict[Table, _Rows], int, int]:
        """Open a snapshot: its tables, the commit it sees, and the thread it belongs to."""
        thread = threading.get_ident()
        with self._changed:
            self._forbid_closed()
            self._open.append(self._commits)
            self._holders[thread] = self._holders.get(thread, 0) + 1
            return dict(self._tables), self._commits, thread

    def _leave(self, seen: int, thread: int) -> None:
        with self._changed:
            self._open.remove(seen)
            if self._holders[thread] == 1:
                del self._holders[thread]
            else:
                self._holders[thread] -= 1
            self._changed.notify_all()

    def _begin(self) -> dict[Table, _Rows]:
        """Open the transaction: the tables as of the last commit, which nobody else changes now."""
        self._turn.take()
        if self._closed:
            self._turn.give_back()
            self._forbid_closed()
        return self._tables

    def _end(self) -> None:
        self._turn.give_back()

    def _commit(self, writes: dict[Table, dict[bytes, bytes | None]]) -> None:
        if not writes:
            return
        if self._refuse_commit is not None and self._refuse_commit():
            raise StorageFull("the store takes no more: nothing was written; free some space and try again")
        with self._changed:
            self._commits += 1
            newest = self._open[-1] if self._open else -1
            for table, rows in writes.items():
                if newest >= self._tables[table].born:
                    self._tables[table] = self._tables[table].copy(self._commits)
                self._tables[table].apply(rows)


class _MemorySnapshot:
    __slots__ = ("_seen", "_storage", "_tables", "_thread")

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage
        self._tables: dict[Table, _Rows] | None = None
        self._seen = -1
        self._thread = -1

    def __enter__(self) -> _MemorySnapshot:
        self._tables, self._seen, self._thread = self._storage._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tables = None
        self._storage._leave(self._seen, self._thread)

    def _rows(self, table: Table) -> _Rows:
        if self._tables is None:
            raise StorageClosed("the snapshot has ended")
        return self._tables[table]

    def get(self, table: Table, key: bytes) -> bytes | None:
        check_key(key)
        return self._rows(table).values.get(key)

    def items(
        self, table: Table, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        rows = self._rows(table)
        first = bisect_left(rows.keys, start)
        end = len(rows.keys) if stop is None else bisect_left(rows.keys, stop)
        places = range(end - 1, first - 1, -1) if reverse else range(first, end)
        for place in places:
            key = rows.keys[place]
            yield key, rows.values[key]
            self._rows(table)

    def count(self, table: Table) -> int:
        return len(self._rows(table).keys)


class _MemoryTransaction:
    __slots__ = ("_counts", "_pending", "_sorted", "_storage", "_tables", "_writes")

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage
        self._tables: dict[Table, _Rows] | None = None
        self._pending: dict[Table, dict[bytes, bytes | None]] = {}
        """What this transaction put (a value) or deleted (None)."""
        self._sorted: dict[Table, list[bytes]] = {}
        """The keys of `_pending`, sorted, for the tables that were iterated over."""
        self._counts: dict[Table, int] = {}
        """By how many rows each table has grown or shrunk."""
        self._writes = 0

    def __enter__(self) -> _MemoryTransaction:
        self._tables = self._storage._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tables = None
        try:
            if kind is None:
                self._storage._commit(self._pending)
        finally:
            self._storage._end()

    def _rows(self, table: Table) -> _Rows:
        if self._tables is None:
            raise StorageClosed("the transaction has ended")
        return self._tables[table]

    @property
    def writes(self) -> int:
        return self._writes

    def get(self, table: Table, key: bytes) -> bytes | None:
        check_key(key)
        rows = self._rows(table)
        pending = self._pending.get(table)
        if pending is not None and key in pending:
            return pending[key]
        return rows.values.get(key)

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        if self.get(table, key) is None:
            self._counts[table] = self._counts.get(table, 0) + 1
        self._write(table, key, bytes(value))

    def delete(self, table: Table, key: bytes) -> bool:
        if self.get(table, key) is None:
            self._writes += 1
            return False
        self._counts[table] = self._counts.get(table, 0) - 1
        self._write(table, key, None)
        return True

    def _write(self, table: Table, key: bytes, value: bytes | None) -> None:
        self._writes += 1
        pending = self._pending.setdefault(table, {})
        if key not in pending and table in self._sorted:
            insort(self._sorted[table], key)
        pending[key] = value

    def count(self, table: Table) -> int:
        return len(self._rows(table).keys) + self._counts.get(table, 0)

    def items(
        self, table: Table, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        step = self._before if reverse else self._from
        bound = stop if reverse else start
        while True:
            key = step(table, bound)
            if key is None or (key < start if reverse else stop is not None and key >= stop):
                return
            value = self.get(table, key)
            assert value is not None
            yield key, value
            # The least key after this one is this one with a zero byte behind it.
            bound = key if reverse else key + b"\0"

    def _pending_keys(self, table: Table) -> list[bytes]:
        keys = self._sorted.get(table)
        if keys is None:
            keys = self._sorted[table] = sorted(self._pending.get(table, ()))
        return keys

    def _from(self, table: Table, bound: bytes | None) -> bytes | None:
        """The first key at or after `bound` that has a value now."""
        committed = self._rows(table).keys
        pending = self._pending.get(table)
        place = bisect_left(committed, bound or b"")
        if not pending:
            return committed[place] if place < len(committed) else None
        while place < len(committed) and committed[place] in pending:
            place += 1
        written = self._pending_keys(table)
        other = bisect_left(written, bound or b"")
        while other < len(written) and pending[written[other]] is None:
            other += 1
        candidates = committed[place : place + 1] + written[other : other + 1]
        return min(candidates, default=None)

    def _before(self, table: Table, bound: bytes | None) -> bytes | None:
        """The last key before `bound` (None: the last of all) that has a value now."""
        committed = self._rows(table).keys
        pending = self._pending.get(table)
        place = len(committed) if bound is None else bisect_left(committed, bound)
        if not pending:
            return committed[place - 1] if place else None
        while place and committed[place - 1] in pending:
            place -= 1
        written = self._pending_keys(table)
        other = len(written) if bound is None else bisect_left(written, bound)
        while other and pending[written[other - 1]] is None:
            other -= 1
        candidates = committed[place - 1 : place] if place else []
        if other:
            candidates = [*candidates, written[other - 1]]
        return max(candidates, default=None)
