"""The store on disk: one LMDB environment in a directory of its own (design, sections 2 and 8).

Every commit is flushed to disk before it returns. The memory map is reserved large, since reserving costs
nothing, and grows by itself where address space is limited. What LMDB does not check is checked here:
whether the files are whole and ours (`lmdb_directory`, `lmdb_file`), whether another process has them
(`lmdb_lock`), and whether someone looks into the map while it moves (`lmdb_gate`).
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
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
    StoreRefused,
    Table,
    Transaction,
)
from replica.storage.lmdb_directory import (
    DirectoryState,
    begin_store,
    examine,
    finish_store,
    make_directory,
    place_of,
    unusable,
)
from replica.storage.lmdb_errors import translated
from replica.storage.lmdb_file import DATA_FILE, LOCK_FILE, REPLACE_STORE
from replica.storage.lmdb_gate import MapGate
from replica.storage.lmdb_lock import ProcessLock
from replica.storage.lmdb_transaction import LmdbSnapshot, LmdbTransaction, MappedStore
from replica.storage.turn import WriterTurn

__all__ = ["DEFAULT_MAP_SIZE", "LmdbStorage", "StoreStats"]

T = TypeVar("T")

DEFAULT_MAP_SIZE = 1 << 40
"""How much address space a store reserves, in bytes: a tebibyte, of which it uses as much as it has data."""

_SMALLEST_MAP = 1 << 20
_LMDB_FORMAT = 0
"""Which of the formats that the binding bundles: it would let the environment choose, and one cannot read
the other.
"""
_READERS = 512
_READER_TABLE_BYTES = 36 * 1024
"""Room for so many readers, at 64 bytes each, and for the head of the table."""
_PATIENCE = 10.0
"""Seconds that growing the map waits for open snapshots to end."""


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
        self._directory = directory
        self._lock = lock
        self._mapped: MappedStore | None = mapped
        self._map_limit = map_limit
        self._patience = patience
        self._gate = MapGate()
        self._turn = WriterTurn()

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
                mapped = _map_store(directory, map_size, map_limit)
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
        attempt = LmdbTransaction(self._gate, self._turn, self._current)
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
            attempt = LmdbTransaction(self._gate, self._turn, self._current)
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
        """The size of the store now. Raises StorageClosed."""
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
        finally:
            self._gate.leave(thread)

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
                self._mapped = _map_store(self._directory, size, limit)
                environment = self._mapped.environment
            raise StorageFull(
                f"the memory map is full at {size} bytes, and so is the address space: nothing was written;"
                " raise its limit (ulimit -v) and restart the replica"
            ) from cause
        finally:
            self._gate.release()


def _map_store(directory: Path, map_size: int, map_limit: int | None) -> MappedStore:
    """Map the files in `directory`, which are in order, with as much address space as can be had."""
    size = map_size if map_limit is None else min(map_size, map_limit)
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed != resource.RLIM_INFINITY:
        # The map is not all that needs address space.
        size = min(size, allowed // 4)
    size = max(size, _SMALLEST_MAP)
    _allocate_readers(directory / LOCK_FILE)
    while True:
        try:
            environment = lmdb.open(
                str(directory),
                map_size=size,
                max_dbs=len(Table),
                max_readers=_READERS,
                mode=0o600,
                lib_version=_LMDB_FORMAT,
            )
        except lmdb.MemoryError as error:
            size //= 2
            if size < _SMALLEST_MAP:
                raise StoreRefused(
                    str(directory), "there is no address space to map it", "raise the limit (ulimit -v)"
                ) from error
        except lmdb.Error as error:
            raise _refusal(directory, error) from error
        else:
            break
    try:
        # Readers that were killed would hold on to the pages they saw.
        environment.reader_check()
        with environment.begin(write=True) as transaction:
            tables = {
                table: environment.open_db(table.value.encode(), txn=transaction, create=True)
                for table in Table
            }
        return MappedStore(environment, tables)
    except lmdb.Error as error:
        environment.close()
        raise _refusal(directory, error) from error


def _refusal(directory: Path, error: lmdb.Error) -> StoreRefused:
    full = isinstance(translated(error), StorageFull)
    return StoreRefused(
        str(directory), f"LMDB cannot open it: {error}", "make room on the disk" if full else REPLACE_STORE
    )


def _allocate_readers(path: Path) -> None:
    """Give LMDB's table of readers its place on the disk.

    LMDB would make it a file with holes, and to write into a hole through the map kills the process when the
    disk is full. It keeps the size of a file it finds.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(file).st_size
        missing = bytes(max(0, _READER_TABLE_BYTES - size))
        if os.pwrite(file, missing, size) < len(missing):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(file)
