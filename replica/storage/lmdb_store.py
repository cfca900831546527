"""The store on disk: one LMDB environment in a directory of its own (design, sections 2 and 8).

Every commit is flushed to disk before it returns. The memory map is reserved large, since reserving costs
nothing, and grows by itself where address space is limited. What LMDB does not check is checked here:
whether the files are whole and ours (`lmdb_directory`, `lmdb_file`), whether another process has them
(`lmdb_lock`), and whether someone looks into the map while it moves (`lmdb_gate`). What LMDB never gives back
is got by writing the file anew (`lmdb_rewrite`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import lmdb

from replica.core.storage import (
    Snapshot,
    StorageClosed,
    StorageError,
    StorageFull,
    StoreGone,
    Table,
    Transaction,
)
from replica.storage.lmdb_directory import (
    IDENTITY_FILE,
    DirectoryState,
    begin_store,
    examine,
    finish_store,
    make_directory,
    place_of,
    sync_directory,
    unusable,
)
from replica.storage.lmdb_errors import translated
from replica.storage.lmdb_file import DATA_FILE
from replica.storage.lmdb_gate import MapGate
from replica.storage.lmdb_lock import ProcessLock
from replica.storage.lmdb_map import map_store
from replica.storage.lmdb_rewrite import Packing, Rewriting, clear_unfinished
from replica.storage.lmdb_transaction import Journal, LmdbSnapshot, LmdbTransaction, MappedStore, Row
from replica.storage.turn import WriterTurn

__all__ = ["DEFAULT_MAP_SIZE", "LmdbStorage", "StoreStats"]

T = TypeVar("T")

DEFAULT_MAP_SIZE = 1 << 40
"""How much address space a store reserves, in bytes: a tebibyte, of which it uses as much as it has data."""

_PATIENCE = 10.0
"""Seconds that growing the map waits for open snapshots to end."""
_SWAP_PATIENCE = 0.1
"""Seconds that everyone may be kept waiting before a rewritten file takes its place."""
_WASTEFUL = 1.4
"""How much larger than its rows in full pages a file must be to be rewritten."""
_WASTE_BYTES = 1 << 17
"""And by how much: less is not worth it."""
_LOOK_AGAIN = 4
"""The rows are looked at again when one in so many was written: the others are as large as they were."""
_CATCH_UP_ROWS = 1000
"""So few rows may be left to copy while everyone waits."""
_CATCH_UP_ROUNDS = 8
"""How often that is tried: each round has less to copy, unless writes come faster than they are copied."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """How large a store is, and how far it can grow."""

    map_bytes: int
    """The address space that is reserved."""
    file_bytes: int
    """The length of the data file."""
    used_bytes: int
    """What holds rows; the rest of the file is free for new ones."""
    pages: int
    """Pages in the file, used or free."""
    readers: int
    """Places taken in the table of readers."""
    max_readers: int
    """Places in the table of readers."""


class LmdbStorage:
    """A store in a directory, from :meth:`open` to :meth:`close`. Any thread may use it."""

    def __init__(
        self, directory: Path, lock: ProcessLock, mapped: MappedStore, map_limit: int | None, patience: float
    ) -> None:
        self.place = place_of(directory)
        """What tells this store from every copy of its directory."""
        self._number = _number_of(directory)
        self._directory = directory
        self._lock = lock
        self._mapped: MappedStore | None = mapped
        self._map_limit = map_limit
        self._patience = patience
        self._gate = MapGate()
        self._turn = WriterTurn()
        self._journal = Journal()
        self._packing: Packing | None = None
        """As of the last look at every row; none: none since the start."""
        self._looked_at = 0
        """How much had been written by then."""
        self._shrinking = threading.Lock()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        map_size: int = DEFAULT_MAP_SIZE,
        map_limit: int | None = None,
        create: bool = True,
        patience: float = _PATIENCE,
    ) -> LmdbStorage:
        """Open the store in `directory`, or make one if there is none and `create` is True.

        `map_size` bytes of address space are reserved, less where the system does not give so much; the map
        grows by itself, up to `map_limit` bytes (None: as far as the system allows), waiting up to
        `patience` seconds for open snapshots to end. Raises StoreLocked if a process has the store open,
        and StoreRefused if it is damaged, not ours or not usable; then it is left exactly as it was.
        """
        try:
            with ExitStack() as undo:
                lock = ProcessLock.find(directory)
                if lock is not None:
                    undo.callback(lock.release)
                state = examine(directory, create=create)
                if lock is None:
                    make_directory(directory)
                    lock = ProcessLock.take(directory)
                    undo.callback(lock.release)
                    state = examine(directory, create=create)
                # Below this line the directory is ours, and changes are made.
                lock.sign()
                if state is not DirectoryState.STORE:
                    begin_store(directory)
                clear_unfinished(directory)
                mapped = map_store(directory, map_size, map_limit)
                undo.callback(mapped.environment.close)
                if state is not DirectoryState.STORE:
                    finish_store(directory)
                store = cls(directory, lock, mapped, map_limit, patience)
                undo.pop_all()
                return store
        except OSError as error:
            raise unusable(directory, error) from error

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        return LmdbSnapshot(self._gate, self._current)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        attempt = LmdbTransaction(self._gate, self._turn, self._to_write, self._journal)
        try:
            with attempt:
                yield attempt
        except StorageFull as error:
            if not attempt.map_full:
                raise
            self._grow(error)
            raise StorageFull(
                "the memory map was full and has been grown: nothing was written; try again"
            ) from error

    def run(self, work: Callable[[Transaction], T]) -> T:
        while True:
            attempt = LmdbTransaction(self._gate, self._turn, self._to_write, self._journal)
            try:
                with attempt:
                    return work(attempt)
            except Exception as error:
                # Whatever the work made of it: what made it fail was the full map.
                if not attempt.map_full:
                    raise
                self._grow(error)

    def close(self) -> None:
        self._gate.seize(None)
        try:
            if self._mapped is not None:
                self._mapped.environment.close()
                self._mapped = None
                self._lock.release()
        finally:
            self._gate.release()

    def stats(self) -> StoreStats:
        """The size of the store now. Raises StorageClosed and StoreGone."""
        thread = self._gate.enter()
        try:
            mapped = self._current()
            with mapped.environment.begin() as transaction:
                trees = [mapped.environment.stat(), *map(transaction.stat, mapped.tables.values())]
                info = mapped.environment.info()
            used = sum(tree["branch_pages"] + tree["leaf_pages"] + tree["overflow_pages"] for tree in trees)
            return StoreStats(
                map_bytes=info["map_size"],
                file_bytes=(self._directory / DATA_FILE).stat().st_size,
                used_bytes=used * trees[0]["psize"],
                pages=info["last_pgno"] + 1,
                readers=info["num_readers"],
                max_readers=info["max_readers"],
            )
        except lmdb.Error as error:
            raise translated(error) from error
        except FileNotFoundError as error:
            raise _gone(self._directory) from error
        finally:
            self._gate.leave(thread)

    def shrink(self) -> bool:
        """Write the store anew, into full pages of a smaller file, if it takes much more room than its rows
        need; True if that was done.

        Others go on reading and writing. It is given up, to be tried again some other time, when someone
        waits for the map to grow or the store to close, or holds a snapshot at the very end. Raises
        StorageFull (nothing has changed), StoreGone, StorageClosed and another StorageError.
        """
        if not self._shrinking.acquire(blocking=False):
            return False
        try:
            return self._is_wasteful() and self._rewrite()
        except lmdb.Error as error:
            raise translated(error) from error
        except OSError as error:
            raise StorageFull(
                f"the store cannot be written anew ({error.strerror}): nothing was changed;"
                " make room on the disk"
            ) from error
        finally:
            self._shrinking.release()

    def _is_wasteful(self) -> bool:
        """Whether rewriting is worth it, by a look at every row if there is reason to."""

        def exceeds(bytes_needed: float) -> bool:
            return file_bytes > max(_WASTEFUL * bytes_needed, bytes_needed + _WASTE_BYTES)

        thread = self._gate.enter()
        try:
            mapped = self._to_write()
            file_bytes = (self._directory / DATA_FILE).stat().st_size
            with mapped.environment.begin(buffers=True) as transaction:
                rows = _count_rows(transaction, mapped)
                written = self._journal.writes
                since = written - self._looked_at
                if self._packing is not None and not (
                    exceeds(self._packing.expected(rows)) or since * _LOOK_AGAIN > sum(rows.values())
                ):
                    return False
                packing = Packing.look(transaction, mapped.tables, lambda: self._gate.wanted)
            if packing is None:
                return False
            self._packing, self._looked_at = packing, written
            needed = packing.expected(rows)
            # What is in the way of other writes would do no good.
            room = os.statvfs(self._directory)
            return exceeds(needed) and room.f_bavail * room.f_frsize > 2 * needed
        finally:
            self._gate.leave(thread)

    def _rewrite(self) -> bool:
        stats = self.stats()
        rewriting = Rewriting(self._directory, (stats.map_bytes, 2 * stats.file_bytes))
        try:
            return self._copy(rewriting) and self._take_over(rewriting)
        finally:
            self._journal.end()
            rewriting.abandon()

    def _copy(self, rewriting: Rewriting) -> bool:
        """Copy everything, and then what was written meanwhile, until that is little."""
        with self._noting() as (mapped, source, _):
            if not rewriting.copy(source, mapped.tables, lambda: self._gate.wanted):
                return False
        for _ in range(_CATCH_UP_ROUNDS):
            with self._noting() as (mapped, source, rows):
                rewriting.catch_up(source, mapped.tables, rows)
            if len(rows) <= _CATCH_UP_ROWS:
                break
        return True

    @contextmanager
    def _noting(self) -> Iterator[tuple[MappedStore, lmdb.Transaction[memoryview], set[Row]]]:
        """A look at the store, and the rows written since the last one; what is written later is noted."""
        thread = self._gate.enter()
        try:
            mapped = self._to_write()
            self._turn.take()
            try:
                source = mapped.environment.begin(buffers=True)
                rows = self._journal.begin()
            finally:
                self._turn.give_back()
            with source:
                yield mapped, source, rows
        finally:
            self._gate.leave(thread)

    def _take_over(self, rewriting: Rewriting) -> bool:
        """Copy what is left while nobody is inside, and go on with the new file."""
        if not self._gate.seize(_SWAP_PATIENCE):
            return False
        try:
            old = self._to_write()
            with old.environment.begin(buffers=True) as source:
                rewriting.catch_up(source, old.tables, self._journal.end())
            self._mapped = rewriting.take_place()
            old.environment.close()
            sync_directory(self._directory)
        finally:
            self._gate.release()
        return True

    def _to_write(self) -> MappedStore:
        """The files, if they are still in their directory: into files that were removed one could write on,
        and lose it all when the process ends. Raises StoreGone and StorageClosed.
        """
        mapped = self._current()
        try:
            here = _number_of(self._directory)
        except OSError:
            here = None
        if here != self._number:
            raise _gone(self._directory)
        return mapped

    def _current(self) -> MappedStore:
        if self._mapped is None:
            raise StorageClosed("the store is closed")
        return self._mapped

    def _grow(self, cause: Exception) -> None:
        """Make the memory map larger, once nobody looks into it. Raises StorageFull if that cannot be."""
        try:
            alone = self._gate.seize(self._patience)
        except StorageError:
            alone = False
        if not alone:
            raise StorageFull(
                "the memory map is full and cannot grow while snapshots are open: nothing was written;"
                " end them and try again"
            ) from cause
        try:
            environment = self._current().environment
            size = environment.info()["map_size"]
            limit = self._map_limit
            if limit is not None and size >= limit:
                raise StorageFull(
                    f"the store has reached its limit of {limit} bytes: nothing was written;"
                    " raise the limit, or forget something"
                ) from cause
            # Where address space is scarce a smaller step may still fit.
            for larger in (2 * size, size + size // 4):
                with suppress(lmdb.MemoryError):
                    environment.set_mapsize(larger if limit is None else min(larger, limit))
                    return
                # A failed attempt leaves the environment without a map.
                self._mapped = None
                environment.close()
                self._mapped = map_store(self._directory, size, limit)
                environment = self._mapped.environment
            raise StorageFull(
                f"the memory map is full at {size} bytes, and so is the address space: nothing was written;"
                " raise its limit (ulimit -v) and restart the replica"
            ) from cause
        finally:
            self._gate.release()


def _number_of(directory: Path) -> tuple[int, int]:
    """What the file system knows the store in `directory` by. Raises OSError."""
    found = (directory / IDENTITY_FILE).stat()
    return found.st_dev, found.st_ino


def _gone(directory: Path) -> StoreGone:
    return StoreGone(
        f"{directory}: the data directory was removed, moved or replaced while it was in use: nothing was"
        " written; put it back in its place, or stop the replica and start it on another"
    )


def _count_rows(transaction: lmdb.Transaction[memoryview], mapped: MappedStore) -> Mapping[Table, int]:
    return {table: transaction.stat(database)["entries"] for table, database in mapped.tables.items()}
