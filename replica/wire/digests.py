"""From requests for digests to ranges of keys, and from digests to messages."""

from __future__ import annotations

from replica.core.commands import parse_key
from replica.core.range_digest import EntryDigest, KeyRange, PartDigest
from replica.core.scope import scope_bounds
from replica.wire import admin_pb2 as pb
from replica.wire.answers import key_text

__all__ = ["key_ranges", "part_message"]


def key_ranges(request: pb.GetDigestRequest, scope: bytes) -> tuple[KeyRange, ...]:
    """The ranges of a request, cut to its scope. Raises Refused for bounds that are no keys."""
    first, beyond = scope_bounds(scope)
    ranges = []
    for at, each in enumerate(request.ranges):
        start = parse_key(each.start, f"ranges[{at}].start").to_store() if each.start else first
        stop = parse_key(each.stop, f"ranges[{at}].stop").to_store() if each.stop else beyond
        if beyond is not None:
            start, stop = min(start, beyond), beyond if stop is None else min(stop, beyond)
        start = max(start, first)
        ranges.append(KeyRange(start, stop if stop is None else max(stop, first)))
    return tuple(ranges)


def part_message(part: PartDigest, scope: bytes) -> pb.PartDigest:
    """A part of a range; a bound that is that of the scope is empty."""
    first, beyond = scope_bounds(scope)
    start, stop = part.range.start, part.range.stop
    return pb.PartDigest(
        range=pb.KeyRange(
            start="" if start <= first else key_text(start),
            stop="" if stop is None or stop == beyond else key_text(stop),
        ),
        digest=part.digest,
        live=part.live,
        damaged=part.damaged,
        entries=map(_entry, part.entries or ()),
    )


def _entry(entry: EntryDigest) -> pb.EntryDigest:
    return pb.EntryDigest(key=key_text(entry.key), digest=entry.digest, damaged=entry.damaged)
