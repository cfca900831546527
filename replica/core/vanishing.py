"""Registers that vanish without a change in the log (DESIGN sections 6 and 10).

A purge leaves no row to tell of it. What is remembered is the highest sequence that vanished so: a reader of
the log that stood below it may have missed something, and a token of such a place is too old.
"""

from __future__ import annotations

from replica.core.rows import delete_register, get_meta, put_meta, read_sequence
from replica.core.storage import DamagedRow, Snapshot, Transaction

__all__ = ["drop_register", "get_vanished"]

_VANISHED = "vanished"


def get_vanished(snapshot: Snapshot) -> int:
    """The highest sequence whose row vanished from the change log without a later one; 0: none ever did."""
    value = get_meta(snapshot, _VANISHED)
    return 0 if value is None else int.from_bytes(value, "big")


def drop_register(transaction: Transaction, key: bytes) -> None:
    """Remove a register and its change-log row; its dots stay in the clock."""
    try:
        sequence = read_sequence(transaction, key)
    except DamagedRow:
        sequence = None
    if sequence is not None and sequence > get_vanished(transaction):
        put_meta(transaction, _VANISHED, sequence.to_bytes(8, "big"))
    delete_register(transaction, key)
