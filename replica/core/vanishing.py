"""Registers that vanish without a change in the log (DESIGN sections 6 and 10).

A purge leaves no row to tell of it. What is remembered is the highest sequence that vanished so: a reader of
the log that stood below it may have missed something, and a token of such a place is too old. The same holds
of lapses: a register that vanishes takes its row of the expiry index along, so what is remembered, too, is
the latest expiry that vanished since any moment a reader may have been here last.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

from crdt.dot import Millis
from crdt.expiry import contributing, expiry_in_force
from crdt.register import Register
from replica.core.rows import delete_register, get_meta, put_meta, read_register, read_sequence
from replica.core.storage import DamagedRow, Snapshot, Transaction

__all__ = ["NEVER", "Vanished", "drop_register", "get_vanished"]

NEVER = Millis(2**63 - 1)
"""The expiry of what had none, or of what nobody can tell."""

_VANISHED = "vanished"
_STEPS = 16


@dataclass(frozen=True, slots=True)
class Vanished:
    """What has vanished from this store so far."""

    sequence: int = 0
    """The highest sequence whose row vanished from the change log without a later one; 0: none ever did."""
    count: int = 0
    """How many registers with a value have vanished."""
    steps: tuple[tuple[int, Millis], ...] = ()
    """Of some of them the number and the expiry, in ascending and descending order: each has a later expiry
    than all that came after it.
    """

    def latest_since(self, count: int) -> Millis | None:
        """The latest expiry among the registers that vanished after the first ``count``; none: none did."""
        return next((expires_at for number, expires_at in self.steps if number > count), None)

    def _with_sequence(self, sequence: int) -> Vanished:
        return Vanished(max(sequence, self.sequence), self.count, self.steps)

    def _with_value(self, expires_at: Millis) -> Vanished:
        number = self.count + 1
        steps = (*(step for step in self.steps if step[1] > expires_at), (number, expires_at))
        if len(steps) > _STEPS:
            # Two become one that claims more than either: a reader is sent away once too often, never misled.
            *rest, (_, later), (newer, _) = steps
            steps = (*rest, (newer, later))
        return Vanished(self.sequence, number, steps)


def get_vanished(snapshot: Snapshot) -> Vanished:
    """What has vanished from a store. Raises DamagedRow."""
    value = get_meta(snapshot, _VANISHED)
    if value is None:
        return Vanished()
    sequence, count, steps = msgpack.unpackb(value)
    return Vanished(sequence, count, tuple((number, Millis(expires_at)) for number, expires_at in steps))


def _put(transaction: Transaction, vanished: Vanished) -> None:
    value = msgpack.packb((vanished.sequence, vanished.count, vanished.steps))
    assert value is not None
    put_meta(transaction, _VANISHED, value)


def _expiry(register: Register) -> Millis:
    expires_at = expiry_in_force(contributing(register))
    return NEVER if expires_at is None else expires_at


def drop_register(transaction: Transaction, key: bytes) -> None:
    """Remove a register and its change-log row; its dots stay in the clock."""
    vanished = get_vanished(transaction)
    try:
        register, sequence = read_register(transaction, key), read_sequence(transaction, key)
    except DamagedRow:
        vanished = vanished._with_value(NEVER)
    else:
        if sequence is not None:
            vanished = vanished._with_sequence(sequence)
        if any(not sibling.tombstone for sibling in register):
            vanished = vanished._with_value(_expiry(register))
    _put(transaction, vanished)
    delete_register(transaction, key)
