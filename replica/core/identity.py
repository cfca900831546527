"""Who a replica is: its cluster, its incarnation and its store (DESIGN section 8).

A dot is never minted twice. An incarnation is one unbroken life of a replica's data; whenever the past is in
doubt a new one begins, with a new store id and without cursors. That is cheap: one more row in the clocks,
and only once it has written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crdt.dot import Actor, Incarnation, Millis
from crdt.key import InvalidKey, check_component
from replica.core.errors import Code, Refused
from replica.core.rows import StoreId, clear_cursors, get_meta, put_meta
from replica.core.storage import Snapshot, Transaction

__all__ = [
    "Entropy",
    "Identity",
    "begin_anew",
    "begin_store",
    "check_cluster",
    "new_incarnation",
    "read_identity",
]

Entropy = Callable[[int], bytes]
"""Gives that many random bytes; ``os.urandom`` in a process, a seeded generator in a simulation."""

_TIME_BYTES = 6


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a replica is."""

    cluster: str
    incarnation: Incarnation
    store_id: StoreId

    @property
    def actor(self) -> Actor:
        """The actor of the dots that this replica mints."""
        return Actor(self.cluster, self.incarnation)


def check_cluster(cluster: str) -> str:
    """The cluster id itself, if it is one: a key component without whitespace. Raises Refused."""
    try:
        check_component("cluster", cluster)
    except InvalidKey as error:
        raise Refused(Code.INVALID_ARGUMENT, error.reason, field="cluster") from None
    if any(character.isspace() for character in cluster):
        raise Refused(Code.INVALID_ARGUMENT, "must not contain whitespace", field="cluster")
    return cluster


def new_incarnation(now: Millis, entropy: Entropy, *, above: Incarnation | None = None) -> Incarnation:
    """16 bytes, the time first: greater than ``above`` whatever the clock says."""
    time = max(now, 0)
    if above is not None:
        time = max(time, int.from_bytes(above[:_TIME_BYTES], "big") + 1)
    return Incarnation(time.to_bytes(_TIME_BYTES, "big") + entropy(16 - _TIME_BYTES))


def read_identity(snapshot: Snapshot) -> Identity | None:
    """The identity kept in a store; none in a new one."""
    cluster, incarnation, store_id = (
        get_meta(snapshot, name) for name in ("cluster", "incarnation", "store_id")
    )
    if cluster is None or incarnation is None or store_id is None:
        return None
    return Identity(cluster.decode(), Incarnation(incarnation), store_id)


def _write(transaction: Transaction, identity: Identity) -> Identity:
    put_meta(transaction, "cluster", identity.cluster.encode())
    put_meta(transaction, "incarnation", identity.incarnation)
    put_meta(transaction, "store_id", identity.store_id)
    return identity


def begin_store(transaction: Transaction, cluster: str | None, now: Millis, entropy: Entropy) -> Identity:
    """The identity of a store, made when it is new.

    A replica that is given no cluster id gets a generated, unique one. Raises Refused when the store belongs
    to another cluster.
    """
    known = read_identity(transaction)
    if known is not None:
        if cluster is not None and cluster != known.cluster:
            raise Refused(
                Code.FAILED_PRECONDITION,
                f"this data directory belongs to cluster {known.cluster!r}: name it, or another directory",
                field="cluster",
            )
        return known
    name = f"cluster-{entropy(5).hex()}" if cluster is None else check_cluster(cluster)
    return _write(transaction, Identity(name, new_incarnation(now, entropy), entropy(16)))


def begin_anew(
    transaction: Transaction, now: Millis, entropy: Entropy, *, above: Incarnation | None = None
) -> Identity:
    """A new incarnation in a store whose past is in doubt: a new store id, and no cursors.

    ``above`` is the greatest incarnation that any peer has heard of for this cluster.
    """
    known = read_identity(transaction)
    if known is None:
        raise ValueError("the store has no identity yet")
    clear_cursors(transaction)
    highest = known.incarnation if above is None else max(known.incarnation, above)
    return _write(
        transaction, Identity(known.cluster, new_incarnation(now, entropy, above=highest), entropy(16))
    )
