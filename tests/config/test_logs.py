"""What is logged, and what never is."""

import io
import json
import logging
import os
from collections.abc import Iterator

import pytest
import structlog

from replica.logs import configure_logs, logger


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def test_without_a_terminal_each_line_is_a_json_object() -> None:
    stream = io.StringIO()
    configure_logs("info", "auto", stream)
    logger(cluster="eu").info("serving", listen="127.0.0.1:1", peers=2)
    logging.getLogger("a.library").warning("it says %s", "so")
    ours, theirs = map(json.loads, stream.getvalue().splitlines())
    assert (ours["event"], ours["level"], ours["cluster"], ours["peers"]) == ("serving", "info", "eu", 2)
    assert ours["timestamp"].endswith("Z")
    assert (theirs["event"], theirs["level"]) == ("it says so", "warning")


def test_on_a_terminal_a_line_is_for_people() -> None:
    stream = Terminal()
    configure_logs("info", "auto", stream)
    logger().info("serving", listen="127.0.0.1:1")
    assert "serving" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_what_is_below_the_level_is_not_written() -> None:
    stream = io.StringIO()
    configure_logs("warning", "json", stream)
    logger().info("quiet")
    logger().warning("loud")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_contents_credentials_and_the_text_of_an_exception_are_never_written() -> None:
    stream = io.StringIO()
    configure_logs("debug", "json", stream)
    logger().info("written", title="hush", body="hush", tags=["hush"], token="hush", authorization="hush")
    for log in (logger().exception, logging.getLogger("a.library").exception):
        try:
            raise ValueError("hush")
        except ValueError:
            log("failed")
    assert "hush" not in stream.getvalue()
    faults = [json.loads(line) for line in stream.getvalue().splitlines()[1:]]
    assert [fault["fault"] for fault in faults] == ["ValueError", "ValueError"]
    assert all("test_logs.py:" in fault["at"] for fault in faults)


def test_control_characters_cannot_rewrite_a_terminal() -> None:
    stream = Terminal()
    configure_logs("info", "human", stream)
    logger().info("refused", reason="red\x1b[2Jherring")
    assert "\x1b[2J" not in stream.getvalue()


def test_a_log_that_cannot_be_written_disturbs_nobody() -> None:
    with os.fdopen(os.open("/dev/full", os.O_WRONLY), "w") as full:
        configure_logs("info", "json", full)
        logger().info("serving")
        logging.getLogger("a.library").warning("it goes on")
        # What the stream still holds cannot be written at its end either.
        with pytest.raises(OSError):
            full.close()
