"""UUIDv7: a function of time and chance whose order is that of time."""

from uuid import RFC_4122

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt.dot import Millis
from replica.core.uuid7 import RANDOM_BYTES, uuid7

TIMES = st.integers(0, 2**48 - 1).map(Millis)
CHANCES = st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES)


@given(TIMES, TIMES, CHANCES, CHANCES)
def test_ids_of_different_milliseconds_sort_by_them_in_every_form(
    a: Millis, b: Millis, chance_a: bytes, chance_b: bytes
) -> None:
    if a == b:
        return
    first, second = uuid7(a, chance_a), uuid7(b, chance_b)
    assert (first < second) == (a < b)
    assert (first.bytes < second.bytes) == (a < b)
    assert (str(first) < str(second)) == (a < b)


@given(TIMES, CHANCES)
def test_an_id_says_its_time_version_and_variant(now: Millis, chance: bytes) -> None:
    made = uuid7(now, chance)
    assert int.from_bytes(made.bytes[:6]) == now
    assert made.version == 7
    assert made.variant == RFC_4122


@given(TIMES, CHANCES, CHANCES)
def test_74_bits_of_chance_tell_ids_of_one_millisecond_apart(now: Millis, a: bytes, b: bytes) -> None:
    def kept(chance: bytes) -> int:
        return int.from_bytes(chance) & (1 << 74) - 1

    assert (uuid7(now, a) == uuid7(now, b)) == (kept(a) == kept(b))


def test_the_example_of_the_rfc() -> None:
    # Appendix A.6: rand_a 0xCC3, rand_b 0x18C4DC0C0C07398F.
    chance = (0xCC3 << 62 | 0x18C4DC0C0C07398F).to_bytes(RANDOM_BYTES)
    assert str(uuid7(Millis(1645557742000), chance)) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@pytest.mark.parametrize(("now", "size"), [(-1, RANDOM_BYTES), (2**48, RANDOM_BYTES), (0, 9), (0, 16)])
def test_what_does_not_fit_is_refused(now: int, size: int) -> None:
    with pytest.raises(ValueError):
        uuid7(Millis(now), bytes(size))
