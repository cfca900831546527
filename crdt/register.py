"""The multi-value register at a key, and its join (DESIGN section 4).

A register is the set of siblings that no known write supersedes. Its join needs the clock of either side: a
sibling that one side lacks was superseded (or purged) there if that side's clock has seen its dot, and is
news if it has not. Together with the clocks, registers form a join semilattice: the "optimised" multi-value
register of Almeida, Shoker, Baquero, "Delta state replicated data types" (2018), with purged siblings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crdt.clock import Clock
from crdt.dot import Actor, Dot, Millis

__all__ = [
    "Context",
    "Joined",
    "Register",
    "Sibling",
    "context_over",
    "covers",
    "join",
    "make_register",
]

Context = Mapping[Actor, int]
"""The dots of one key that a writer had seen, as the highest counter of each actor."""


@dataclass(frozen=True, slots=True)
class Sibling:
    """One write that no other known write supersedes."""

    dot: Dot
    context: Context
    """The dots of this key that the write replaces. It may cover dots of other keys: they are never asked
    about.
    """
    payload: bytes
    """An encoded memory record; of a tombstone, an empty one (it carries the record context)."""
    tombstone: bool
    expires_at: Millis | None
    """The absolute time from which the write counts as expired; none: durable. A tombstone has none."""
    written_at: Millis
    """The writer's clock at the write."""


Register = tuple[Sibling, ...]
"""Siblings in the order of their dots. Equal registers are equal values; the empty tuple is the absent
register.
"""


def covers(context: Context, dot: Dot) -> bool:
    """Whether the context has seen the dot (of the same key)."""
    return context.get(dot.actor, 0) >= dot.counter


def make_register(siblings: Iterable[Sibling]) -> Register:
    """The register of these siblings."""
    return tuple(sorted(siblings, key=lambda sibling: sibling.dot))


def context_over(register: Iterable[Sibling]) -> Context:
    """The context of a write that replaces these siblings: their dots and all that they had replaced."""
    out: dict[Actor, int] = {}
    for sibling in register:
        for actor, counter in (*sibling.context.items(), sibling.dot):
            if out.get(actor, 0) < counter:
                out[actor] = counter
    return out


@dataclass(frozen=True, slots=True)
class Joined:
    """What a join gives."""

    register: Register
    purged_there: bool
    """Step 6: a local sibling was dropped on the word of the supplier's clock alone, so the supplier had
    purged it.
    """
    seen: tuple[Dot, ...]
    """Step 4: the dots that the local clock has seen by this join."""
    faults: tuple[Dot, ...]
    """Dots that came with different contents on the two sides: some replica is broken. The greater encoding
    was kept.
    """


def join(local: Register, remote: Register, local_clock: Clock, remote_clock: Clock) -> Joined:
    """Join a supplier's register into the local one (section 4, steps 1 to 4 and 6).

    ``remote_clock`` is the supplier's clock at the storage snapshot that ``remote`` was read in. Commutative,
    associative and idempotent over states (register, clock), provided each dot names one write.
    """
    faults: list[Dot] = []
    mine = {sibling.dot: sibling for sibling in local}
    theirs = {sibling.dot: sibling for sibling in remote}
    kept: dict[Dot, Sibling] = {}
    for dot, sibling in mine.items():
        if dot in theirs or not remote_clock.has(dot):
            kept[dot] = sibling
    for dot, sibling in theirs.items():
        own = mine.get(dot)
        if own is None:
            if not local_clock.has(dot):
                kept[dot] = sibling
        elif own != sibling:
            faults.append(dot)
            kept[dot] = max(own, sibling, key=_weight)
    superseded = [
        dot for dot in kept if any(covers(by.context, dot) for by in kept.values() if by.dot != dot)
    ]
    for dot in superseded:
        del kept[dot]
    purged = any(
        dot not in theirs
        and remote_clock.has(dot)
        and not any(covers(other.context, dot) for other in kept.values())
        for dot in mine
    )
    seen = [*theirs]
    for sibling in remote:
        seen += (Dot(actor, counter) for actor, counter in sibling.context.items())
    return Joined(make_register(kept.values()), purged, tuple(seen), tuple(faults))


def _weight(sibling: Sibling) -> tuple[bool, bytes, int, int, list[tuple[Actor, int]]]:
    """A total order over contents under one dot: which of two a faulty replica made is kept must not depend
    on the side.
    """
    return (
        sibling.tombstone,
        sibling.payload,
        -1 if sibling.expires_at is None else sibling.expires_at,
        sibling.written_at,
        sorted(sibling.context.items()),
    )
