"""Mapping the files of a store: an environment of LMDB and its tables.

The memory map is reserved large, since reserving costs nothing, and less where address space is limited.
"""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import lmdb

from replica.core.storage import StorageFull, StoreRefused, Table
from replica.storage.lmdb_errors import translated
from replica.storage.lmdb_file import LOCK_FILE, REPLACE_STORE
from replica.storage.lmdb_transaction import MappedStore

__all__ = ["map_file", "map_store"]

_SMALLEST_MAP = 1 << 20
_LMDB_FORMAT = 0
"""Which of the formats that the binding bundles: it would let the environment choose, and one cannot read
the other.
"""
_READERS = 512
_READER_TABLE_BYTES = 36 * 1024
"""Room for so many readers, at 64 bytes each, and for the head of the table."""


def map_store(directory: Path, map_size: int, map_limit: int | None) -> MappedStore:
    """Map the files in `directory`, which are in order, with as much address space as can be had.

    Raises StoreRefused, and OSError.
    """
    size = map_size if map_limit is None else min(map_size, map_limit)
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed != resource.RLIM_INFINITY:
        # The map is not all that needs address space.
        size = min(size, allowed // 4)
    size = max(size, _SMALLEST_MAP)
    _allocate_readers(directory / LOCK_FILE)
    while True:
        try:
            environment = _open(directory, size, in_directory=True)
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
        return _with_tables(environment)
    except lmdb.Error as error:
        environment.close()
        raise _refusal(directory, error) from error


def map_file(data: Path, lock: Path, map_size: int) -> MappedStore:
    """Map a new file with a table of readers of its own. Raises lmdb.Error, and OSError.

    ``lock`` has the name that LMDB gives to the table of readers of such a file.
    """
    _allocate_readers(lock)
    environment = _open(data, map_size, in_directory=False)
    try:
        return _with_tables(environment)
    except lmdb.Error:
        environment.close()
        raise


def _open(path: Path, map_size: int, *, in_directory: bool) -> lmdb.Environment:
    return lmdb.open(
        str(path),
        map_size=map_size,
        subdir=in_directory,
        max_dbs=len(Table),
        max_readers=_READERS,
        mode=0o600,
        lib_version=_LMDB_FORMAT,
    )


def _with_tables(environment: lmdb.Environment) -> MappedStore:
    with environment.begin(write=True) as transaction:
        tables = {
            table: environment.open_db(table.value.encode(), txn=transaction, create=True) for table in Table
        }
    return MappedStore(environment, tables)


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
