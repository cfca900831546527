"""Durations read as people write them, and read back as they are written out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt.dot import Millis
from replica.durations import LONGEST, InvalidDuration, format_duration, parse_duration, parse_ttl


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("90s", 90_000),
        ("12h", 43_200_000),
        ("30d", 2_592_000_000),
        ("2w", 1_209_600_000),
        ("250ms", 250),
        ("1h30m", 5_400_000),
        ("1d 12h", 129_600_000),
        (" 1.5h ", 5_400_000),
        ("0.5s", 500),
        ("10S", 10_000),
        ("36500d", LONGEST),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, millis: int) -> None:
    assert parse_duration(text) == millis
    assert parse_ttl(text) == millis


@pytest.mark.parametrize("text", ["none", "None", " NONE "])
def test_only_a_ttl_can_be_none(text: str) -> None:
    assert parse_ttl(text) is None
    with pytest.raises(InvalidDuration):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no duration"),
        ("soon", "is no duration"),
        ("90", "lacks a unit"),
        ("1h30", "is no duration"),
        ("0s", "must be positive"),
        ("0.0001ms", "must be positive"),
        ("-5s", "must be positive"),
        ("36501d", "is too long"),
        ("9" * 50 + "d", "is too long"),
        ("9" * 500 + "d", "is no duration"),
        ("inf", "is no duration"),
        ("nan", "is no duration"),
        ("1e9s", "is no duration"),
        ("5m1h", "out of order"),
        ("5m5m", "out of order"),
        ("٣s", "is no duration"),
        ("5y", "is no duration"),
    ],
)
def test_anything_else_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(InvalidDuration, match=words):
        parse_duration(text)
    with pytest.raises(InvalidDuration, match="or none"):
        parse_ttl(text)


@given(st.integers(1, LONGEST))
def test_reading_what_was_written_gives_it_back(millis: int) -> None:
    assert parse_duration(format_duration(Millis(millis))) == millis


@pytest.mark.parametrize(
    ("millis", "text"),
    [(None, "none"), (0, "0s"), (90_000, "1m30s"), (1_209_600_000, "14d"), (-1_500, "-1s500ms")],
)
def test_a_duration_is_written_exactly(millis: int | None, text: str) -> None:
    assert format_duration(None if millis is None else Millis(millis)) == text
