"""The fold: a function of the siblings and the time, the same bytes everywhere."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.codec import decode_register, encode_record, encode_register
from crdt.dot import Dot, Millis
from crdt.fold import fold, read_record, version
from crdt.record import Record, Value
from crdt.register import Register, Sibling, join, make_register
from tests.crdt.values import AP, EU, NOW, US, records, registers, tombstone, value

A, B, C, D = Dot(EU, 1), Dot(US, 1), Dot(AP, 1), Dot(AP, 2)


def note(dot: Dot, *seen: Dot, **fields: str) -> bytes:
    """A payload of these fields."""
    stores = {name: {dot: Value(text, NOW)} for name, text in fields.items()}
    return encode_record(Record(Clock.of([dot, *seen]), fields=stores))


def folded_bytes(register: Register, now: int = NOW) -> bytes | None:
    folded = fold(register, Millis(now))
    return None if folded is None else encode_record(folded.record)


SIBLINGS = (
    value(A, payload=note(A, title="a", body="a")),
    value(B, payload=note(B, title="b")),
    value(C, payload=b"damaged"),
    tombstone(D, payload=note(D, A)),
)


@pytest.mark.parametrize("order", list(permutations(SIBLINGS)))
def test_a_fold_does_not_depend_on_the_order_of_arrival(order: tuple[Sibling, ...]) -> None:
    register: Register = ()
    clock = EMPTY_CLOCK
    for sibling in order:
        joined = join(register, (sibling,), clock, Clock.of([sibling.dot]))
        register, clock = joined.register, clock.with_dots(joined.seen)
    assert register == make_register(SIBLINGS)
    assert folded_bytes(register) == folded_bytes(make_register(SIBLINGS))


@given(st.lists(records, min_size=1, max_size=3))
@settings(max_examples=40)
def test_replicas_with_the_same_siblings_fold_to_the_same_bytes(payloads: list[Record]) -> None:
    register = tuple(
        value(Dot(EU, at), payload=encode_record(record)) for at, record in enumerate(payloads, 1)
    )
    stored = decode_register(encode_register(register))
    assert folded_bytes(stored) == folded_bytes(register)


def test_a_reader_sees_the_join_of_the_values_and_what_a_tombstone_leaves_of_them() -> None:
    folded = fold(make_register(SIBLINGS), NOW)
    assert folded is not None
    assert folded.record.fields == {"title": {B: Value("b", NOW)}}
    assert [sibling.dot for sibling in folded.undecodable] == [C]
    assert [sibling.dot for sibling in folded.life.values] == sorted([A, B, C])


@pytest.mark.parametrize("register", [(), (tombstone(A),), (value(A, expires_at=NOW),)])
def test_what_is_absent_has_no_fold(register: Register) -> None:
    assert fold(register, NOW) is None


def test_a_fold_holds_nothing_of_a_value_that_does_not_contribute() -> None:
    dead = value(A, payload=note(A, title="dead", body="dead"), expires_at=NOW - 10, written_at=NOW - 20)
    folded = fold((dead, SIBLINGS[1]), NOW)
    assert folded is not None
    assert folded.record.fields == {"title": {B: Value("b", NOW)}}
    assert not folded.record.context.has(A)


def test_what_does_not_decode_is_left_out_and_named() -> None:
    for register, left_out in (
        ((value(A, payload=b"?"),), [A]),
        ((SIBLINGS[0], value(B, payload=b"?")), [B]),
        ((SIBLINGS[0], tombstone(B, payload=b"?")), []),
        ((value(A, payload=b"?", expires_at=NOW - 1, written_at=NOW - 2), SIBLINGS[1]), []),
    ):
        folded = fold(register, NOW)
        assert folded is not None
        assert [sibling.dot for sibling in folded.undecodable] == left_out


def test_where_nothing_decodes_the_record_is_empty_and_the_entry_lives() -> None:
    folded = fold((value(A, payload=b"?"),), NOW)
    assert folded is not None
    assert folded.record == Record()


def test_one_decodable_value_is_read_as_it_was_written() -> None:
    assert folded_bytes((SIBLINGS[0],)) == SIBLINGS[0].payload


def test_read_record_is_the_record_or_none() -> None:
    assert read_record(SIBLINGS[0]) == Record(
        Clock.of([A]), fields={name: {A: Value("a", NOW)} for name in ("title", "body")}
    )
    assert read_record(SIBLINGS[2]) is None


@given(registers, st.integers(0, 2**63))
def test_a_fold_of_any_payloads_stops_nothing(register: Register, now: int) -> None:
    folded = fold(register, Millis(now))
    if folded is not None:
        assert [s.dot for s in folded.undecodable if s.tombstone] == []


# --- the version


def test_the_version_changes_with_the_values_and_with_nothing_else() -> None:
    a, b = value(A), value(B)
    assert version((a,)) == version((value(A, payload=b"?", expires_at=5),)) == version((a, tombstone(B)))
    versions = [version(register) for register in ((a,), (b,), (a, b), (value(Dot(EU, 11)),), ())]
    assert len(set(versions)) == len(versions)


@pytest.mark.parametrize("register", [(), (tombstone(A),)])
def test_without_a_value_the_version_is_empty(register: Register) -> None:
    assert version(register) == ""


@given(registers, registers)
def test_a_version_names_the_dots_of_the_values(a: Register, b: Register) -> None:
    def values(register: Register) -> list[Dot]:
        return [sibling.dot for sibling in register if not sibling.tombstone]

    assert (version(a) == version(b)) == (values(a) == values(b))
