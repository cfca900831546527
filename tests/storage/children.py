"""Programs that tests run in processes of their own: ``python -m tests.storage.children NAME DIRECTORY …``.

Each says what it did in lines on standard output, at once, so that a test can kill it and knows what it had
done.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import lmdb

from replica.core.storage import Storage, StorageFull, StoreRefused, Table, Transaction
from replica.storage.lmdb_store import LmdbStorage

ROOT = Path(__file__).resolve().parents[2]


def start(name: str, *arguments: object, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Run the program `name` of this module in a process of its own."""
    command = [*prefix, sys.executable, "-m", "tests.storage.children", name, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def lines(name: str, *arguments: object, prefix: tuple[str, ...] = ()) -> list[str]:
    """What the program `name` says from its start to its end, which must be a good one."""
    with start(name, *arguments, prefix=prefix) as process:
        output, _ = process.communicate()
    assert process.returncode == 0, (process.returncode, output)
    return output.splitlines()


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def number_row(number: int) -> Callable[[Transaction], None]:
    """Work that stores a row for `number`, of a size that depends on it."""
    return lambda transaction: transaction.put(Table.META, b"%08d" % number, b"%d" % number * (number % 700))


def large_row(number: int) -> Callable[[Transaction], None]:
    """Work that stores a row of 4 MiB."""
    return lambda transaction: transaction.put(Table.META, b"%04d" % number, bytes(1 << 22))


def numbers(storage: Storage) -> list[int]:
    """The numbers that :func:`number_row` stored, after a look at their values."""
    with storage.snapshot() as snapshot:
        found = [(int(key), value) for key, value in snapshot.items(Table.META)]
    assert all(value == b"%d" % number * (number % 700) for number, value in found)
    return [number for number, _ in found]


def hold(directory: Path) -> None:
    """Open the store and a snapshot, and keep both open until standard input ends."""
    store = LmdbStorage.open(directory)
    with store.snapshot():
        say("open")
        sys.stdin.read()
    store.close()


def look(directory: Path) -> None:
    """Have the file open as a tool of LMDB's would, without our lock, until standard input ends."""
    with lmdb.open(str(directory), readonly=True, lib_version=0):
        say("open")
        sys.stdin.read()


def count_up(directory: Path) -> None:
    """Store one number after the other, going on where the store ends, and say each one that is
    acknowledged.
    """
    store = LmdbStorage.open(directory)
    number = max(numbers(store), default=-1)
    while True:
        number += 1
        store.run(number_row(number))
        say(number)


def count_up_and_shrink(directory: Path) -> None:
    """The same, while room is wasted and given back over and over."""
    store = LmdbStorage.open(directory)
    number = max(numbers(store), default=-1)
    ended = threading.Event()

    def shrink() -> None:
        while not ended.is_set():
            for _ in range(2):
                store.run(lambda transaction: transaction.put(Table.CHANGES, b"large", bytes(1 << 20)))
            store.run(lambda transaction: transaction.delete(Table.CHANGES, b"large"))
            if store.shrink():
                say("shrunk")

    shrinking = threading.Thread(target=shrink, daemon=True)
    shrinking.start()
    while True:
        number += 1
        store.run(number_row(number))
        say(number)


def shrink_in_little_room(directory: Path) -> None:
    """Waste room, and try to shrink where no file can be written; then where one can."""
    store = LmdbStorage.open(directory)
    for number in range(500):
        store.run(number_row(number))
    store.run(lambda transaction: transaction.put(Table.CHANGES, b"large", bytes(1 << 22)))
    store.run(lambda transaction: transaction.delete(Table.CHANGES, b"large"))
    before = sorted(os.listdir(directory)), store.stats().file_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        store.shrink()
    except StorageFull as error:
        say("full", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert (sorted(os.listdir(directory)), store.stats().file_bytes) == before
    assert numbers(store) == list(range(500))
    store.run(number_row(500))
    say("shrunk", store.shrink())
    assert numbers(store) == list(range(501))
    store.close()


def shrink_in_little_address_space(directory: Path) -> None:
    """Waste room, and shrink where there is no place for a second map as large as the first."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit_address_space(1 << 28)
    store = LmdbStorage.open(directory, map_size=1 << 27)
    for number in range(500):
        store.run(number_row(number))
    store.run(lambda transaction: transaction.put(Table.CHANGES, b"large", bytes(1 << 22)))
    store.run(lambda transaction: transaction.delete(Table.CHANGES, b"large"))
    limit_address_space(1 << 25)
    say("shrunk", store.shrink())
    say("map", store.stats().map_bytes)
    store.run(lambda transaction: transaction.put(Table.CHANGES, b"large", bytes(1 << 22)))
    assert numbers(store) == list(range(500))
    store.close()
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def read(directory: Path) -> None:
    """Say every row, shortened."""
    store = LmdbStorage.open(directory, create=False)
    with store.snapshot() as snapshot:
        for table in Table:
            for key, value in snapshot.items(table):
                say(table.value, key.hex(), len(value), value[:8].hex(), value[-8:].hex())
    store.close()


def count_up_until_full(store: Storage, number: int) -> int:
    """Store numbers from `number` on, say those that are acknowledged, and return the first that was
    refused.
    """
    while True:
        try:
            store.run(number_row(number))
        except StorageFull as error:
            say("full", error)
            return number
        say(number)
        number += 1


def limited_file(directory: Path) -> None:
    """Fill the store until the limit on the size of files, read, and go on when the limit is lifted."""
    store = LmdbStorage.open(directory)
    for number in range(20):
        store.run(number_row(number))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (store.stats().file_bytes + (1 << 17), hard))
    refused = count_up_until_full(store, 20)
    assert count_up_until_full(store, refused) == refused
    assert numbers(store) == list(range(refused))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    store.run(number_row(refused))
    assert numbers(store) == list(range(refused + 1))
    say("went on", refused)
    store.close()


def full_disk(directory: Path) -> None:
    """On a small file system of its own, mounted here: fill it, read, open again, and go on when there is
    room.
    """
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(directory)], check=True)
    ballast = directory / "ballast"
    data = directory / "data"

    def fill_up() -> None:
        with ballast.open("ab", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError as error:
                say("ballast", error.errno)

    fill_up()
    try:
        LmdbStorage.open(data)
    except StoreRefused as error:
        say("refused", error.reason, "|", error.remedy)
    ballast.unlink()
    store = LmdbStorage.open(data)
    for number in range(200):
        store.run(number_row(number))
    fill_up()
    refused = count_up_until_full(store, 200)
    # Each reader takes a place in a table that lies on the full disk, too.
    with ExitStack() as stack:
        snapshots = [stack.enter_context(store.snapshot()) for _ in range(500)]
        assert all(snapshot.count(Table.META) == refused for snapshot in snapshots)
    store.close()
    store = LmdbStorage.open(data)
    assert numbers(store) == list(range(refused))
    assert count_up_until_full(store, refused) == refused
    ballast.unlink()
    store.run(number_row(refused))
    assert numbers(store) == list(range(refused + 1))
    say("went on", refused)
    store.close()


def limit_address_space(room: int) -> int:
    """Let this process have `room` bytes of address space more than it has; returns the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    return limit


def address_space(directory: Path) -> None:
    """Say how much a store reserves when the address space is limited, and the limit."""
    limit = limit_address_space(1 << 30)
    store = LmdbStorage.open(directory)
    say(store.stats().map_bytes)
    say(limit)
    store.close()


def little_address_space(directory: Path) -> None:
    """With little address space: open with the default map, fill it up to what can be had, and read."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit_address_space(1 << 28)
    store = LmdbStorage.open(directory)
    first = store.stats().map_bytes
    say("map", first)
    number = 0
    try:
        while True:
            store.run(large_row(number))
            number += 1
    except StorageFull as error:
        say("full", error)
    assert store.stats().map_bytes > first
    with store.snapshot() as snapshot:
        assert [key for key, _ in snapshot.items(Table.META)] == [b"%04d" % row for row in range(number)]
    store.close()
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    store = LmdbStorage.open(directory)
    store.run(large_row(number))
    say("went on", number)
    store.close()


if __name__ == "__main__":
    programs = (
        hold,
        count_up,
        count_up_and_shrink,
        shrink_in_little_room,
        shrink_in_little_address_space,
        read,
        limited_file,
        full_disk,
        address_space,
        little_address_space,
        look,
    )
    {program.__name__: program for program in programs}[sys.argv[1]](Path(sys.argv[2]))
