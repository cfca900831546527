"""The codec: one encoding for every value, and no bytes that do more harm than not to decode."""

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.codec import (
    RECORD_FORMAT,
    REGISTER_FORMAT,
    Damaged,
    Undecodable,
    decode_clock,
    decode_record,
    decode_register,
    decode_runs,
    encode_clock,
    encode_record,
    encode_register,
    encode_runs,
    open_frame,
    seal_frame,
)
from crdt.dot import Dot, Millis
from crdt.record import EMPTY_RECORD, Link, Record, RevisionKey, Value
from crdt.register import Register
from tests.crdt.values import EU, NOW, US, clocks, records, registers, tombstone, value

DECODERS = (decode_record, decode_register, decode_clock, decode_runs)

_PUT = {Dot(EU, 7): Value(None, NOW)}

NOTE = Record(
    context=Clock({EU: (1, 3, 7, 7), US: (2, 2)}),
    fields={
        "title": {Dot(EU, 7): Value("שלום 😀", NOW)},
        "body": {Dot(EU, 3): Value("", NOW), Dot(US, 2): Value("line\nline", Millis(-1))},
        "created_at": {Dot(EU, 7): Value(NOW, NOW)},
        "colour": {Dot(US, 2): Value(b"\xff", NOW), Dot(EU, 7): Value(None, NOW)},
    },
    tags={"a": _PUT, "b": {Dot(US, 2): Value(None, NOW), **_PUT}},
    links={Link("touches", "x"): _PUT, Link("about", "y"): _PUT},
    revisions={RevisionKey("title", Dot(US, 1)): {Dot(EU, 3): Value("old", NOW)}},
)

REGISTER: Register = (
    value(Dot(EU, 7), seen={US: 2, EU: 3}, payload=encode_record(NOTE), expires_at=NOW + 1),
    value(Dot(EU, 8), seen={US: 2, EU: 3}, payload=b"", expires_at=None),
    tombstone(Dot(US, 3), payload=encode_record(EMPTY_RECORD)),
)

T = TypeVar("T")


def reversed_maps(record: Record) -> Record:
    """An equal record whose maps were filled the other way round."""

    def turned(mapping: dict[T, dict[Dot, Value]]) -> dict[T, dict[Dot, Value]]:
        return {key: dict(reversed(list(store.items()))) for key, store in reversed(list(mapping.items()))}

    return Record(
        context=Clock(dict(reversed(list(record.context.runs.items())))),
        fields=turned({key: dict(store) for key, store in record.fields.items()}),
        tags=turned({key: dict(store) for key, store in record.tags.items()}),
        links=turned({key: dict(store) for key, store in record.links.items()}),
        revisions=turned({key: dict(store) for key, store in record.revisions.items()}),
    )


# --- round trips and canonical bytes


