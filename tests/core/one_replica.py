"""One replica for tests: a store, a node and a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import pytest

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.codec import encode_record
from crdt.dot import Actor, Dot, Incarnation, Millis
from crdt.key import EntryKey
from crdt.record import Record, Scalar, Value
from crdt.register import Register, Sibling
from replica.core.commands import Forget, Links, Remember, Update
from replica.core.counts import Counting, Counts, get_counts
from replica.core.digest import Digest, get_digest
from replica.core.entry import Entry, History
from replica.core.errors import Code, Refused
from replica.core.identity import Identity
from replica.core.limits import DEFAULT_LIMITS, Limits
from replica.core.listing import list_repos, list_topics
from replica.core.node import Node
from replica.core.policy import DURABLE, TtlPolicy
from replica.core.reading import history, recall, scan
from replica.core.results import Forgotten, Remembered, Updated
from replica.core.rows import get_clock, get_register, put_clock, put_register
from replica.core.storage import Storage, Table
from replica.storage.memory import MemoryStorage

T = TypeVar("T")

START = Millis(1_700_000_000_000)
KEY = EntryKey("repo", "topic", "id")
HOME = Identity("home", Incarnation(bytes(16)), b"s" * 16)

Dump = Mapping[Table, tuple[tuple[bytes, bytes], ...]]


class Replica:
    """A replica whose clock stands still until the test moves it."""

    def __init__(
        self,
        storage: Storage | None = None,
        *,
        policy: TtlPolicy = DURABLE,
        limits: Limits = DEFAULT_LIMITS,
        identity: Identity = HOME,
    ) -> None:
        self.storage = storage or MemoryStorage()
        self.node = Node(identity, policy, limits)
        self.now = START
        self.slowest: Millis | None = None
        """None: the own clock is the slowest."""

    def _slowest(self) -> Millis:
        return self.now if self.slowest is None else self.slowest

    def remember(self, command: Remember) -> Remembered:
        return self.storage.run(lambda t: self.node.remember(t, command, self.now, self._slowest()))

    def update(self, command: Update) -> Updated:
        return self.storage.run(lambda t: self.node.update(t, command, self.now, self._slowest()))

    def forget(self, command: Forget) -> Forgotten:
        return self.storage.run(lambda t: self.node.forget(t, command, self.now, self._slowest()))

    def do(self, command: Remember | Update | Forget) -> Remembered | Updated | Forgotten:
        match command:
            case Remember():
                return self.remember(command)
            case Update():
                return self.update(command)
            case Forget():
                return self.forget(command)

    def recall(self, key: EntryKey = KEY) -> Entry:
        with self.storage.snapshot() as snapshot:
            return recall(snapshot, key, self.now)

    def history(self, key: EntryKey = KEY) -> History:
        with self.storage.snapshot() as snapshot:
            return history(snapshot, key, self.now)

    def register(self, key: EntryKey = KEY) -> Register:
        with self.storage.snapshot() as snapshot:
            return get_register(snapshot, key)

    def clock(self) -> Clock:
        with self.storage.snapshot() as snapshot:
            return get_clock(snapshot)

    def scan_all(self, repo_id: str = "repo", topic: str | None = None, page_size: int = 0) -> list[Entry]:
        found: list[Entry] = []
        token = ""
        while True:
            with self.storage.snapshot() as snapshot:
                page = scan(snapshot, repo_id, topic, page_size, token, self.now, self.node.limits)
            found += page.entries
            token = page.next_page_token
            if not token:
                return found

    def topics(self, repo_id: str = "repo") -> dict[str, int]:
        with self.storage.snapshot() as snapshot:
            names = list_topics(snapshot, repo_id, 0, "", self.now)
        assert not names.next_page_token
        return {count.name: count.live for count in names.counts}

    def repos(self) -> dict[str, int]:
        with self.storage.snapshot() as snapshot:
            names = list_repos(snapshot, 0, "", self.now)
        assert not names.next_page_token
        return {count.name: count.live for count in names.counts}

    def digest(self, repo_id: str | None = None, at: Millis | None = None) -> Digest:
        with self.storage.snapshot() as snapshot:
            return get_digest(snapshot, self.now if at is None else at, repo_id)

    def counts(self) -> Counts:
        """As every row says. While none is damaged the indexes say the same."""
        counting = Counting(self.now)
        with self.storage.snapshot() as snapshot:
            counting.run(snapshot)
            indexed = get_counts(snapshot, self.now)
        if not counting.damaged:
            assert replace(indexed, undecodable=counting.counts.undecodable) == counting.counts
        return counting.counts

    def dump(self) -> Dump:
        """Everything that is stored."""
        with self.storage.snapshot() as snapshot:
            return {table: tuple(snapshot.items(table)) for table in Table}

    def arrive(self, *siblings: Sibling, key: EntryKey = KEY) -> None:
        """Siblings beside those that are there, as replication would bring them."""
        register = tuple(sorted((*self.register(key), *siblings), key=lambda sibling: sibling.dot))
        before = self.clock()
        after = before.with_dots(sibling.dot for sibling in siblings)

        with self.storage.transaction() as transaction:
            put_register(transaction, key.to_store(), register, origin=None)
            put_clock(transaction, before, after)

    def row(self, key: EntryKey = KEY) -> bytes | None:
        """The row of a key, as it lies in the store."""
        with self.storage.snapshot() as snapshot:
            return snapshot.get(Table.REGISTERS, key.to_store())

    def damage(self, key: EntryKey = KEY) -> None:
        """Flip a bit in the row of a key."""
        with self.storage.transaction() as transaction:
            frame = transaction.get(Table.REGISTERS, key.to_store())
            assert frame is not None
            transaction.put(Table.REGISTERS, key.to_store(), frame[:-1] + bytes([frame[-1] ^ 1]))

    def refuses(self, code: Code, field: str, call: Callable[[], object]) -> Refused:
        """Check that a call is refused so, names the field, and changes nothing."""
        before = self.dump()
        with pytest.raises(Refused) as caught:
            call()
        assert (caught.value.code, caught.value.field) == (code, field), caught.value
        assert caught.value.reason
        assert self.dump() == before
        return caught.value


def actor(cluster: str) -> Actor:
    return Actor(cluster, Incarnation(cluster.encode().ljust(16, b"\0")))


def sibling(
    cluster: str,
    counter: int = 1,
    *,
    fields: Mapping[str, Scalar] | None = None,
    tags: tuple[str, ...] = (),
    expires_at: int | None = None,
    written_at: int = START,
    payload: bytes | None = None,
    tombstone: bool = False,
) -> Sibling:
    """A write of another cluster that has seen nothing of this key."""
    dot = Dot(actor(cluster), counter)
    values = {} if tombstone else {"kind": "Note", "created_at": written_at, **(fields or {})}
    record = Record(
        context=EMPTY_CLOCK.with_dots([dot]),
        fields={name: {dot: Value(value, Millis(written_at))} for name, value in values.items()},
        tags={tag: {dot: Value(None, Millis(written_at))} for tag in tags},
    )
    return Sibling(
        dot=dot,
        context={},
        payload=encode_record(record) if payload is None else payload,
        tombstone=tombstone,
        expires_at=None if expires_at is None else Millis(expires_at),
        written_at=Millis(written_at),
    )


def links(**targets: str | tuple[str, ...]) -> tuple[Links, ...]:
    return tuple(
        Links(relation, (of_relation,) if isinstance(of_relation, str) else of_relation)
        for relation, of_relation in targets.items()
    )
