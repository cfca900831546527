"""Writing a store anew into a smaller file (docs/decisions/0004).

LMDB never gives room back: a file stays as long as it ever was, and a page from which rows were deleted is
merged with its neighbour only when three quarters of it are empty. So a store that is written to for years
would take several times the room of its rows. Here its rows are copied, in order, into full pages of a new
file, which then takes the place of the old one.

Others read and write meanwhile. What they write is noted and copied after, until so little is left that
everyone can be kept out for the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb

from replica.core.storage import Table
from replica.storage.lmdb_errors import out_of_order
from replica.storage.lmdb_file import DATA_FILE, LOCK_FILE
from replica.storage.lmdb_map import map_file
from replica.storage.lmdb_transaction import MappedStore, Row

if TYPE_CHECKING:
    from lmdb import _Database

__all__ = ["Packing", "Rewriting", "clear_unfinished"]

_NEW_DATA, _NEW_LOCK = "data.new", "data.new-lock"
_CHUNK_BYTES = 1 << 23
_PAGE_HEADER_BYTES, _NODE_HEADER_BYTES, _POINTER_BYTES = 16, 8, 2
_OTHER_PAGES = 8
"""What a file holds beside the tables: its two heads, the names of the tables, and what is free."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How much room the rows of a store need in full pages, as it was when every row was looked at."""

    page_bytes: int
    pages: Mapping[Table, float]
    rows: Mapping[Table, int]

    def expected(self, rows: Mapping[Table, int]) -> float:
        """The bytes that so many rows may need, if they are as large as those that were looked at."""
        pages = sum(
            self.pages[table] * count / self.rows[table] for table, count in rows.items() if self.rows[table]
        )
        return (pages + _OTHER_PAGES) * self.page_bytes

    @classmethod
    def look(
        cls,
        transaction: lmdb.Transaction[memoryview],
        tables: Mapping[Table, _Database],
        interrupted: Callable[[], bool],
    ) -> Packing | None:
        """Look at every row; none: it was interrupted."""
        page_bytes = transaction.stat(next(iter(tables.values())))["psize"]
        pages, rows = {}, {}
        for table, database in tables.items():
            rows[table] = transaction.stat(database)["entries"]
            with transaction.cursor(database) as cursor:
                found = _pages(cursor, page_bytes, interrupted)
            if found is None:
                return None
            pages[table] = found
        return cls(page_bytes, pages, rows)


def _pages(cursor: lmdb.Cursor[memoryview], page_bytes: int, interrupted: Callable[[], bool]) -> float | None:
    """How many pages the rows fill, one after the other."""
    whole = page_bytes - _PAGE_HEADER_BYTES
    # LMDB wants at least two rows on a page: a larger value goes to pages of its own.
    largest = (whole // 2 & -2) - _POINTER_BYTES
    leaves, apart, room, keys = 0, 0, 0, 0
    for count, (key, value) in enumerate(cursor):
        if count % 10_000 == 0 and interrupted():
            return None
        size = _NODE_HEADER_BYTES + len(key) + len(value)
        if size > largest:
            apart += (_PAGE_HEADER_BYTES - 1 + len(value)) // page_bytes + 1
            size = _NODE_HEADER_BYTES + len(key) + 8
        size += _POINTER_BYTES + size % 2
        if size > room:
            leaves, room, keys = leaves + 1, whole, keys + len(key)
        room -= size
    branches = (keys + leaves * (_NODE_HEADER_BYTES + _POINTER_BYTES)) / whole if leaves > 1 else 0
    return leaves + apart + branches


def clear_unfinished(directory: Path) -> None:
    """Remove what a rewriting that did not end has left behind. Raises OSError."""
    for name in (_NEW_DATA, _NEW_LOCK):
        (directory / name).unlink(missing_ok=True)


class Rewriting:
    """A copy of a store in the making: :meth:`copy`, any number of :meth:`catch_up`, :meth:`take_place`.

    Each raises lmdb.Error and OSError. In the end :meth:`abandon` it, whatever came of it.
    """

    def __init__(self, directory: Path, map_sizes: Iterable[int]) -> None:
        """Reserve the first of the sizes for which there is address space."""
        self._directory = directory
        self._in_place = False
        clear_unfinished(directory)
        self._mapped = self._map(tuple(map_sizes))

    def _map(self, sizes: tuple[int, ...]) -> MappedStore:
        data, lock = self._directory / _NEW_DATA, self._directory / _NEW_LOCK
        try:
            return map_file(data, lock, sizes[0])
        except lmdb.MemoryError:
            if len(sizes) == 1:
                raise
            return self._map(sizes[1:])
        except BaseException:
            clear_unfinished(self._directory)
            raise

    def copy(
        self,
        source: lmdb.Transaction[memoryview],
        tables: Mapping[Table, _Database],
        interrupted: Callable[[], bool],
    ) -> bool:
        """Copy every row; False: it was interrupted."""
        for table, database in tables.items():
            with source.cursor(database) as cursor:
                for chunk in _chunks(cursor):
                    if interrupted():
                        return False
                    self._append(table, chunk)
        return True

    def _append(self, table: Table, chunk: list[tuple[memoryview, memoryview]]) -> None:
        with (
            self._mapped.environment.begin(write=True) as target,
            target.cursor(self._mapped.tables[table]) as cursor,
        ):
            _, added = cursor.putmulti(chunk, append=True)
            if added != len(chunk):
                raise out_of_order(table)

    def catch_up(
        self,
        source: lmdb.Transaction[memoryview],
        tables: Mapping[Table, _Database],
        rows: Iterable[Row],
    ) -> None:
        """Copy these rows again, as they are now, or delete them."""
        with self._mapped.environment.begin(write=True) as target:
            for table, key in rows:
                value = source.get(key, db=tables[table])
                if value is None:
                    target.delete(key, db=self._mapped.tables[table])
                else:
                    target.put(key, value, db=self._mapped.tables[table])

    def take_place(self) -> MappedStore:
        """Take the place of the old file, which must have nothing that was not copied.

        The new name of the file is not durable yet.
        """
        os.replace(self._directory / _NEW_DATA, self._directory / DATA_FILE)
        self._in_place = True
        # The table of readers means nothing to the next process: which one it finds does not matter.
        with suppress(OSError):
            os.replace(self._directory / _NEW_LOCK, self._directory / LOCK_FILE)
        return self._mapped

    def abandon(self) -> None:
        """Remove the copy, unless it has taken the place of the old file. Raises OSError."""
        if not self._in_place:
            self._mapped.environment.close()
            clear_unfinished(self._directory)


def _chunks(cursor: lmdb.Cursor[memoryview]) -> Iterator[list[tuple[memoryview, memoryview]]]:
    chunk, size = [], 0
    for key, value in cursor:
        chunk.append((key, value))
        size += len(key) + len(value)
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
