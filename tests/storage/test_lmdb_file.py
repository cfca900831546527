"""Telling a file that is cut short from one that is whole, without mapping it."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from replica.storage.lmdb_file import find_defect

PAGE = os.sysconf("SC_PAGE_SIZE")


def counted_bytes(path: Path) -> int:
    """How long the file would be with every page that its newer meta page counts."""
    content = path.read_bytes()[: 2 * PAGE]
    metas = [struct.unpack_from("=QQ", content, page + 136) for page in (0, PAGE)]
    last, _ = max(metas, key=lambda meta: meta[1])
    return (int(last) + 1) * PAGE


def random_commits(directory: Path, seed: int, commits: int = 20) -> Iterator[None]:
    """A store of rows small and large, changed at random, several times the same row in one transaction."""
    chance = random.Random(seed)
    with lmdb.open(str(directory), lib_version=0, max_dbs=1, map_size=1 << 32) as environment:
        table = environment.open_db(b"table")
        for _ in range(commits):
            with environment.begin(write=True, db=table) as transaction:
                for _ in range(chance.choice([1, 3, 30, 300])):
                    key = b"%d" % chance.randrange(400)
                    if chance.random() < 0.5:
                        transaction.delete(key)
                    else:
                        transaction.put(key, b"v" * chance.choice([1, 100, 1000, 5000, 50_000, 500_000]))
            yield


def fragmented(directory: Path, seed: int) -> None:
    """A store whose list of free pages, the last of the file among them, is more than a page long."""
    chance = random.Random(seed)
    with lmdb.open(str(directory), lib_version=0, max_dbs=1, map_size=1 << 32) as environment:
        table = environment.open_db(b"table")
        # What this one sees is not used again.
        with environment.begin():
            for _ in range(300):
                with environment.begin(write=True, db=table) as transaction:
                    transaction.put(b"%d" % chance.randrange(400), bytes(1000))
            with environment.begin(write=True, db=table) as transaction:
                transaction.put(b"large", bytes(1 << 20))
        with environment.begin(write=True, db=table) as transaction:
            transaction.delete(b"large")
    content = (directory / "data.mdb").read_bytes()[: 2 * PAGE]
    depths = [struct.unpack_from("=H", content, page + 46)[0] for page in (0, PAGE)]
    assert max(depths) > 1


def test_a_whole_store_is_never_refused_though_lmdb_may_leave_its_end_unwritten(tmp_path: Path) -> None:
    unwritten = 0
    for seed in (23, 39):
        directory = tmp_path / str(seed)
        directory.mkdir()
        path = directory / "data.mdb"
        for _ in random_commits(directory, seed, commits=25):
            assert find_defect(path) is None
            unwritten += path.stat().st_size < counted_bytes(path)
    # Otherwise this test would not say what its name says.
    assert unwritten


@pytest.mark.parametrize("many_free", [False, True])
@pytest.mark.parametrize("seed", [0, 39])
def test_what_is_cut_from_a_store_is_missed_unless_nothing_was_there(
    tmp_path: Path, seed: int, many_free: bool
) -> None:
    if many_free:
        fragmented(tmp_path, seed)
    else:
        for _ in random_commits(tmp_path, seed):
            pass
    path = tmp_path / "data.mdb"
    content = path.read_bytes()
    used = pages_in_use(content)
    assert not many_free or max(used) + 100 < len(content) // PAGE
    for keep in sorted({*range(2, len(content) // PAGE, 17), max(used), max(used) + 1}, reverse=True):
        os.truncate(path, keep * PAGE)
        if keep > max(used):
            assert find_defect(path) is None
        else:
            defect = find_defect(path)
            assert defect is not None
            assert defect.reason.startswith("data.mdb is cut short")


def pages_in_use(content: bytes) -> set[int]:
    """The pages that the newer meta page of a store leads to, found by walking all its trees."""
    base = max((0, PAGE), key=lambda page: struct.unpack_from("=Q", content, page + 144))
    found = {0, 1}

    def walk(number: int) -> None:
        if number == 0xFFFFFFFFFFFFFFFF:
            return
        found.add(number)
        page = content[number * PAGE : (number + 1) * PAGE]
        flags, lower = struct.unpack_from("=HH", page, 10)
        for pointer in range(16, lower, 2):
            (offset,) = struct.unpack_from("=H", page, pointer)
            low, high, node, key = struct.unpack_from("=HHHH", page, offset)
            if flags & 1:
                walk(low | high << 16 | node << 32)
            elif node & 1:
                (first,) = struct.unpack_from("=Q", page, offset + 8 + key)
                found.update(range(first, first + -(-((low | high << 16) + 16) // PAGE)))
            elif node & 2:
                walk(*struct.unpack_from("=Q", page, offset + 8 + key + 40))

    for root in (base + 80, base + 128):
        walk(*struct.unpack_from("=Q", content, root))
    return found
