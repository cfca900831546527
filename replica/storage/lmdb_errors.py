"""What the errors of LMDB mean to us."""

from __future__ import annotations

import errno

import lmdb

from replica.core.storage import StorageClosed, StorageError, StorageFull, StoreDamaged, Table

__all__ = ["MapFull", "out_of_order", "translated"]

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""How the system says that a file cannot grow. LMDB turns a write that was cut short into EIO."""


class MapFull(StorageFull):
    """The memory map is full. It may be possible to grow it and start over."""


def out_of_order(table: Table) -> StoreDamaged:
    """What it means that the rows of a table do not ascend: LMDB may not find those that are there."""
    return StoreDamaged(f"the rows of table {table.value} are out of order")


def translated(error: lmdb.Error) -> StorageError:
    """The error of ours that says what `error` means and what to do."""
    if isinstance(error, lmdb.MapFullError):
        return MapFull("the memory map of the store is full: nothing was written")
    if isinstance(error, lmdb.TxnFullError):
        return StorageFull("the transaction is too large: nothing was written; split it into smaller ones")
    if isinstance(error, lmdb.ReadersFullError):
        return StorageError("too many reads at once: wait for some of them to end")
    if isinstance(error, lmdb.PanicError):
        return StorageError("the store failed while it was writing: restart the replica")
    if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError):
        return StoreDamaged("the store is damaged")
    if error.code in _DISK:
        return StorageFull(
            f"the disk refuses more data ({errno.errorcode[error.code]}): nothing was written;"
            " make room on it (or in the quota, or under the limit on file sizes), or mend it, and try again"
        )
    if "closed/deleted/dropped" in str(error):
        return StorageClosed("the snapshot or transaction has ended")
    return StorageError(f"the store failed: {error}")
