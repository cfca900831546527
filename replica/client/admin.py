"""The calls of `Admin`: each function builds one, and the clients have a method of its name.

Errors are those of `proto/ricordo/v1/admin.proto`. Every call may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable

from replica.client.call import Call, reader
from replica.client.digests import Digest, KeyRange, RangeDigests
from replica.client.status import Compacted, Status
from replica.wire import admin_pb2 as pb

__all__ = [
    "add_peer",
    "compact",
    "get_digest",
    "get_range_digests",
    "get_status",
    "remove_peer",
    "retire_member",
]

_SERVICE = "/ricordo.v1.Admin/"


def get_status(*, full: bool = False) -> Call[pb.GetStatusRequest, Status]:
    """Ask how the replica is, and how it sees its peers. With `full` it reads every row, which takes about
    half a minute for a million entries, and finds damage that nobody has come upon.
    """
    return Call(
        _SERVICE + "GetStatus", pb.GetStatusRequest(full=full), reader(pb.GetStatusResponse, Status.of)
    )


def get_digest(
    *, at_ms: int | None = None, repo_id: str | None = None, topic: str | None = None
) -> Call[pb.GetDigestRequest, Digest]:
    """Ask for a digest of the entries live at a moment (now), in one topic or repository (all of them). To
    compare replicas, ask all with one moment.
    """
    request = pb.GetDigestRequest(at_ms=at_ms, repo_id=repo_id, topic=topic)
    return Call(_SERVICE + "GetDigest", request, reader(pb.GetDigestResponse, Digest.of))


def get_range_digests(
    ranges: Iterable[KeyRange],
    *,
    parts: int = 1,
    name_up_to: int = 0,
    at_ms: int | None = None,
    repo_id: str | None = None,
    topic: str | None = None,
) -> Call[pb.GetDigestRequest, RangeDigests]:
    """Ask for the digests of ranges of keys, each cut into up to so many parts, and for the entries of those
    parts that have no more than so many. :func:`replica.client.comparison.compare` finds with it where
    replicas differ.
    """
    request = pb.GetDigestRequest(
        at_ms=at_ms,
        repo_id=repo_id,
        topic=topic,
        ranges=[pb.KeyRange(start=each.start, stop=each.stop) for each in ranges],
        parts=parts,
        name_up_to=name_up_to,
    )
    return Call(_SERVICE + "GetDigest", request, reader(pb.GetDigestResponse, RangeDigests.of))


def add_peer(cluster: str, address: str) -> Call[pb.AddPeerRequest, bool]:
    """Replicate from a peer at `host:port`, now and after every restart. False: it was already there.

    Raises AlreadyExistsError where the cluster is known by another address.
    """
    request = pb.AddPeerRequest(cluster=cluster, address=address)
    return Call(_SERVICE + "AddPeer", request, reader(pb.AddPeerResponse, _added))


def remove_peer(cluster: str) -> Call[pb.RemovePeerRequest, bool]:
    """Replicate from a peer no longer. What came from it stays, and purges go on waiting for it. False: there
    was no such peer.

    Raises FailedPreconditionError where the peer comes from the configuration.
    """
    request = pb.RemovePeerRequest(cluster=cluster)
    return Call(_SERVICE + "RemovePeer", request, reader(pb.RemovePeerResponse, _removed))


def retire_member(cluster: str) -> Call[pb.RetireMemberRequest, bool]:
    """Never wait for a member again, here and in the whole fleet; for good. False: it was retired already.

    Raises NotFoundError where no such member is known, FailedPreconditionError while it is connected.
    """
    request = pb.RetireMemberRequest(cluster=cluster)
    return Call(_SERVICE + "RetireMember", request, reader(pb.RetireMemberResponse, _retired))


def compact() -> Call[pb.CompactRequest, Compacted]:
    """Drop tombstones and expired entries that every member has seen, and say what has to stay."""
    return Call(_SERVICE + "Compact", pb.CompactRequest(), reader(pb.CompactResponse, Compacted.of))


def _added(response: pb.AddPeerResponse) -> bool:
    return response.added


def _removed(response: pb.RemovePeerResponse) -> bool:
    return response.removed


def _retired(response: pb.RetireMemberResponse) -> bool:
    return response.retired
