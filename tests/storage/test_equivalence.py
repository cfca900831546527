"""Whatever is asked of them, the store in memory and the store on LMDB answer the same."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from replica.core.storage import Snapshot, StorageClosed, Table, Transaction
from replica.storage.lmdb_store import LmdbStorage
from replica.storage.memory import MemoryStorage

TABLES = st.sampled_from([Table.META, Table.REGISTERS])
# Few and near to each other, so that they meet; with those that no table takes.
KEYS = st.one_of(
    st.binary(min_size=1, max_size=2).map(lambda key: bytes(byte % 3 for byte in key)),
    st.sampled_from([b"\xff" * 511, b"\xff" * 510, b"\1" * 511, b"", b"x" * 512]),
)
BOUNDS = st.one_of(KEYS, st.sampled_from([b"\1" * 600, b"\xff" * 600]))
VALUES = st.one_of(st.binary(max_size=5), st.integers(0, 20_000).map(bytes))

Row = tuple[bytes, bytes]
T = TypeVar("T")


class Stores(RuleBasedStateMachine):
    """Both stores, side by side, with a transaction, some snapshots and some iterations open at times."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.stores = (MemoryStorage(), LmdbStorage.open(self.directory / "data", map_size=1 << 26))
        self.ending = ExitStack()
        self.transactions: tuple[Transaction, ...] = ()
        self.snapshots: list[tuple[ExitStack, tuple[Snapshot, ...]]] = []
        self.iterations: list[tuple[Iterator[Row], ...]] = []

    def teardown(self) -> None:
        for stack, _ in self.snapshots:
            stack.close()
        self.ending.close()
        for store in self.stores:
            store.close()
        shutil.rmtree(self.directory)

    def views(self, which: int) -> tuple[Snapshot, ...]:
        """The open transactions, or one of the pairs of snapshots."""
        choices = [*([self.transactions] if self.transactions else []), *(pair for _, pair in self.snapshots)]
        return choices[which % len(choices)] if choices else ()

    def same(self, views: tuple[Snapshot, ...], question: Callable[[Snapshot], object]) -> None:
        answers = [outcome(question, view) for view in views]
        assert answers[1:] == answers[:1] * (len(answers) - 1)

    @precondition(lambda self: not self.transactions)
    @rule()
    def begin(self) -> None:
        self.transactions = tuple(self.ending.enter_context(store.transaction()) for store in self.stores)

    @precondition(lambda self: self.transactions)
    @rule()
    def commit(self) -> None:
        self.transactions = ()
        self.ending.close()

    @precondition(lambda self: self.transactions)
    @rule()
    def abort(self) -> None:
        self.transactions = ()
        try:
            with self.ending:
                raise InterruptedError
        except InterruptedError:
            self.ending = ExitStack()

    @precondition(lambda self: self.transactions)
    @rule(table=TABLES, key=KEYS, value=VALUES)
    def put(self, table: Table, key: bytes, value: bytes) -> None:
        answers = [outcome(lambda view: view.put(table, key, value), view) for view in self.transactions]
        assert answers[0] == answers[1]

    @precondition(lambda self: self.transactions)
    @rule(table=TABLES, key=KEYS)
    def delete(self, table: Table, key: bytes) -> None:
        answers = [outcome(lambda view: view.delete(table, key), view) for view in self.transactions]
        assert answers[0] == answers[1]

    @precondition(lambda self: len(self.snapshots) < 3)
    @rule()
    def open_snapshot(self) -> None:
        stack = ExitStack()
        self.snapshots.append((stack, tuple(stack.enter_context(store.snapshot()) for store in self.stores)))

    @precondition(lambda self: self.snapshots)
    @rule(which=st.integers(0, 2))
    def close_snapshot(self, which: int) -> None:
        self.snapshots.pop(which % len(self.snapshots))[0].close()

    @rule(which=st.integers(0, 3), table=TABLES, key=KEYS)
    def get(self, which: int, table: Table, key: bytes) -> None:
        self.same(self.views(which), lambda view: view.get(table, key))

    @rule(which=st.integers(0, 3), table=TABLES)
    def count(self, which: int, table: Table) -> None:
        self.same(self.views(which), lambda view: view.count(table))

    @rule(
        which=st.integers(0, 3),
        table=TABLES,
        start=BOUNDS,
        stop=st.none() | BOUNDS,
        reverse=st.booleans(),
        whole=st.booleans(),
    )
    def iterate(
        self, which: int, table: Table, start: bytes, stop: bytes | None, reverse: bool, whole: bool
    ) -> None:
        views = self.views(which)
        if whole:
            self.same(views, lambda view: list(view.items(table, start, stop, reverse=reverse)))
        elif views:
            self.iterations.append(tuple(view.items(table, start, stop, reverse=reverse) for view in views))

    @precondition(lambda self: self.iterations)
    @rule(which=st.integers(0, 9))
    def step(self, which: int) -> None:
        """One step further, whatever was written or has ended meanwhile."""
        place = which % len(self.iterations)
        answers = [outcome(lambda rows: next(rows, None), rows) for rows in self.iterations[place]]
        assert answers[0] == answers[1]
        if not isinstance(answers[0], tuple):
            self.iterations.pop(place)


def outcome(question: Callable[[T], object], asked: T) -> object:
    try:
        return question(asked)
    except (ValueError, StorageClosed) as error:
        return type(error)


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
