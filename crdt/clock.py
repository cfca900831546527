"""Clocks: sets of dots, kept as runs (DESIGN section 1).

A clock is the set of dots a replica has seen. For most actors that is everything from 1 up to a counter;
while batches are partial there are holes. Per actor the set is a flat tuple of inclusive bounds ``(lo, hi,
lo, hi, …)``, ascending, disjoint and never adjacent, so equal sets are equal values. The run that begins at 1
is the *base*, what lies beyond it the *extras*: the dotted causal containers of Preguiça et al., "Dotted
version vectors" (2012), with the extras compressed.

The record context of a payload (section 3) is the same kind of set, over the dots of one key.

Clocks form a join semilattice under :meth:`Clock.join` (commutative, associative, idempotent), ordered by
:meth:`Clock.leq` (set inclusion). Clocks are immutable.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from crdt.dot import Actor, Dot

__all__ = ["EMPTY_CLOCK", "Clock", "Runs"]

Runs = tuple[int, ...]
"""Inclusive bounds ``(lo, hi, lo, hi, …)``: ascending, disjoint, not adjacent; every bound at least 1."""

_NOTHING: Runs = ()


def _union(a: Runs, b: Runs) -> Runs:
    """The runs of the union of two sets of counters."""
    if a == b or not b:
        return a
    if not a:
        return b
    if a[0] == 1 and b[0] == 1 and len(a) == 2 and len(b) == 2:
        return a if a[1] >= b[1] else b
    out: list[int] = []
    for lo, hi in sorted([*zip(a[::2], a[1::2], strict=True), *zip(b[::2], b[1::2], strict=True)]):
        if out and lo <= out[-1] + 1:
            out[-1] = max(out[-1], hi)
        else:
            out += (lo, hi)
    return tuple(out)


def _within(a: Runs, b: Runs) -> bool:
    """Whether every counter of ``a`` is in ``b``."""
    for lo, hi in zip(a[::2], a[1::2], strict=True):
        at = bisect_left(b, hi) | 1
        if at >= len(b) or b[at - 1] > lo or b[at] < hi:
            return False
    return True


def _compress(counters: Iterable[int]) -> Runs:
    out: list[int] = []
    for counter in sorted(counters):
        if out and counter <= out[-1] + 1:
            out[-1] = max(out[-1], counter)
        else:
            out += (counter, counter)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Clock:
    """An immutable set of dots."""

    runs: Mapping[Actor, Runs] = field(default_factory=lambda: MappingProxyType({}))
    """The runs of each actor; no actor without any."""

    @classmethod
    def of(cls, dots: Iterable[Dot]) -> Clock:
        """The set of the given dots."""
        return EMPTY_CLOCK.with_dots(dots)

    @classmethod
    def up_to(cls, counters: Mapping[Actor, int]) -> Clock:
        """Every dot of each actor from 1 up to its counter."""
        return cls({actor: (1, counter) for actor, counter in counters.items() if counter > 0})

    def has(self, dot: Dot) -> bool:
        """Whether the dot is in the set."""
        runs = self.runs.get(dot.actor)
        if runs is None:
            return False
        counter = dot.counter
        if runs[0] <= counter <= runs[1]:
            return True
        at = bisect_left(runs, counter)
        return at % 2 == 1 or (at < len(runs) and runs[at] == counter)

    def join(self, other: Clock) -> Clock:
        """The union of both sets."""
        if not other.runs or self is other:
            return self
        if not self.runs:
            return other
        runs = dict(self.runs)
        changed = False
        for actor, theirs in other.runs.items():
            mine = runs.get(actor, _NOTHING)
            both = _union(mine, theirs)
            if both != mine:
                runs[actor] = both
                changed = True
        return Clock(runs) if changed else self

    def with_dots(self, dots: Iterable[Dot]) -> Clock:
        """The set with these dots added."""
        new: dict[Actor, list[int]] = {}
        for dot in dots:
            if not self.has(dot):
                new.setdefault(dot.actor, []).append(dot.counter)
        if not new:
            return self
        runs = dict(self.runs)
        for actor, counters in new.items():
            runs[actor] = _union(runs.get(actor, _NOTHING), _compress(counters))
        return Clock(runs)

    def with_run(self, actor: Actor, first: int, last: int) -> Clock:
        """The set with every dot of the actor from ``first`` to ``last`` added; unchanged when ``first >
        last``.
        """
        if first > last:
            return self
        return self.join(Clock({actor: (first, last)}))

    def leq(self, other: Clock) -> bool:
        """Whether this set is included in the other: the other *dominates* it."""
        return all(_within(runs, other.runs.get(actor, _NOTHING)) for actor, runs in self.runs.items())

    def base(self, actor: Actor) -> int:
        """The counter up to which every dot of the actor is in the set; 0 when the first is missing."""
        runs = self.runs.get(actor)
        return runs[1] if runs is not None and runs[0] == 1 else 0

    def top(self, actor: Actor) -> int:
        """The highest counter of the actor in the set; 0 when there is none."""
        runs = self.runs.get(actor)
        return runs[-1] if runs is not None else 0

    def covers_without_gap(self, context: Mapping[Actor, int]) -> bool:
        """Whether the base of every actor reaches its counter in a register context (section 6)."""
        return all(self.base(actor) >= counter for actor, counter in context.items())

    def extras(self) -> int:
        """How many dots lie beyond a base."""
        total = 0
        for actor, runs in self.runs.items():
            total += sum(hi - lo + 1 for lo, hi in zip(runs[::2], runs[1::2], strict=True)) - self.base(actor)
        return total

    def gaps(self, actor: Actor) -> Runs:
        """The runs of the actor that are missing below its highest counter."""
        runs = self.runs.get(actor, _NOTHING)
        out: list[int] = []
        for hi, lo in zip((0, *runs[1::2]), runs[::2], strict=False):
            if hi + 1 < lo:
                out += (hi + 1, lo - 1)
        return tuple(out)

    def actors(self) -> Iterator[Actor]:
        """The actors of whom any dot is in the set, in order."""
        return iter(sorted(self.runs))

    def __bool__(self) -> bool:
        return bool(self.runs)

    def __hash__(self) -> int:
        return hash(frozenset(self.runs.items()))


EMPTY_CLOCK = Clock()
"""The clock that has seen nothing: the bottom of the lattice."""
