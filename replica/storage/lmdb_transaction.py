"""Snapshots and transactions of the store on LMDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

import lmdb

from replica.core.storage import MAX_KEY_BYTES, StorageClosed, StorageError, Table, check_key
from replica.storage.lmdb_errors import MapFull, out_of_order, translated
from replica.storage.lmdb_gate import MapGate
from replica.storage.turn import WriterTurn

if TYPE_CHECKING:
    from lmdb import _Database

__all__ = ["Journal", "LmdbSnapshot", "LmdbTransaction", "MappedStore", "Row"]

Row = tuple[Table, bytes]
"""A place in a table, whether or not there is a row."""


@dataclass(frozen=True, slots=True)
class MappedStore:
    """An open environment and its tables."""

    environment: lmdb.Environment
    tables: dict[Table, _Database]


class Journal:
    """What was committed, for who rewrites the store. It is changed by who has the turn to write, or is
    alone.
    """

    __slots__ = ("_rows", "writes")

    def __init__(self) -> None:
        self.writes = 0
        """How many rows were put or deleted so far."""
        self._rows: set[Row] | None = None

    @property
    def noting(self) -> bool:
        """Whether the rows that are written are noted."""
        return self._rows is not None

    def begin(self) -> set[Row]:
        """Note from now on; what was noted so far."""
        rows, self._rows = self._rows, set()
        return rows or set()

    def end(self) -> set[Row]:
        """Note no more; what was noted so far."""
        rows, self._rows = self._rows, None
        return rows or set()

    def committed(self, writes: int, rows: list[Row]) -> None:
        """A transaction has written so much, at these places."""
        self.writes += writes
        if self._rows is not None:
            self._rows.update(rows)


class _Rows:
    """Reading the rows of an open transaction of LMDB, of either kind."""

    __slots__ = ("_current", "_gate", "_mapped", "_tables", "_thread", "_transaction")

    def __init__(self, gate: MapGate, current: Callable[[], MappedStore]) -> None:
        self._gate = gate
        self._current = current
        """Gives the environment as it is now; to be asked inside the gate only. Raises StorageClosed."""
        self._transaction: lmdb.Transaction[bytes] | None = None
        self._tables: dict[Table, _Database] = {}
        self._thread = 0

    def _opened(self) -> lmdb.Transaction[bytes]:
        if self._transaction is None:
            raise StorageClosed("the snapshot or transaction has ended")
        return self._transaction

    def get(self, table: Table, key: bytes) -> bytes | None:
        check_key(key)
        try:
            return self._opened().get(key, db=self._tables[table])
        except lmdb.Error as error:
            raise translated(error) from error

    def count(self, table: Table) -> int:
        try:
            return self._opened().stat(self._tables[table])["entries"]
        except lmdb.Error as error:
            raise translated(error) from error


class LmdbSnapshot(_Rows):
    """One state of the store, from when its block is entered."""

    __slots__ = ()

    def __enter__(self) -> LmdbSnapshot:
        thread = self._gate.enter()
        try:
            mapped = self._current()
            self._transaction = mapped.environment.begin()
        except lmdb.Error as error:
            self._gate.leave(thread)
            raise translated(error) from error
        except StorageError:
            self._gate.leave(thread)
            raise
        self._tables = mapped.tables
        self._thread = thread
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transaction = self._opened()
        self._transaction = None
        try:
            transaction.abort()
        finally:
            self._gate.leave(self._thread)

    def items(
        self, table: Table, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        last: bytes | None = None
        try:
            with self._opened().cursor(self._tables[table]) as cursor:
                if reverse:
                    if not _seek_before(cursor, stop):
                        return
                    for key, value in cursor.iterprev():
                        if last is not None and key >= last:
                            raise out_of_order(table)
                        if key < start:
                            return
                        yield key, value
                        last = key
                else:
                    if not _seek_from(cursor, start):
                        return
                    for key, value in cursor.iternext():
                        if last is not None and key <= last:
                            raise out_of_order(table)
                        if stop is not None and key >= stop:
                            return
                        yield key, value
                        last = key
        except lmdb.Error as error:
            raise translated(error) from error


class LmdbTransaction(_Rows):
    """The one open transaction, from when its block is entered; it commits when the block ends."""

    __slots__ = ("_failure", "_journal", "_noted", "_turn", "_writes")

    def __init__(
        self, gate: MapGate, turn: WriterTurn, current: Callable[[], MappedStore], journal: Journal
    ) -> None:
        super().__init__(gate, current)
        self._turn = turn
        self._journal = journal
        self._noted: list[Row] | None = None
        """What was written, if someone wants to know."""
        self._writes = 0
        self._failure: StorageError | None = None

    @property
    def writes(self) -> int:
        return self._writes

    @property
    def map_full(self) -> bool:
        """Whether the memory map was full, whatever became of the exception that said so."""
        return isinstance(self._failure, MapFull)

    def __enter__(self) -> LmdbTransaction:
        # First the gate, then the turn: whoever waits at the gate must not keep those inside from writing.
        self._turn.forbid_own()
        thread = self._gate.enter()
        self._turn.take()
        try:
            mapped = self._current()
            self._transaction = mapped.environment.begin(write=True)
        except lmdb.Error as error:
            self._leave(thread)
            raise translated(error) from error
        except StorageError:
            self._leave(thread)
            raise
        self._tables = mapped.tables
        self._thread = thread
        self._noted = [] if self._journal.noting else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transaction = self._opened()
        self._transaction = None
        try:
            if kind is None and self._failure is None:
                transaction.commit()
                self._journal.committed(self._writes, self._noted or [])
            else:
                transaction.abort()
        except lmdb.Error as failed:
            self._failure = translated(failed)
        finally:
            self._leave(self._thread)
        if kind is None and self._failure is not None:
            # LMDB fails a transaction for good with its first failed write, even if the block went on.
            raise self._failure

    def _leave(self, thread: int) -> None:
        self._turn.give_back()
        self._gate.leave(thread)

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        check_key(key)
        transaction = self._opened()
        self._writes += 1
        if self._noted is not None:
            self._noted.append((table, key))
        try:
            transaction.put(key, value, db=self._tables[table])
        except lmdb.Error as error:
            raise self._fail(error) from error

    def delete(self, table: Table, key: bytes) -> bool:
        check_key(key)
        transaction = self._opened()
        self._writes += 1
        if self._noted is not None:
            self._noted.append((table, key))
        try:
            return transaction.delete(key, db=self._tables[table])
        except lmdb.Error as error:
            raise self._fail(error) from error

    def _fail(self, error: lmdb.Error) -> StorageError:
        failure = translated(error)
        if self._failure is None:
            self._failure = failure
        return failure

    def items(
        self, table: Table, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        try:
            with self._opened().cursor(self._tables[table]) as cursor:
                found = _seek_before(cursor, stop) if reverse else _seek_from(cursor, start)
                last: bytes | None = None
                while found:
                    key, value = cursor.item()
                    if last is not None and (key >= last if reverse else key <= last):
                        raise out_of_order(table)
                    if key < start if reverse else stop is not None and key >= stop:
                        return
                    writes = self._writes
                    yield key, value
                    last = key
                    if self._writes != writes:
                        # Where a write leaves a cursor is not for LMDB to say: the place is sought anew.
                        found = _seek_before(cursor, key) if reverse else _seek_after(cursor, key)
                    else:
                        found = cursor.prev() if reverse else cursor.next()
        except lmdb.Error as error:
            raise translated(error) from error


def _seek_from(cursor: lmdb.Cursor[bytes], bound: bytes) -> bool:
    """Move to the first row at or after `bound`; False if there is none."""
    if not bound:
        return cursor.first()
    found = cursor.set_range(bound[:MAX_KEY_BYTES])
    # Of the keys from the beginning of an overlong bound on, only that beginning itself is before the bound.
    return cursor.next() if found and cursor.key() < bound else found


def _seek_after(cursor: lmdb.Cursor[bytes], key: bytes) -> bool:
    """Move to the first row after `key`; False if there is none."""
    found = cursor.set_range(key)
    return cursor.next() if found and cursor.key() == key else found


def _seek_before(cursor: lmdb.Cursor[bytes], bound: bytes | None) -> bool:
    """Move to the last row before `bound` (None: the last of all); False if there is none."""
    if bound is None or not _seek_from(cursor, bound):
        return cursor.last()
    return cursor.prev()
