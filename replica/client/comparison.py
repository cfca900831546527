"""Finding where replicas differ, in few calls (DESIGN section 10, ``GetDigest``). No I/O: calls go out
through an argument.

A range of keys in which the digests differ is cut into parts by the replica that holds most of it; the others
are asked for the digests of the same parts, and what differs is looked into further, until a part is small
enough to name its entries. The cost: a walk over the differing ranges for each level, and answers that grow
with the number of differences and the logarithm of the number of entries.

The comparison is of one moment as far as expiries go. A write that arrives meanwhile, or has not arrived
everywhere yet, is a difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crdt.key import EntryKey
from replica.client.admin import get_range_digests
from replica.client.call import Call
from replica.client.digests import KeyRange, PartDigest, RangeDigests
from replica.wire import admin_pb2 as pb

__all__ = ["Ask", "Difference", "compare"]

Ask = Callable[[Mapping[str, Call[pb.GetDigestRequest, RangeDigests]]], Mapping[str, RangeDigests]]
"""Makes a call to each replica that is named, at once if it can, and returns their answers."""

_PARTS = 1000
"""Parts in one answer."""
_PART_SIZE = 32
"""Entries that a part should have, if that does not make too many parts."""
_CUT = 64
"""Ranges that are cut in one call."""
_NAMED = 64
"""A part with no more entries is not cut again: they are named."""
_NAMING = 500
"""Ranges of which the entries are named in one call."""


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry that replicas do not hold alike."""

    key: str
    digests: Mapping[str, bytes | None]
    """By replica: the digest of what it holds; None where nothing is live."""
    damaged: tuple[str, ...]
    """The replicas that cannot read their row."""


@dataclass(frozen=True, slots=True)
class _Range:
    """A range in which replicas differ, and how many entries each holds there."""

    range: KeyRange
    sizes: Mapping[str, int]

    @property
    def size(self) -> int:
        return max(self.sizes.values())

    @property
    def cutter(self) -> str | None:
        """Who is to cut it: the replica that holds most. None: it is small enough to be named."""
        if self.size <= _NAMED:
            return None
        return max(self.sizes, key=lambda name: self.sizes[name])


def compare(
    ask: Ask,
    sizes: Mapping[str, int],
    *,
    at_ms: int,
    repo_id: str | None = None,
    topic: str | None = None,
) -> Iterator[Difference]:
    """Yield the entries in which replicas differ, in the order of keys.

    ``sizes`` names the replicas, with about as many entries as each holds in the scope.
    """
    comparison = _Comparison(ask, tuple(sizes), at_ms, repo_id, topic)
    pending = deque([_Range(KeyRange(), sizes)])
    while pending:
        cutter = pending[0].cutter
        if cutter is None:
            found, again = comparison.name(_taken(pending, _NAMING, None))
            yield from found
        else:
            again = comparison.cut(cutter, _taken(pending, _CUT, cutter))
        pending.extendleft(reversed(again))


def _taken(pending: deque[_Range], most: int, cutter: str | None) -> list[_Range]:
    """The ranges at the front that can share a call: to be cut by one replica, or (none) to be named."""
    taken: list[_Range] = []
    while pending and len(taken) < most and pending[0].cutter == cutter:
        taken.append(pending.popleft())
    return taken


@dataclass(frozen=True, slots=True)
class _Comparison:
    """What all calls of a comparison share."""

    ask: Ask
    names: tuple[str, ...]
    at_ms: int
    repo_id: str | None
    topic: str | None

    def _ask(
        self, names: Sequence[str], ranges: Sequence[KeyRange], *, parts: int = 1, name_up_to: int = 0
    ) -> dict[str, tuple[PartDigest, ...]]:
        call = get_range_digests(
            ranges,
            parts=parts,
            name_up_to=name_up_to,
            at_ms=self.at_ms,
            repo_id=self.repo_id,
            topic=self.topic,
        )
        return {name: answer.parts for name, answer in self.ask(dict.fromkeys(names, call)).items()}

    def cut(self, cutter: str, ranges: Sequence[_Range]) -> list[_Range]:
        """The parts of ranges in which replicas differ; the cutter says where to cut."""
        size = max(each.size for each in ranges)
        parts = max(2, min(-(-size // _PART_SIZE), _PARTS // len(ranges)))
        cuts = self._ask([cutter], [each.range for each in ranges], parts=parts)[cutter]
        others = [name for name in self.names if name != cutter]
        answers = {cutter: cuts, **self._ask(others, [part.range for part in cuts])}
        return [
            _sized(part.range, beside)
            for at, part in enumerate(cuts)
            if _differ(beside := {name: answers[name][at] for name in self.names})
        ]

    def name(self, ranges: Sequence[_Range]) -> tuple[list[Difference], list[_Range]]:
        """The differences in ranges; and the ranges that have grown and must be cut after all."""
        answers = self._ask(self.names, [each.range for each in ranges], name_up_to=_NAMED)
        differences: list[Difference] = []
        for at, each in enumerate(ranges):
            beside = {name: answers[name][at] for name in self.names}
            sized = _sized(each.range, beside)
            if sized.size > _NAMED:
                return differences, [sized, *ranges[at + 1 :]]
            differences += _named(beside)
        return differences, []


def _sized(range: KeyRange, beside: Mapping[str, PartDigest]) -> _Range:
    return _Range(range, {name: part.live + part.damaged for name, part in beside.items()})


def _differ(beside: Mapping[str, PartDigest]) -> bool:
    return len({part.digest for part in beside.values()}) > 1


def _named(beside: Mapping[str, PartDigest]) -> Iterator[Difference]:
    entries = {name: {entry.key: entry for entry in part.entries} for name, part in beside.items()}
    # Each replica names its own in the order of keys, which is not that of their texts.
    for key in sorted({key for of in entries.values() for key in of}, key=_order):
        held = {name: of.get(key) for name, of in entries.items()}
        digests = {name: None if entry is None else entry.digest for name, entry in held.items()}
        if len(set(digests.values())) > 1:
            damaged = tuple(name for name, entry in held.items() if entry is not None and entry.damaged)
            yield Difference(key, digests, damaged)


def _order(key: str) -> bytes:
    return EntryKey.parse(key).to_store()
