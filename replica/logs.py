"""Logging: for people on a terminal, one JSON object a line otherwise. To standard error.

A log names keys, clusters, codes and counts. It never holds what an entry says, nor a credential: values
under such names are left out, and an exception is logged as its type and its place, without its text.
"""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

__all__ = ["Format", "Level", "configure_logs", "fault", "is_human", "logger"]

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "human", "json"]

_NEVER = frozenset(
    {
        "author",
        "authorization",
        "body",
        "credential",
        "password",
        "payload",
        "provenance",
        "secret",
        "tags",
        "title",
        "token",
    }
)


class _Written:
    """What the log is written to. Where that fails, because a disk is full or a reader has gone, the line is
    lost and nothing else: whoever said it goes on.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def is_human(format: Format, stream: TextIO) -> bool:
    """Whether what is written to the stream is for people."""
    return format == "human" or (format == "auto" and stream.isatty())


def _discreet(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Leaves out what must not be there, and control characters, which could rewrite a terminal."""
    return {
        name: "".join(part if part.isprintable() else "?" for part in value)
        if isinstance(value, str)
        else value
        for name, value in event.items()
        if name not in _NEVER
    }


def _without_text(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """An exception as its type and its place."""
    found = event.pop("exc_info", None)
    error = sys.exc_info()[1] if found is True else found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        event.update(fault(error))
    return event


def fault(error: BaseException) -> dict[str, str]:
    """What a log says of an exception: its type, and where it was raised, the innermost call first."""
    frames = reversed(traceback.extract_tb(error.__traceback__)[-8:])
    places = (f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
    return {"fault": type(error).__name__, "at": ", ".join(places)}


def configure_logs(level: Level, format: Format, stream: TextIO = sys.stderr) -> None:
    """Set up logging for the process: ours, and that of the libraries from warnings up."""
    written = _Written(stream)
    first: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_text,
        _discreet,
    ]
    last: Processor
    if is_human(format, stream):
        last = structlog.dev.ConsoleRenderer(colors=stream.isatty(), sort_keys=False)
    else:
        last = structlog.processors.JSONRenderer(ensure_ascii=False, sort_keys=False)
    structlog.configure(
        processors=[*first, last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, written)),
    )
    handler = logging.StreamHandler(written)
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=first, processors=[remove, last])
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


def logger(**context: object) -> FilteringBoundLogger:
    """A logger that says this context with every line."""
    bound: FilteringBoundLogger = structlog.get_logger(**context)
    return bound
