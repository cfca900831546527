"""The page about faults says what the tests test, and knows every error that is logged."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.faults import logs
from tests.faults.injectors import INJECTORS

ROOT = logs.PAGE.parents[1]
_LOGGING = {f"_log.{level}" for level in ("error", "exception", "critical")}


def names() -> set[str]:
    """The names of the tests of this folder."""
    found: set[str] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        found |= set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    return found


def logged() -> set[str]:
    """The events that the package logs as errors."""
    found = set()
    for path in (ROOT / "replica").rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
        for call in calls:
            if ast.unparse(call.func) in _LOGGING:
                event = ast.literal_eval(call.args[0])
                assert isinstance(event, str), f"{path.name}:{call.lineno}: the event is no text"
                found.add(event)
    return found


def test_every_fault_on_the_page_has_its_test() -> None:
    named = re.findall(r"\| `(test_\w+)` \|$", logs.PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(named) == len(set(named)) >= 14
    assert set(named) <= names()


def test_every_error_that_is_logged_is_on_the_page_and_every_one_there_is_logged() -> None:
    assert len(logged()) >= 8
    assert {*logs.remedies(), *logs.defects()} == logged()
    assert not logs.remedies().keys() & logs.defects().keys()


def test_a_log_with_anything_else_is_noticed(tmp_path: Path) -> None:
    log = tmp_path / "eu.log"
    log.write_text(
        '{"event": "serving", "level": "info"}\n'
        '{"event": "a row is damaged", "level": "error"}\n'
        '{"event": "a call failed", "level": "error"}\n'
        "Traceback (most recent call last):\n"
    )
    found = logs.unexplained(log)
    assert len(found) == 2
    assert "a call failed" in found[0]
    assert "Traceback" in found[1]


def test_every_kind_of_fault_can_strike_in_a_soak() -> None:
    assert len(INJECTORS) >= 14
