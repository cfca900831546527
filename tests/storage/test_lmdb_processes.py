"""Several processes, and their sudden ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from replica.core.storage import StoreLocked, Table
from replica.storage.lmdb_store import LmdbStorage
from tests.storage.children import lines, numbers, start
from tests.storage.contract import fill, rows
from tests.storage.test_lmdb_refusals import state


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_second_store_in_the_same_process_is_told_so(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path)
    before = state(tmp_path)
    with pytest.raises(StoreLocked, match=f"in use by process {os.getpid()}; stop it first") as caught:
        LmdbStorage.open(tmp_path)
    assert caught.value.pid == os.getpid()
    assert state(tmp_path) == before
    fill(store, b"a")
    store.close()
    store = LmdbStorage.open(tmp_path)
    assert rows(store) == [(b"a", b"A")]
    store.close()


def test_a_second_process_is_told_which_one_has_the_store(tmp_path: Path) -> None:
    LmdbStorage.open(tmp_path).close()
    with start("hold", tmp_path) as holder:
        assert first_line(holder) == "open\n"
        before = state(tmp_path)
        with pytest.raises(StoreLocked) as caught:
            LmdbStorage.open(tmp_path)
        assert caught.value.pid == holder.pid
        assert state(tmp_path) == before
        holder.communicate()
    assert holder.returncode == 0
    LmdbStorage.open(tmp_path).close()


def test_a_store_in_use_is_locked_even_if_it_looks_damaged(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path)
    (tmp_path / "ricordo-store.json").write_text("damaged")
    with pytest.raises(StoreLocked):
        LmdbStorage.open(tmp_path)
    store.close()


def test_a_killed_process_leaves_no_lock_behind(tmp_path: Path) -> None:
    with start("hold", tmp_path) as holder:
        assert first_line(holder) == "open\n"
        holder.kill()
    LmdbStorage.open(tmp_path).close()


def test_what_a_killed_reader_saw_is_used_again_even_if_another_tool_has_the_file_open(
    tmp_path: Path,
) -> None:
    store = LmdbStorage.open(tmp_path)
    fill(store, b"a")
    store.close()
    with start("look", tmp_path) as tool:
        assert first_line(tool) == "open\n"
        with start("hold", tmp_path) as holder:
            assert first_line(holder) == "open\n"
            holder.kill()
        store = LmdbStorage.open(tmp_path)
        for _ in range(20):
            store.run(lambda transaction: transaction.put(Table.META, b"a", bytes(1 << 20)))
        assert store.stats().file_bytes < 8 << 20
        store.close()
        tool.communicate()


def test_the_environment_does_not_choose_the_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("LMDB_DEFAULT_LIB_VERSION", "1")
        with start("hold", tmp_path) as holder:
            assert first_line(holder) == "open\n"
            holder.communicate()
    LmdbStorage.open(tmp_path, create=False).close()


def test_after_any_number_of_kills_every_acknowledged_row_is_there(tmp_path: Path) -> None:
    chance = random.Random(5)
    acknowledged = -1
    for _ in range(6):
        with start("count_up", tmp_path) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randrange(1, 400)):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            # What it said before it died counts too; a line may be cut short.
            rest = writer.stdout.read().split("\n")[:-1]
            acknowledged = max([acknowledged, *map(int, rest)])
        store = LmdbStorage.open(tmp_path)
        found = numbers(store)
        # One more row may be on disk than its writer lived to say.
        assert found in (list(range(acknowledged + 1)), list(range(acknowledged + 2)))
        store.close()


def test_another_process_reads_what_this_one_wrote(tmp_path: Path) -> None:
    store = LmdbStorage.open(tmp_path)
    fill(store, b"a", b"b")
    store.close()
    assert lines("read", tmp_path) == ["meta 61 1 41 41", "meta 62 1 42 42"]
