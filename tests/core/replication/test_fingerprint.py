"""Fingerprints: kept as registers change, they are what counting from scratch would give."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from crdt.codec import encode_record
from crdt.dot import Actor, Dot, Incarnation, Millis
from crdt.key import EntryKey
from crdt.record import EMPTY_RECORD
from crdt.register import Sibling
from replica.core.fingerprint import LEVELS, level_at, parts, recount, same_part
from replica.core.rows import delete_register, put_register
from replica.core.storage import Snapshot, Storage, Table, Transaction
from replica.storage.memory import MemoryStorage

ACTOR = Actor("eu", Incarnation(bytes(16)))
KEYS = [EntryKey.make("r", "t", f"k{number}").to_store() for number in range(400)]


def _put(transaction: Transaction, key: bytes, counter: int) -> None:
    sibling = Sibling(Dot(ACTOR, counter), {}, encode_record(EMPTY_RECORD), False, None, Millis(0))
    put_register(transaction, key, (sibling,), origin=None)


def _outline(snapshot: Snapshot) -> list[list[tuple[bytes, bytes]]]:
    """Every part of every level."""
    found = []
    for level in range(1, LEVELS + 1):
        start, all_parts = b"", []
        while True:
            some = parts(snapshot, level, start, 7)
            all_parts += some
            start = some[-1][0]
            if not start:
                break
        found.append(all_parts)
    return found


def _filled(contents: dict[bytes, int], order: list[bytes]) -> Storage:
    storage = MemoryStorage()
    with storage.transaction() as transaction:
        for key in order:
            _put(transaction, key, contents[key])
    return storage


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 399), st.integers(0, 3)), max_size=300), st.randoms())
def test_a_fingerprint_is_a_function_of_the_contents(moves: list[tuple[int, int]], random: object) -> None:
    storage = MemoryStorage()
    contents: dict[bytes, int] = {}
    with storage.transaction() as transaction:
        for at, counter in moves:
            key = KEYS[at]
            if counter:
                contents[key] = counter
                _put(transaction, key, counter)
            else:
                contents.pop(key, None)
                delete_register(transaction, key)
    order = sorted(contents)
    random.shuffle(order)  # type: ignore[attr-defined]
    other = _filled(contents, order)
    with storage.snapshot() as mine, other.snapshot() as theirs:
        assert _outline(mine) == _outline(theirs)


def test_parts_agree_exactly_where_the_contents_do() -> None:
    contents = dict.fromkeys(KEYS, 1)
    storage, other = _filled(contents, KEYS), _filled({**contents, KEYS[123]: 2}, KEYS)
    with storage.snapshot() as mine, other.snapshot() as theirs:
        start = b""
        different = []
        while True:
            for stop, fingerprint in parts(mine, 1, start, 64):
                if not same_part(theirs, 1, start, stop, fingerprint):
                    different.append((start, stop))
                start = stop
            if not start:
                break
    ((low, high),) = different
    assert low <= KEYS[123] < high or (low <= KEYS[123] and not high)


def test_there_are_parts_of_either_level_and_the_first_starts_everywhere() -> None:
    with _filled(dict.fromkeys(KEYS, 1), KEYS).snapshot() as snapshot:
        assert level_at(snapshot, b"") == LEVELS
        assert 1 < len(_outline(snapshot)[0]) < 40
        assert any(level_at(snapshot, stop) == 1 for stop, _ in parts(snapshot, 1, b"", 64) if stop)


def test_a_row_that_was_damaged_is_counted_anew() -> None:
    storage = _filled(dict.fromkeys(KEYS, 1), KEYS)
    whole = _filled(dict.fromkeys(KEYS, 1), KEYS)
    cut = next(stop for stop, _ in parts_of(storage) if stop)
    for key in (KEYS[5], cut):
        with storage.transaction() as transaction:
            transaction.put(Table.REGISTERS, key, b"damaged")
            _put(transaction, key, 2)
            _put(transaction, key, 1)
            recount(transaction, key)
    with storage.snapshot() as mine, whole.snapshot() as theirs:
        assert _outline(mine) == _outline(theirs)


def parts_of(storage: Storage) -> list[tuple[bytes, bytes]]:
    with storage.snapshot() as snapshot:
        return parts(snapshot, 1, b"", 64)
