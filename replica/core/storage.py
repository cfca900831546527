"""What the core asks of a store: ordered tables of byte strings, snapshots, durable transactions.

It is the small storage interface of the design, section 2. Two implementations pass one contract suite:
:class:`replica.storage.memory.MemoryStorage` and :class:`replica.storage.lmdb_store.LmdbStorage`. The
contract in words:

- A snapshot shows the store as of the last commit before the snapshot was taken, whatever is committed
  meanwhile.
- A transaction sees its own writes. One is open at a time; others wait. It commits durably when its block
  ends, or, on any exception, changes nothing.
- Keys are 1 to 511 bytes. Values are any bytes, and every value handed out is a copy of its own.
- Iterating over a table that the same transaction writes to is allowed. Each step yields the next row in
  order after the one yielded last, as the table *then* is: rows written ahead of the iteration are seen,
  rows deleted ahead of it are not, no row is yielded twice.
- A snapshot, a transaction or an iteration that is used after its block ended raises :class:`StorageClosed`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

__all__ = [
    "MAX_KEY_BYTES",
    "DamagedRow",
    "Snapshot",
    "Storage",
    "StorageClosed",
    "StorageError",
    "StorageFull",
    "StoreDamaged",
    "StoreGone",
    "StoreLocked",
    "StoreRefused",
    "Table",
    "Transaction",
    "check_key",
]

T = TypeVar("T")

MAX_KEY_BYTES = 511
"""The longest key a table takes."""


class Table(enum.Enum):
    """The tables of a store; the value is the name of the table on disk."""

    META = "meta"
    """Small named values."""
    REGISTERS = "registers"
    """Key → register row."""
    CHANGES = "changes"
    """8-byte big-endian sequence → change row (key, origin)."""
    EXPIRIES = "expiries"
    """8-byte big-endian expiry in ms, then the key → empty."""
    TOMBSTONES = "tombstones"
    """8-byte big-endian time of the last removal in ms, then the key, of registers of nothing but tombstones
    → empty.
    """
    CONCURRENT = "concurrent"
    """Key → the number of siblings, of registers that have more than one."""
    FINGERPRINTS = "fingerprints"
    """Level, then the key where a part of the store starts → the sum of its registers' hashes."""
    CLOCK = "clock"
    """Actor → runs of counters seen."""
    CURSORS = "cursors"
    """Peer cluster → cursor row."""
    MEMBERS = "members"
    """Cluster → membership row."""
    PEERS = "peers"
    """Cluster → peer row (its address and so on)."""
    REQUESTS = "requests"
    """Request id → stored result."""
    REQUEST_TIMES = "request_times"
    """8-byte big-endian ms, then the request id → empty."""

    # The one of `Enum` is a call of Python; every access to a store hashes a table.
    __hash__ = object.__hash__


class Snapshot(Protocol):
    """One state of the whole store, which stays as it is while it is held.

    Hold it briefly and let go of it before waiting for anything: the space that later commits free cannot
    be reused while an older snapshot is open.
    """

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value at `key`, or None. Raises ValueError for a key that no table can hold."""
        ...

    def items(
        self, table: Table, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows with ``start <= key < stop``, in byte order of their keys, or in reverse.

        `stop` None means to the end. The bounds are not keys: they may be empty, or longer than a key may be.
        """
        ...

    def count(self, table: Table) -> int:
        """The number of rows, without walking them."""
        ...


class Transaction(Snapshot, Protocol):
    """A snapshot of the newest state, with writes of its own on top, which it sees."""

    @property
    def writes(self) -> int:
        """The number of puts and deletes asked for so far, those that changed nothing included."""
        ...

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Store `value` at `key`, replacing what is there.

        Raises ValueError for a bad key, StorageFull when full.
        """
        ...

    def delete(self, table: Table, key: bytes) -> bool:
        """Remove the row at `key`; True if one was there.

        Raises ValueError for a bad key, StorageFull when full.
        """
        ...


class Storage(Protocol):
    """A store of one replica."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """The newest committed state, for the length of a ``with`` block. Raises StorageClosed."""
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """A transaction, for the length of a ``with`` block.

        It is committed, durably, when the block ends; an exception aborts it and travels on. Raises
        StorageFull (nothing was written), StorageClosed, and StorageError if this very thread has a
        transaction open already. Prefer :meth:`run`, which gets over a full map by itself.
        """
        ...

    def run(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one transaction, commit durably, and return what it returned.

        `work` may be run more than once (the store grows and starts over), so its only effects are those on
        the transaction. An exception out of it aborts the transaction and travels on. Raises like
        :meth:`transaction`.
        """
        ...

    def close(self) -> None:
        """Close for good, once the transaction and the snapshots that other threads hold have ended.

        Closing twice does nothing. Raises StorageError if this very thread still holds one of them.
        """
        ...


class StorageError(Exception):
    """The store could not do what was asked of it. Nothing was written."""


class StorageFull(StorageError):
    """The store has no room. Nothing was written, and reads go on.

    The message says what is full (the map, the disk, or one transaction) and the remedy.
    """


class StorageClosed(StorageError):
    """The store, snapshot or transaction is not open any more."""


class StoreGone(StorageError):
    """The files of the store were removed or replaced while it was open. Nothing was written."""


class StoreDamaged(StorageError):
    """The store is damaged where its rows hang together, so that no row can be relied on."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: stop the replica, move its data directory away, and start it again;"
            " it fills itself from its peers"
        )


class StoreRefused(StorageError):
    """The store was not opened, and was left exactly as it was."""

    def __init__(self, place: str, reason: str, remedy: str) -> None:
        super().__init__(f"{place}: {reason}; {remedy}")
        self.place = place
        """The directory that was to be opened."""
        self.reason = reason
        """What is wrong with it."""
        self.remedy = remedy
        """What an operator can do."""


class StoreLocked(StorageError):
    """Another process has the store open."""

    def __init__(self, place: str, pid: int | None) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{place}: in use by {holder}; stop it first, or choose another data directory")
        self.place = place
        """The directory that was to be opened."""
        self.pid = pid
        """The process that has it open, or None if it did not get to write its number yet."""


class DamagedRow(StorageError):
    """The checksum of a stored row does not match the row: it must not be used."""

    def __init__(self, table: Table, key: bytes) -> None:
        super().__init__(
            f"damaged row in table {table.value} at key {key.hex()}; it has to be fetched again from a peer"
        )
        self.table = table
        """Where the row is."""
        self.key = key
        """The key of the row."""


def check_key(key: bytes) -> None:
    """Raise ValueError unless a table can hold `key`."""
    if not 0 < len(key) <= MAX_KEY_BYTES:
        raise ValueError(f"a storage key has 1 to {MAX_KEY_BYTES} bytes, not {len(key)}")
