"""The service `ricordo.v1.Replication`: the supplier's end of a stream."""

from __future__ import annotations

from replica.server.peer_book import PeerBook
from replica.server.peers import Peers
from replica.server.runtime import Runtime

__all__ = ["ReplicationService"]


class ReplicationService:
    """The supplier."""

    def __init__(self, runtime: Runtime, book: PeerBook, peers: Peers) -> None:
        self._runtime = runtime
        self._book = book
        self._peers = peers
