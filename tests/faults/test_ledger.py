"""The oracle of the soak notices what it is there for: a check that nothing can fail is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.faults.ledger import Ledger

HOUR = 3_600_000


@dataclass(frozen=True)
class Value:
    value: str | int


@dataclass(frozen=True)
class Entry:
    title: str = ""
    tags: tuple[str, ...] = ()
    concurrent: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)


def ledger() -> Ledger:
    """A note, an entry with three titles of which the second was the last acknowledged, a tag, a forgotten
    entry, one of which a forget got no answer, and one that lives for an hour.
    """
    made = Ledger()
    for key, titles in {"note": "a", "latest": "123", "gone": "g", "doubt": "d", "brief": "b"}.items():
        for title in titles:
            made.sending(key, title)
            if title != "3":
                made.remembered(key, title, HOUR if key == "brief" else None)
    made.sending_tag("shared", "t")
    made.tagged("shared", "t")
    made.sending_tag("shared", "unanswered")
    for key in ("gone", "doubt"):
        made.forgetting(key)
    made.forgot("gone", existed=True)
    return made


GOOD = {
    "note": Entry("a"),
    "latest": Entry("2"),
    "shared": Entry(tags=("t",)),
    "brief": Entry("b"),
}


@pytest.mark.parametrize(
    "found",
    [
        GOOD,
        {**GOOD, "doubt": Entry("d")},
        {**GOOD, "latest": Entry("3")},
        {**GOOD, "latest": Entry("1", concurrent={"title": (Value("1"), Value("2"))})},
        {**GOOD, "shared": Entry(tags=("t", "unanswered"))},
    ],
)
def test_what_may_be_is_no_violation(found: dict[str, Entry]) -> None:
    assert not list(ledger().violations(found, 0))


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ({key: entry for key, entry in GOOD.items() if key != "note"}, "note: was acknowledged"),
        ({**GOOD, "note": Entry("b")}, "note: 'a' was acknowledged, and 'b' is there"),
        ({**GOOD, "latest": Entry("1")}, "latest: '2' was acknowledged, and '1' is there"),
        ({**GOOD, "shared": Entry()}, "shared: lacks tags"),
        ({key: entry for key, entry in GOOD.items() if key != "shared"}, "shared: lacks tags"),
        ({**GOOD, "gone": Entry("g")}, "gone: was forgotten, and is back"),
        ({key: entry for key, entry in GOOD.items() if key != "brief"}, "brief: was acknowledged"),
        ({**GOOD, "other": Entry("o")}, "other: nobody wrote it"),
        ({**GOOD, "shared": Entry(tags=("t", "u"))}, "shared: nobody wrote the tags ['u']"),
    ],
)
def test_what_must_not_be_is_named(found: dict[str, Entry], complaint: str) -> None:
    assert any(each.startswith(complaint) for each in ledger().violations(found, 0))


def test_what_is_about_to_expire_is_not_looked_for() -> None:
    found = {key: entry for key, entry in GOOD.items() if key != "brief"}
    assert not list(ledger().violations(found, HOUR))
    assert not list(ledger().violations(found, 0, expiring=False))


def test_a_forget_that_found_nothing_forgets_nothing() -> None:
    made = ledger()
    made.forgetting("note")
    made.forgot("note", existed=False)
    assert not list(made.violations(GOOD, 0))
