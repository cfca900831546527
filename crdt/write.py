"""What a local write makes of the register it reads (DESIGN section 4; docs/decisions/0002).

A write replaces every sibling it reads. It folds some of them into the record it makes and carries along,
verbatim, those live ones whose payload it cannot read. What it makes shares one context, which covers all
that was replaced and none of what it made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.codec import encode_record
from crdt.dot import Dot, Millis
from crdt.expiry import Life
from crdt.fold import fold, read_record
from crdt.record import Edit, Record, concurrent, edited, shown
from crdt.register import Register, Sibling, context_over, make_register

__all__ = ["CREATION_FIELDS", "Basis", "basis", "bury", "lapse", "rewrite", "saying_again"]

CREATION_FIELDS = ("kind", "created_at")
"""The fields that a creation sets, and that later writes say again."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What a remember, an update or a lapse finds at a key."""

    register: Register
    """Everything there: the write replaces it."""
    record: Record
    """What the write builds on: the fold of a live entry; of an absent one, what its tombstones had seen."""
    life: Life | None
    """None: the entry is absent, and a remember creates it."""
    undecodable: Register
    """Live siblings that are carried along verbatim."""


def basis(register: Register, now: Millis) -> Basis:
    """Read a register for a write at ``now``."""
    found = fold(register, now)
    if found is None:
        tombstones = (sibling for sibling in register if sibling.tombstone)
        return Basis(register, Record(context=_seen(tombstones)), None, ())
    return Basis(register, found.record, found.life, found.undecodable)


def saying_again(basis: Basis, edit: Edit) -> Edit:
    """The edit, with what a creation set put again, so that an entry that survives a concurrent forget keeps
    it.

    Where concurrent creations disagree on ``created_at``, the one that is shown settles it: no caller could.
    A ``kind`` in dispute is left to a caller who names one.
    """
    again = {
        name: shown(store).value
        for name in CREATION_FIELDS
        if (store := basis.record.fields.get(name)) and (name == "created_at" or not concurrent(store))
    }
    return replace(edit, fields={**again, **edit.fields})


def _seen(siblings: Iterable[Sibling]) -> Clock:
    """The record contexts of those siblings that decode."""
    records = (read_record(sibling) for sibling in siblings)
    return reduce(Clock.join, (record.context for record in records if record is not None), EMPTY_CLOCK)


def _with_own(seen: Clock, register: Register, dot: Dot) -> Clock:
    """The record context of a write: what was folded, and the write's own dot.

    The run of the own dot begins just above the last dot of this actor that the replaced siblings know of.
    None in between belongs to this key, so nothing unfolded is claimed, and in ordinary life the context
    stays one run per actor.
    """
    last = context_over(register).get(dot.actor, dot.counter - 1)
    return seen.with_run(dot.actor, last + 1, dot.counter)


def _carried(
    siblings: Register, first: Dot, register: Register, expires_at: Millis | None, now: Millis
) -> Register:
    """Undecodable payloads under dots of our own, the same bytes only once: these values, and every
    tombstone, without which what it had removed could come back.
    """
    context = context_over(register)
    unread = (sibling for sibling in register if sibling.tombstone and read_record(sibling) is None)
    payloads = sorted({(sibling.tombstone, sibling.payload) for sibling in (*siblings, *unread)})
    return tuple(
        Sibling(
            Dot(first.actor, first.counter + at),
            context,
            payload,
            tombstone,
            None if tombstone else expires_at,
            now,
        )
        for at, (tombstone, payload) in enumerate(payloads)
    )


def _tombstone(dot: Dot, buried: Register, context: Clock, now: Millis) -> Sibling:
    """A tombstone over these siblings, with this record context."""
    return Sibling(dot, context_over(buried), encode_record(Record(context=context)), True, None, now)


def rewrite(found: Basis, edit: Edit, dot: Dot, now: Millis, expires_at: Millis | None) -> Register:
    """The register after a remember, an update, or a lapse of a readable entry (with an empty edit).

    ``dot`` is the first of the dots that the write takes: as many, with consecutive counters, as siblings
    come back.
    """
    seen = _with_own(found.record.context, found.register, dot)
    record = edited(replace(found.record, context=seen), edit, dot, now)
    own = Sibling(dot, context_over(found.register), encode_record(record), False, expires_at, now)
    after = Dot(dot.actor, dot.counter + 1)
    return make_register((own, *_carried(found.undecodable, after, found.register, expires_at, now)))


def lapse(found: Basis, dot: Dot, now: Millis, expires_at: Millis) -> Register:
    """The register after a lapse of a live entry: its record, with every dot it had, under the new expiry.

    Where no value can be read there is no record to write: the payloads stay as they are, beside a tombstone
    when there was one, so that what it had removed stays removed.
    """
    if found.life is None or len(found.undecodable) < len(found.life.values):
        return rewrite(found, Edit(), dot, now, expires_at)
    buried = tuple(
        sibling for sibling in found.register if sibling.tombstone and read_record(sibling) is not None
    )
    after = Dot(dot.actor, dot.counter + len(buried[:1]))
    values = _carried(found.undecodable, after, found.register, expires_at, now)
    if not buried:
        return values
    context = _with_own(found.record.context, found.register, dot)
    return make_register((_tombstone(dot, found.register, context, now), *values))


def bury(register: Register, dot: Dot, now: Millis, *, covering: Register | None = None) -> Register:
    """The register after a forget: one tombstone over everything, hidden or not.

    With ``covering``, a tombstone over exactly those siblings (a removal on behalf, section 7), beside the
    rest.
    """
    buried = register if covering is None else covering
    rest = tuple(sibling for sibling in register if sibling not in buried)
    tombstone = _tombstone(dot, buried, _with_own(_seen(buried), register, dot), now)
    return make_register((tombstone, *rest))