@given(records)
@example(NOTE)
@example(EMPTY_RECORD)
def test_a_record_comes_back(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


@given(registers)
@example(REGISTER)
@example(())
def test_a_register_comes_back(register: Register) -> None:
    assert decode_register(encode_register(register)) == register


@given(clocks)
@example(EMPTY_CLOCK)
def test_a_clock_comes_back(clock: Clock) -> None:
    assert decode_clock(encode_clock(clock)) == clock
    for runs in clock.runs.values():
        assert decode_runs(encode_runs(runs)) == runs


@given(records)
@example(NOTE)
def test_equal_records_have_equal_bytes(record: Record) -> None:
    other = reversed_maps(record)
    assert other == record
    assert encode_record(other) == encode_record(record)


@given(registers)
@example(REGISTER)
def test_equal_registers_have_equal_bytes(register: Register) -> None:
    other = tuple(
        replace(sibling, context=dict(reversed(list(sibling.context.items())))) for sibling in register
    )
    assert encode_register(other) == encode_register(register)


@given(clocks)
def test_equal_clocks_have_equal_bytes(clock: Clock) -> None:
    assert encode_clock(Clock(dict(reversed(list(clock.runs.items()))))) == encode_clock(clock)


def test_what_decodes_is_the_value_down_to_the_last_type() -> None:
    again = decode_record(encode_record(NOTE))
    dot = next(iter(again.fields["title"]))
    assert isinstance(dot, Dot)
    assert (dot.actor.cluster, dot.actor.incarnation) == (EU.cluster, EU.incarnation)
    assert isinstance(next(iter(again.links)), Link)
    assert isinstance(next(iter(again.revisions)), RevisionKey)


def test_an_actor_is_written_once() -> None:
    assert encode_record(NOTE).count(EU.incarnation) == 1
    assert encode_register(REGISTER[:2]).count(EU.cluster.encode()) == 2, "once more inside the payload"


@pytest.mark.parametrize("size", [0, 1, 31, 32, 255, 256, 65_535, 65_536])
def test_texts_and_payloads_of_any_length(size: int) -> None:
    record = replace(NOTE, fields={"body": {Dot(EU, 7): Value("x" * size, NOW)}})
    assert decode_record(encode_record(record)) == record
    register = (value(Dot(EU, 7), payload=b"x" * size),)
    assert decode_register(encode_register(register)) == register


# --- damage


def decodes_or_says_so(decode: Callable[[bytes], object], data: bytes) -> bool:
    """Whether the bytes decode. Any error but Undecodable fails the test."""
    try:
        decode(data)
    except Undecodable:
        return False
    return True


def prefixes(data: bytes) -> Iterator[bytes]:
    return (data[:length] for length in range(len(data)))


def flips(data: bytes) -> Iterator[bytes]:
    for at in range(len(data)):
        for bit in range(8):
            yield data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


ENCODINGS = [
    pytest.param(decode_record, encode_record(NOTE), id="record"),
    pytest.param(decode_register, encode_register(REGISTER), id="register"),
    pytest.param(decode_clock, encode_clock(NOTE.context), id="clock"),
    pytest.param(decode_runs, encode_runs((1, 3, 70_000, 80_000)), id="runs"),
]


@pytest.mark.parametrize(("decode", "encoding"), ENCODINGS)
def test_no_truncation_decodes(decode: Callable[[bytes], object], encoding: bytes) -> None:
    assert decodes_or_says_so(decode, encoding)
    for prefix in prefixes(encoding):
        assert not decodes_or_says_so(decode, prefix)


@pytest.mark.parametrize(("decode", "encoding"), ENCODINGS)
def test_bytes_behind_an_encoding_are_refused(decode: Callable[[bytes], object], encoding: bytes) -> None:
    for rest in (b"\0", b"\xc0", b"\xc1", encoding):
        assert not decodes_or_says_so(decode, encoding + rest)


@pytest.mark.parametrize(("decode", "encoding"), ENCODINGS)
def test_a_flipped_bit_decodes_to_something_or_not_at_all(
    decode: Callable[[bytes], object], encoding: bytes
) -> None:
    for flipped in flips(encoding):
        decodes_or_says_so(decode, flipped)


@given(records)
@settings(max_examples=10)
def test_a_flipped_bit_of_any_record_decodes_to_something_or_not_at_all(record: Record) -> None:
    for flipped in flips(encode_record(record)):
        decodes_or_says_so(decode_record, flipped)


@given(st.binary(max_size=60))
@settings(max_examples=200)
def test_garbage_does_no_harm(data: bytes) -> None:
    for decode in DECODERS:
        decodes_or_says_so(decode, data)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 300)
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=12,
)


@given(st.lists(plain, max_size=7), st.sampled_from([[], [RECORD_FORMAT], [REGISTER_FORMAT]]))
@settings(max_examples=200)
def test_messagepack_that_is_no_encoding_does_no_harm(fields: list[object], version: list[object]) -> None:
    data = msgpack.packb([*version, *fields])
    assert isinstance(data, bytes)
    for decode in DECODERS:
        decodes_or_says_so(decode, data)


