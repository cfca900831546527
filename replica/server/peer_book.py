"""What this process knows of each peer: where it is, how the stream to it fares, what went over it.

The cursor is in the store; here is what else an operator asks about. Nothing that never happened is shown as
0.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crdt.dot import Millis

__all__ = ["Origin", "Peer", "PeerBook", "told"]


_MOST = 1000
"""Whoever connects under ever new names must not fill the memory."""

_SAY_AGAIN = Millis(60_000)


class Origin(enum.Enum):
    """How this replica came to know a peer."""

    CONFIGURED = enum.auto()
    ADDED = enum.auto()
    """While running, by AddPeer; also before the last restart."""
    CONSUMER_ONLY = enum.auto()
    """It pulls from here, and nobody said to pull from it."""


def told(text: str) -> str:
    """What a peer told, fit to be shown: in one line, without control characters, and not for ever."""
    return "".join(part if part.isprintable() else "?" for part in " ".join(text.split()))[:500]


@dataclass(slots=True)
class Peer:
    """A peer, as of now."""

    cluster: str
    origin: Origin
    address: str = ""
    consuming: bool = False
    """A stream on which it pulls from here is open."""
    connected: bool = False
    """The stream on which this replica pulls is open and was welcomed."""
    verdict: str | None = None
    """The last one of this peer over this replica, by name; `TAIL` once what it asked for is done."""
    reason: str | None = None
    lag: int | None = None
    """Its changes that are not applied here, by what it last told; none: that cannot be told."""
    caught_up_at: Millis | None = None
    """When everything that it had told of was last applied here; none: not since the start."""
    last_contact: Millis | None = None
    """By this replica's clock."""
    skew: Millis | None = None
    """Its clock minus this one's, then."""
    last_error: str | None = None
    last_error_at: Millis | None = None
    received_bytes: int | None = None
    sent_bytes: int | None = None
    received_changes: int | None = None
    applied_changes: int | None = None
    acknowledged: int | None = None
    """This replica's sequence up to which it has made everything durable."""
    faults: int | None = None
    """Registers from it in which one dot had other contents than here."""
    last_fault: str | None = None
    last_refusal: tuple[str, Millis] | None = None
    """Why it was refused as a consumer, and when that was last put in the log."""

    def received(self, now: Millis, size: int) -> None:
        """A message of so many bytes arrived."""
        self.last_contact = now
        self.received_bytes = (self.received_bytes or 0) + size

    def sent(self, size: int) -> None:
        """A message of so many bytes went out."""
        self.sent_bytes = (self.sent_bytes or 0) + size

    def applied(self, received: int, changed: int, faults: Sequence[str]) -> None:
        """So many registers came, and so many of them changed something here; of the faults the words."""
        self.received_changes = (self.received_changes or 0) + received
        self.applied_changes = (self.applied_changes or 0) + changed
        self.faults = (self.faults or 0) + len(faults)
        if faults:
            self.last_fault = faults[-1]

    def behind(self, now: Millis, lag: int | None) -> None:
        """So many of its changes are not applied here."""
        self.lag = lag
        if lag == 0:
            self.caught_up_at = now

    def lag_time(self, now: Millis) -> Millis | None:
        """For how long some change of it has been missing here; none: always since the start."""
        if self.connected and self.lag == 0:
            return Millis(0)
        return None if self.caught_up_at is None else Millis(max(0, now - self.caught_up_at))

    def failed(self, now: Millis, reason: str) -> None:
        """A stream with it ended, or was never made."""
        self.last_error = told(reason)
        self.last_error_at = now

    def refused(self, now: Millis, reason: str) -> bool:
        """It was refused as a consumer; whether the log is to say so: when the reason is new, else once a
        minute, for a refused consumer tries again for ever.
        """
        self.failed(now, f"refused as a consumer: {reason}")
        if self.last_refusal is not None:
            last, said_at = self.last_refusal
            if last == reason and abs(now - said_at) < _SAY_AGAIN:
                return False
        self.last_refusal = reason, now
        return True


class PeerBook:
    """The peers by cluster."""

    def __init__(self) -> None:
        self._peers: dict[str, Peer] = {}

    def __iter__(self) -> Iterator[Peer]:
        return iter([self._peers[cluster] for cluster in sorted(self._peers)])

    def supplier(self, cluster: str, address: str, origin: Origin) -> Peer:
        """The peer that this replica is to pull from."""
        peer = self._peers.setdefault(cluster, Peer(cluster, origin))
        peer.address, peer.origin = address, origin
        return peer

    def consumer(self, cluster: str) -> Peer:
        """The peer that pulls from this replica; beyond a bound one that is not kept."""
        peer = self._peers.get(cluster, Peer(cluster, Origin.CONSUMER_ONLY))
        if len(self._peers) < _MOST:
            self._peers[cluster] = peer
        return peer

    def drop(self, cluster: str) -> None:
        """This replica is to pull from the peer no more."""
        peer = self._peers.pop(cluster, None)
        if peer is not None and peer.consuming:
            peer.origin, peer.address, peer.connected = Origin.CONSUMER_ONLY, "", False
            self._peers[cluster] = peer

    def is_connected(self, cluster: str) -> bool:
        """Whether a stream with the cluster is open, either way."""
        peer = self._peers.get(cluster)
        return peer is not None and (peer.connected or peer.consuming)

    def addresses(self) -> dict[str, str]:
        """Where the peers are that this replica pulls from, by cluster."""
        return {peer.cluster: peer.address for peer in self if peer.address}
