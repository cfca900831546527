"""How this replica's own clock goes, and what follows when it was set (DESIGN section 6).

What is stored of the members, when they were last heard and how their clocks differ, is by this replica's
clock. So a step of it must be found out before anything is decided by those rows, not some time afterwards: a
purge right after a step would take the wild time for everybody's. Each transaction compares the clock with
the time that has gone by since the start, ``elapsed``, which nobody can set. What it is compared with stands
in the store: so work that is run again finds what it found before, and a step counts exactly once.
"""

from __future__ import annotations

from crdt.dot import Millis
from replica.core.membership import clock_stepped
from replica.core.rows import get_meta, put_meta
from replica.core.storage import Snapshot, Transaction

__all__ = ["begin_time", "settle_time", "stepped_by"]

_BASE = "clock minus elapsed"
_STEP = 1_000
"""Milliseconds that a clock may drift before it counts as set."""


def begin_time(transaction: Transaction, now: Millis, elapsed: Millis) -> None:
    """A life of this replica begins; ``elapsed`` means nothing in another one."""
    put_meta(transaction, _BASE, str(now - elapsed).encode())


def stepped_by(snapshot: Snapshot, now: Millis, elapsed: Millis) -> Millis:
    """By how much the clock was set since the members' rows were last brought into line with it."""
    base = get_meta(snapshot, _BASE)
    step = 0 if base is None else now - elapsed - int(base)
    return Millis(step if abs(step) > _STEP else 0)


def settle_time(transaction: Transaction, now: Millis, elapsed: Millis) -> Millis:
    """Bring the members' rows into line with the clock; by how much it was set."""
    step = stepped_by(transaction, now, elapsed)
    if step:
        clock_stepped(transaction, step)
        begin_time(transaction, now, elapsed)
    return step
