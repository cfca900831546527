"""The peers that were added while running: they outlive a restart (DESIGN section 5).

Peers from the configuration are not stored; a stored peer of a cluster that is configured gives way to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgpack

from crdt.codec import Damaged, open_frame, seal_frame
from replica.core.errors import Code, Refused
from replica.core.identity import Identity, check_cluster
from replica.core.storage import DamagedRow, Snapshot, Table, Transaction

__all__ = ["add_peer", "remove_peer", "stored_peers"]


def stored_peers(snapshot: Snapshot) -> Mapping[str, str]:
    """The addresses of the added peers, by cluster. Raises DamagedRow."""
    peers: dict[str, str] = {}
    for key, frame in snapshot.items(Table.PEERS):
        try:
            (peers[key.decode()],) = msgpack.unpackb(open_frame(key, frame))
        except Damaged:
            raise DamagedRow(Table.PEERS, key) from None
    return peers


def add_peer(
    transaction: Transaction, identity: Identity, configured: Mapping[str, str], cluster: str, address: str
) -> bool:
    """Store a peer; false when it is known already, by this address.

    Raises Refused: INVALID_ARGUMENT for a name that is none or this replica's own, ALREADY_EXISTS when the
    peer is known by another address.
    """
    check_cluster(cluster)
    if cluster == identity.cluster:
        raise Refused(Code.INVALID_ARGUMENT, "is this replica's own; name another replica's", field="cluster")
    known = {**stored_peers(transaction), **configured}.get(cluster)
    if known == address:
        return False
    if known is not None:
        raise Refused(
            Code.ALREADY_EXISTS, "is known by another address; remove that peer first", field="cluster"
        )
    body = msgpack.packb((address,))
    assert body is not None
    transaction.put(Table.PEERS, cluster.encode(), seal_frame(cluster.encode(), body))
    return True


def remove_peer(transaction: Transaction, configured: Mapping[str, str], cluster: str) -> bool:
    """Drop a stored peer; false when there is none.

    Raises Refused: INVALID_ARGUMENT for a name that is none, FAILED_PRECONDITION for a configured peer.
    """
    check_cluster(cluster)
    if cluster in configured:
        raise Refused(
            Code.FAILED_PRECONDITION,
            "comes from the configuration; take it out there and restart",
            field="cluster",
        )
    return transaction.delete(Table.PEERS, cluster.encode())
