"""Reading an LMDB data file without mapping it, to tell whether it may be mapped.

LMDB trusts its file: a mapped file that is too short kills the process (SIGBUS) at the first missing page,
and an empty one is taken for a new store. So the file is looked at first, with plain reads. The layout is
the one of LMDB 0.9 ("data version" 1), as `lmdb.h` and `mdb.c` define it for 64-bit machines: two meta
pages, of which the one with the greater transaction id counts, then the pages of the trees. All numbers are
in the machine's byte order.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

__all__ = ["DATA_FILE", "LOCK_FILE", "REPLACE_STORE", "Defect", "find_defect"]

DATA_FILE = "data.mdb"
"""The name LMDB gives to the file with the data."""
LOCK_FILE = "lock.mdb"
"""The name LMDB gives to its table of readers."""

_MAGIC = 0xBEEFC0DE
_DATA_VERSION = 1

_PAGE_HEADER = struct.Struct("=QHHHH")
"""Page number, padding, flags, end of the node pointers, start of the nodes."""
_LATER_PAGE_HEADER_BYTES = 24
"""How long the header is in the format of LMDB 1.0."""
_META = struct.Struct("=IIQQ" + "IHHQQQQQ" * 2 + "QQ")
"""Magic, version, address, map size; twice the record of a tree (free pages, then names); last page,
transaction.
"""
_NODE = struct.Struct("=HHHH")
"""Size or child page (low, high), flags, size of the key."""

_BRANCH, _LEAF, _META_PAGE = 0x01, 0x02, 0x08
_VALUE_ON_PAGES = 0x01
_NO_PAGE = 0xFFFFFFFFFFFFFFFF
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Defect:
    """Why a data file must not be mapped."""

    reason: str
    """What is wrong, as the second half of a sentence about the store."""
    remedy: str
    """What an operator can do."""


REPLACE_STORE = "restore it from an archive, or move it away and let the replica fill itself from a peer"
"""What an operator can do about a store that is damaged."""

_NOT_A_STORE = Defect(f"{DATA_FILE} is damaged: it does not begin like an LMDB file", REPLACE_STORE)


@dataclass(frozen=True, slots=True)
class _Meta:
    page_size: int
    free_root: int
    names_root: int
    last_page: int
    transaction: int


class _Damaged(Exception):
    """The file contradicts itself."""


def find_defect(path: Path) -> Defect | None:
    """Why the data file at `path` must not be mapped, or None if it may be.

    Raises OSError if it cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return Defect(f"{DATA_FILE} is empty", REPLACE_STORE)
        first = _read_meta(file, 0)
        if isinstance(first, Defect):
            return first
        second = _read_meta(file, first.page_size)
        if isinstance(second, Defect):
            return second
        if first.page_size != second.page_size:
            return _NOT_A_STORE
        meta = max(first, second, key=lambda meta: meta.transaction)
        for root in (meta.free_root, meta.names_root):
            if root != _NO_PAGE and not 1 < root <= meta.last_page:
                return _NOT_A_STORE
        missing = range(size // meta.page_size, meta.last_page + 1)
        if not missing or _all_free(file, meta, missing):
            return None
        needed = (meta.last_page + 1) * meta.page_size
        return Defect(f"{DATA_FILE} is cut short: it has {size} bytes of {needed}", REPLACE_STORE)


def _read_meta(file: BinaryIO, offset: int) -> _Meta | Defect:
    file.seek(offset)
    page = file.read(_PAGE_HEADER.size + _META.size)
    if len(page) < _PAGE_HEADER.size + _META.size:
        return Defect(f"{DATA_FILE} is cut short: it ends before its second meta page does", REPLACE_STORE)
    _, _, flags, _, _ = _PAGE_HEADER.unpack_from(page)
    fields = _META.unpack_from(page, _PAGE_HEADER.size)
    magic, version, page_size, free_root, names_root, last_page, transaction = (
        fields[0],
        fields[1],
        fields[4],
        fields[11],
        fields[19],
        fields[20],
        fields[21],
    )
    if magic != _MAGIC and struct.unpack_from("=I", page, _LATER_PAGE_HEADER_BYTES) == (_MAGIC,):
        return _other_format("1.0")
    if magic != _MAGIC or not flags & _META_PAGE:
        return _NOT_A_STORE
    if version != _DATA_VERSION:
        return _other_format(f"{version}")
    if not 256 <= page_size <= 0x8000 or page_size & (page_size - 1):
        return _NOT_A_STORE
    return _Meta(page_size, free_root, names_root, last_page, transaction)


def _other_format(found: str) -> Defect:
    return Defect(
        f"{DATA_FILE} has LMDB format {found}, and this version reads format {_DATA_VERSION}",
        "open it with the version of Ricordo that wrote it",
    )


def _all_free(file: BinaryIO, meta: _Meta, missing: range) -> bool:
    """Whether nothing is kept on the missing pages, so that their absence is no damage.

    A transaction that stores something large and drops it again may leave free pages behind the end of the
    file: LMDB counts them, but never wrote them, and never reads them.
    """
    if meta.free_root == _NO_PAGE:
        return False
    free: set[int] = set()
    try:
        for value in _values(file, meta, meta.free_root, _DEEPEST):
            count, *pages = struct.unpack(f"={len(value) // 8}Q", value)
            free.update(page for page in pages[:count] if page in missing)
    except (_Damaged, struct.error):
        return False
    return len(free) == len(missing)


def _values(file: BinaryIO, meta: _Meta, number: int, depth: int) -> Iterator[bytes]:
    """The values in the tree of free pages below page `number`, which is at most `depth` pages high."""
    if not depth:
        raise _Damaged
    file.seek(number * meta.page_size)
    page = file.read(meta.page_size)
    own, _, flags, pointers_end, _ = _PAGE_HEADER.unpack_from(page)
    if own != number or not _PAGE_HEADER.size <= pointers_end <= meta.page_size:
        raise _Damaged
    count = (pointers_end - _PAGE_HEADER.size) // 2
    for offset in struct.unpack_from(f"={count}H", page, _PAGE_HEADER.size):
        low, high, node_flags, key_size = _NODE.unpack_from(page, offset)
        size = low | high << 16
        if flags & _BRANCH:
            yield from _values(file, meta, size | node_flags << 32, depth - 1)
        elif flags & _LEAF:
            place = offset + _NODE.size + key_size
            if node_flags & _VALUE_ON_PAGES:
                (first,) = struct.unpack_from("=Q", page, place)
                file.seek(first * meta.page_size + _PAGE_HEADER.size)
                value = file.read(size)
            else:
                value = page[place : place + size]
            if len(value) != size:
                raise _Damaged
            yield value
        else:
            raise _Damaged