@given(st.integers(0, 6), plain)
@settings(max_examples=200)
def test_a_record_with_another_thing_in_one_place_does_no_harm(place: int, thing: object) -> None:
    parts = msgpack.unpackb(encode_record(NOTE))
    parts[place] = thing
    decodes_or_says_so(decode_record, msgpack.packb(parts) or b"")


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x91" * 100_000, id="deep lists"),
        pytest.param(b"\x81\xa0" * 100_000, id="deep maps"),
        pytest.param(b"\x97\x01" + b"\x91" * 900 + b"\x90" + b"\x90" * 5, id="deep inside a record"),
        pytest.param(b"\x81\x90\x01", id="a list as a map key"),
        pytest.param(b"\x81\x80\x01", id="a map as a map key"),
        pytest.param(b"\xd6\xff\0\0\0\0", id="a timestamp"),
        pytest.param(b"\xd7\xff" + b"\xff" * 8, id="a timestamp with too many nanoseconds"),
        pytest.param(b"\xc7\x05\xff" + b"\xff" * 5, id="a timestamp of no length"),
        pytest.param(b"\xd8\x07" + b"x" * 16, id="an extension"),
        pytest.param(b"\xc1", id="the unused byte"),
        pytest.param(b"\xa2\xed\xa0", id="text that is no UTF-8"),
        pytest.param(b"\xdb\xff\xff\xff\xff", id="a huge text"),
        pytest.param(b"\xc6\xff\xff\xff\xff", id="huge bytes"),
        pytest.param(b"\xc9\xff\xff\xff\xff\x01", id="a huge extension"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="a huge list"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="a huge map"),
    ],
)
def test_a_hostile_encoding_is_refused(decode: Callable[[bytes], object], data: bytes) -> None:
    assert not decodes_or_says_so(decode, data)


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("header", [b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"])
def test_memory_is_taken_for_what_is_there_not_for_what_is_declared(
    decode: Callable[[bytes], object], header: bytes
) -> None:
    """Each of a thousand nested lists declares as many elements as there are bytes."""
    size = 256 * 1024
    data = (b"\xdd" + (size - 8).to_bytes(4, "big")) * 1000 + header + (size // 2).to_bytes(4, "big")
    data += bytes(size - len(data))
    tracemalloc.start()
    try:
        assert not decodes_or_says_so(decode, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * size


# --- versions


@pytest.mark.parametrize("version", [RECORD_FORMAT + 1, 0, -1, 200, 2**40, True, 1.0, "1", None, b"\x01"])
def test_a_record_or_register_of_another_format_is_undecodable(version: object) -> None:
    for decode, encoding in (
        (decode_record, encode_record(NOTE)),
        (decode_register, encode_register(REGISTER)),
    ):
        parts = msgpack.unpackb(encoding)
        parts[0] = version
        assert not decodes_or_says_so(decode, msgpack.packb(parts) or b"")


def test_the_message_about_a_newer_format_names_it() -> None:
    with pytest.raises(Undecodable, match="format 9"):
        decode_record(msgpack.packb([9, "whatever", "comes"]) or b"")


# --- what is not canonical


def rewritten(
    encoding: bytes, path: tuple[int, ...], change: Callable[[list[object]], list[object]]
) -> bytes:
    """The encoding with the list at a path changed."""

    def at(parts: list[object], path: tuple[int, ...]) -> list[object]:
        if not path:
            return change(parts)
        inner = parts[path[0]]
        assert isinstance(inner, list)
        return [*parts[: path[0]], at(inner, path[1:]), *parts[path[0] + 1 :]]

    return msgpack.packb(at(msgpack.unpackb(encoding), path)) or b""


LISTS = [
    pytest.param(decode_record, encode_record(NOTE), (1,), id="actors"),
    pytest.param(decode_record, encode_record(NOTE), (2,), id="record context"),
    pytest.param(decode_record, encode_record(NOTE), (3,), id="fields"),
    pytest.param(decode_record, encode_record(NOTE), (3, 0, 1), id="dots of a field"),
    pytest.param(decode_record, encode_record(NOTE), (4,), id="tags"),
    pytest.param(decode_record, encode_record(NOTE), (4, 1, 1), id="dots of a tag"),
    pytest.param(decode_record, encode_record(NOTE), (5,), id="links"),
    pytest.param(
        decode_record,
        encode_record(
            replace(NOTE, revisions={RevisionKey(name, Dot(US, 1)): _PUT for name in ("body", "title")})
        ),
        (6,),
        id="revisions",
    ),
    pytest.param(decode_register, encode_register(REGISTER), (2,), id="siblings"),
    pytest.param(decode_clock, encode_clock(NOTE.context), (0,), id="actors of a clock"),
    pytest.param(decode_clock, encode_clock(NOTE.context), (1,), id="rows of a clock"),
]


@pytest.mark.parametrize(("decode", "encoding", "path"), LISTS)
def test_what_is_out_of_order_or_stands_twice_is_refused(
    decode: Callable[[bytes], object], encoding: bytes, path: tuple[int, ...]
) -> None:
    """Else one value would have two encodings, and one of two equal rows would be lost without a word."""
    assert rewritten(encoding, path, lambda rows: rows) == encoding
    assert not decodes_or_says_so(decode, rewritten(encoding, path, lambda rows: rows[::-1]))
    assert not decodes_or_says_so(decode, rewritten(encoding, path, lambda rows: [rows[0], *rows]))
    assert not decodes_or_says_so(decode, rewritten(encoding, path, lambda rows: [*rows, rows[0]]))
    assert not decodes_or_says_so(decode, rewritten(encoding, path, lambda rows: [*rows, rows[-1]]))


@pytest.mark.parametrize("context", [[1, 2, 0, 3], [0, 3, 0, 3], [0], [0, 0], [9, 1], [0, -1], [0, "1"]])
def test_a_malformed_sibling_context_is_refused(context: list[object]) -> None:
    encoding = encode_register(REGISTER)
    assert rewritten(encoding, (2, 0, 2), lambda _: [0, 3, 1, 2]) == encoding
    assert not decodes_or_says_so(decode_register, rewritten(encoding, (2, 0, 2), lambda _: context))


@pytest.mark.parametrize(
    "runs",
    [(), (1,), (1, 2, 3), (0, 1), (3, 2), (1, 2, 3, 4), (1, 5, 4, 9), (5, 6, 1, 2), (1, 2, 9, 8), (-1, 4)],
)
def test_runs_that_are_not_canonical_are_refused(runs: tuple[int, ...]) -> None:
    assert not decodes_or_says_so(decode_runs, encode_runs(runs))


def test_an_element_that_no_write_put_is_refused() -> None:
    assert not decodes_or_says_so(decode_record, rewritten(encode_record(NOTE), (4, 0, 1), lambda _: []))


@pytest.mark.parametrize("thing", [True, 1.5, [], {"a": 1}])
def test_a_field_holds_text_integers_bytes_or_nothing(thing: object) -> None:
    assert not decodes_or_says_so(
        decode_record, rewritten(encode_record(NOTE), (3, 0, 1, 0), lambda row: [*row[:2], thing, row[3]])
    )


@pytest.mark.parametrize("thing", [True, False, 1.0, "1", None])
@pytest.mark.parametrize(
    ("decode", "encoding", "path", "place"),
    [
        pytest.param(decode_record, encode_record(NOTE), (2, 0), 0, id="actor of a record context"),
        pytest.param(decode_record, encode_record(NOTE), (2, 0), 1, id="bound of a run"),
        pytest.param(decode_record, encode_record(NOTE), (3, 0, 1, 0), 0, id="actor of a dot"),
        pytest.param(decode_record, encode_record(NOTE), (3, 0, 1, 0), 1, id="counter"),
        pytest.param(decode_record, encode_record(NOTE), (3, 0, 1, 0), 3, id="time of a value"),
        pytest.param(decode_register, encode_register(REGISTER), (2, 0), 1, id="counter of a sibling"),
        pytest.param(decode_register, encode_register(REGISTER), (2, 0), 5, id="time of a sibling"),
        pytest.param(decode_register, encode_register(REGISTER), (2, 0, 2), 1, id="top of a context"),
    ],
)
def test_a_number_is_an_integer(
    decode: Callable[[bytes], object], encoding: bytes, path: tuple[int, ...], place: int, thing: object
) -> None:
    changed = rewritten(encoding, path, lambda row: [*row[:place], thing, *row[place + 1 :]])
    assert not decodes_or_says_so(decode, changed)


def test_a_tombstone_has_no_expiry() -> None:
    def expiring(row: list[object]) -> list[object]:
        return [*row[:4], NOW, *row[5:]]

    assert not decodes_or_says_so(decode_register, rewritten(encode_register(REGISTER), (2, 2), expiring))


# --- frames


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_a_frame_opens_under_its_key(key: bytes, body: bytes) -> None:
    assert open_frame(key, seal_frame(key, body)) == body


@given(st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=40))
def test_a_frame_opens_under_no_other_key(key: bytes, other: bytes, body: bytes) -> None:
    if key == other:
        return
    with pytest.raises(Damaged):
        open_frame(other, seal_frame(key, body))


@given(st.binary(min_size=1, max_size=20), st.binary(max_size=40))
def test_no_flipped_bit_of_a_frame_or_its_key_goes_unnoticed(key: bytes, body: bytes) -> None:
    frame = seal_frame(key, body)
    for flipped in flips(frame):
        with pytest.raises(Damaged):
            open_frame(key, flipped)
    for flipped in flips(key):
        with pytest.raises(Damaged):
            open_frame(flipped, frame)


def test_no_truncated_or_lengthened_frame_opens() -> None:
    for key, body in ((b"key", encode_register(REGISTER)), (b"key", b""), (b"", b"")):
        frame = seal_frame(key, body)
        for other in (*prefixes(frame), frame + b"\0"):
            with pytest.raises(Damaged):
                open_frame(key, other)
