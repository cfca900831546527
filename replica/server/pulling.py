"""The consumer's end of a stream."""

from __future__ import annotations

from replica.server.peer_book import Peer
from replica.server.peers import PullEnded
from replica.server.runtime import Runtime

__all__ = ["Puller"]


class Puller:
    """Pulls from peers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def pull(self, peer: Peer) -> None:
        """Pull from a peer until the stream ends. Raises PullEnded."""
        raise PullEnded("the session is not there yet")
