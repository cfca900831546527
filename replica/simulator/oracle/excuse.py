"""Which differences from what the oracle expects are allowed, and when (design section 11).

None is allowed in a fleet where nobody lost data and nobody lapsed. Elsewhere, in terms of value siblings:

- a value whose own expiry had passed may be gone, although a concurrent one outlives it;
- a durable value that it would have expired may then stay;
- a value that a write since lost had superseded may be gone;
- where data was lost, a durable value whose entry had expired may be gone with it: a member without its past
  may have begun the entry anew;
- where *every* member lost data, what only the lost data had removed may return;
- beside the values, what a removal took away may return once that removal has been purged.

Whatever stands, its content and expiry must be exactly what those very siblings hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .graph import CREATED_AT, KIND, Dot
from .read import Expected

__all__ = ["Evidence", "excused"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the graph says about a read that is not as expected."""

    standing: Mapping[Dot, int | None]
    """Every value that nothing known supersedes, with its own expiry; hidden or not."""
    outlived: bool
    """Values stand, but the entry is past its expiry."""
    overtaken: frozenset[Dot] = field(default_factory=frozenset)
    """Those that some write had superseded which no replica has seen any more."""
    some_lost: bool = False
    """Some replica was wiped or rolled back."""
    all_lost: bool = False
    """Every replica was."""
    floor: Expected | None = None
    """What the siblings of the read hold beside every tombstone that none of them supersedes."""
    ceiling: Expected | None = None
    """What the siblings of the read hold by themselves, all tombstones purged."""


def excused(
    expected: Expected | None,
    got: Expected | None,
    evidence: Evidence,
    *,
    lapsed: bool,
    latest: int,
    grace_ms: int,
) -> bool:
    """Whether `got` may stand in the place of `expected`.

    `lapsed`: some member was silent for so long that purges did not wait for it. `latest`: the latest time
    that any replica's clock has shown. `grace_ms`: how long past its expiry an entry is kept.
    """
    if got == expected:
        return True
    if not (lapsed or evidence.some_lost):
        return False
    if got is not None and not _between(evidence.floor, got, evidence.ceiling):
        return False
    wanted = expected.siblings if expected is not None else frozenset()
    shown = got.siblings if got is not None else frozenset()
    missing, extra = wanted - shown, shown - wanted
    if extra and not evidence.all_lost and not (evidence.outlived and extra <= evidence.standing.keys()):
        return False
    gone = {dot for dot, at in evidence.standing.items() if at is not None and at + grace_ms <= latest}
    if evidence.some_lost:
        gone |= missing & evidence.overtaken
    if missing <= gone:
        return True
    return evidence.some_lost and bool(gone) and all(evidence.standing[dot] is None for dot in missing - gone)


def _between(floor: Expected | None, got: Expected, ceiling: Expected | None) -> bool:
    """Whether a read shows at least what is in `floor` and at most what is in `ceiling`."""
    if floor is None or ceiling is None:
        return False
    if floor == ceiling:
        return got == ceiling
    low, mid, high = _values(floor), _values(got), _values(ceiling)
    return (
        got.expires_at == ceiling.expires_at
        and low <= mid <= high
        and floor.tags <= got.tags <= ceiling.tags
        and floor.links <= got.links <= ceiling.links
        and set(floor.revisions) <= set(got.revisions) <= set(ceiling.revisions)
    )


def _values(read: Expected) -> set[tuple[str, str]]:
    """Every (field, value) that a read reports, an empty value aside."""
    found = {*read.fields.items()}
    found |= {(name, value) for name, values in read.concurrent.items() for value in values if value}
    if read.kind is not None:
        found.add((KIND, read.kind))
    if read.created_at is not None:
        found.add((CREATED_AT, str(read.created_at)))
    return found
