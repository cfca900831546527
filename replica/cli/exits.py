"""Exit codes, and how a failure is said: one line on standard error that names what, where and the remedy.

With ``--json`` the line is a JSON object with the members ``code`` (the gRPC code in words), ``message``,
``field``, ``remedy`` and ``exit_code``; the middle two may be null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum

import grpc

from replica.client import RicordoError

__all__ = ["ExitCode", "Failure", "failure_of", "naming", "usage"]


class ExitCode(IntEnum):
    """What the process ends with. The numbers do not change between versions."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNAVAILABLE = 4
    CONFLICT = 5
    PRECONDITION = 6
    EXHAUSTED = 7
    INTERRUPTED = 130
    BROKEN_PIPE = 141

    @property
    def meaning(self) -> str:
        """In words, for the manual."""
        return _MEANINGS[self]


_MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.OK: "done",
    ExitCode.REFUSED: "something was refused or failed (of an import: lines), or compared replicas differ",
    ExitCode.USAGE: "a wrong option, argument or value; nothing was changed",
    ExitCode.NOT_FOUND: "no such entry: absent, forgotten or past its expiry; no such peer or member",
    ExitCode.UNAVAILABLE: "the replica could not be reached, or did not answer in time",
    ExitCode.CONFLICT: "the entry exists already, or is not of the version asked for",
    ExitCode.PRECONDITION: "the state of the replica forbids it: a clock is ahead, a token is too old",
    ExitCode.EXHAUSTED: "the disk or the store is full, or the answer too large",
    ExitCode.INTERRUPTED: "interrupted from the keyboard",
    ExitCode.BROKEN_PIPE: "the reader of the output has gone",
}

_BY_CODE: Mapping[grpc.StatusCode, ExitCode] = {
    grpc.StatusCode.INVALID_ARGUMENT: ExitCode.USAGE,
    grpc.StatusCode.OUT_OF_RANGE: ExitCode.PRECONDITION,
    grpc.StatusCode.NOT_FOUND: ExitCode.NOT_FOUND,
    grpc.StatusCode.UNAVAILABLE: ExitCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: ExitCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED: ExitCode.UNAVAILABLE,
    grpc.StatusCode.ALREADY_EXISTS: ExitCode.CONFLICT,
    grpc.StatusCode.ABORTED: ExitCode.CONFLICT,
    grpc.StatusCode.FAILED_PRECONDITION: ExitCode.PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ExitCode.EXHAUSTED,
}


class Failure(Exception):
    """A command cannot do what it was asked to."""

    def __init__(
        self,
        exit_code: ExitCode,
        message: str,
        *,
        field: str | None = None,
        remedy: str | None = None,
        code: grpc.StatusCode | None = None,
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
        self.field = field
        self.remedy = remedy
        self.code = code

    def line(self) -> str:
        """The one line for people: field, message, remedy."""
        where = f"{self.field}: " if self.field and not self.message.startswith(self.field) else ""
        remedy = f"; {self.remedy}" if self.remedy and self.remedy not in self.message else ""
        return " ".join(f"{where}{self.message}{remedy}".split())

    def as_json(self) -> str:
        """The one line for programs."""
        code = self.code.name if self.code is not None else self.exit_code.name
        said = {
            "code": code,
            "message": self.message,
            "field": self.field,
            "remedy": self.remedy,
            "exit_code": int(self.exit_code),
        }
        return json.dumps({"error": said}, ensure_ascii=False)


def usage(message: str, *, field: str | None = None, remedy: str | None = None) -> Failure:
    """The failure of a wrong option, argument or value; `field` is spelt as on the command line."""
    return Failure(ExitCode.USAGE, message, field=field, remedy=remedy, code=grpc.StatusCode.INVALID_ARGUMENT)


@contextmanager
def naming(key: str) -> Iterator[None]:
    """Name the entry where a call says that none is there."""
    try:
        yield
    except RicordoError as error:
        if error.code is not grpc.StatusCode.NOT_FOUND:
            raise
        raise Failure(
            ExitCode.NOT_FOUND,
            f"no live entry at {key}",
            remedy="remember it first",
            code=error.code,
        ) from error


def failure_of(error: RicordoError, address: str) -> Failure:
    """What a failed call means to whoever typed the command."""
    message, remedy = error.message, error.remedy
    if error.reason is None and error.code is grpc.StatusCode.UNAVAILABLE:
        # The connection's own words, of which the last say what happened.
        message = f"no replica answers at {address} ({error.message.rpartition(': ')[2]})"
        remedy = "start one with 'ricordo serve', or name another with --address"
    elif error.reason is None and error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        message = f"the replica at {address} did not answer in time"
        remedy = "allow more with --timeout; a write may have been made"
    elif error.code is grpc.StatusCode.UNIMPLEMENTED:
        message = f"what answers at {address} does not know this call"
        remedy = "check that it is the address of a Ricordo replica, and its version"
    exit_code = _BY_CODE.get(error.code, ExitCode.REFUSED)
    return Failure(exit_code, message, field=error.field, remedy=remedy, code=error.code)
