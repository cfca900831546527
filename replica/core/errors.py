"""Errors of the core: why a call was refused (DESIGN section 10).

Every refusal is a :class:`Refused`. Its ``code`` is the canonical status it becomes at the edge, once;
``field`` names what in the request is wrong, where something is; ``reason`` says what to do about it and
never repeats a value that could be a body or a credential. A write that was refused changed nothing.
"""

from __future__ import annotations

import enum

__all__ = ["Code", "Refused"]


class Code(enum.Enum):
    """The canonical status codes that a refusal can have; names as in ``google.rpc.Code``."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    """The request is wrong whatever the state of the store."""
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    ABORTED = "ABORTED"
    """The entry has moved on since it was read: read it again."""
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    """The state of the replica does not allow it: retrying alone will not help."""
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    """A limit, a full map or a full disk."""
    OUT_OF_RANGE = "OUT_OF_RANGE"
    DATA_LOSS = "DATA_LOSS"
    """What is stored there is damaged."""
    UNAVAILABLE = "UNAVAILABLE"
    """Try again."""


class Refused(Exception):
    """A call that was refused."""

    def __init__(self, code: Code, reason: str, *, field: str = "") -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.code = code
        self.field = field
        self.reason = reason
