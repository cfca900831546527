"""What both ends of a replication stream share (DESIGN section 5).

A session is a state machine without I/O. Whoever drives it, a gRPC stream or a simulated fleet, does this:

1. hand each message that arrives to ``receive``, and each time the session's ``deadline`` has come ask
   ``due``; both return a piece of :data:`Work` or none;
2. run the work in one durable transaction, hand its :class:`Outcome` to ``committed``, and only then hand
   over the next message. Work has no effect but on its transaction, so it may be run again;
3. after that, whenever the store has changed, and when the deadline has come, call ``poll`` with a snapshot
   and send what it returns;
4. stop when ``ended`` says why.

``now`` and chance are arguments. Memory is bounded whatever the peer does: a session keeps what it has told,
never what it was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from crdt.clock import Clock
from crdt.dot import Incarnation, Millis
from replica.core.consumer import Applied
from replica.core.doubt import Doubt, settle
from replica.core.identity import Entropy, Identity, read_identity
from replica.core.membership import Learned
from replica.core.messages import Cause, ProtocolError, Statement, Verdict
from replica.core.reconcile import Step
from replica.core.storage import Transaction
from replica.core.underway import PATIENCE
from replica.core.verdict import Present

__all__ = [
    "Attendance",
    "Ended",
    "Outcome",
    "Settings",
    "Work",
    "broke_protocol",
    "guarded",
    "own_words",
    "retry_delay",
    "settled",
]

_HEARTBEAT = Millis(5_000)
_SILENCE = Millis(20_000)
_MAX_SILENCE = Millis(7 * 24 * 3_600_000)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a session behaves; times in milliseconds, sizes in bytes."""

    heartbeat: Millis = _HEARTBEAT
    """How often each end says that it is there, and what moved of what it knows."""
    silence: Millis = _SILENCE
    """After so long without a message the peer counts as gone."""
    window: int = 4
    """How many batches may be on the way without an acknowledgement."""
    batch_bytes: int = 1 << 20
    """The size at which a batch or a range ends; one register may exceed it."""
    reconcile_timeout: Millis = PATIENCE
    """After so long without progress a reconcile or a first filling is given up."""
    max_silence: Millis = _MAX_SILENCE
    """``compaction.max_silence``: after it a member is lapsed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a session is over, in words for an operator."""

    reason: str
    cause: Cause | None = None
    """The supplier's, when it refused the consumer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a piece of work did."""

    applied: Applied | None = None
    """What became of a batch or a range."""
    step: Step | None = None
    """How the reconcile stands."""
    learned: Learned = field(default_factory=Learned)
    verdict: Verdict | None = None
    """The verdict over a hello, as of the work's transaction."""
    begun: Identity | None = None
    """This replica has begun a new incarnation, for the reason in ``error``: every session has to end."""
    error: str | None = None
    """The session is over, for this reason."""
    left_list: bool = False
    """The peer has reconciled and is off the list of members that must."""
    given_up: str | None = None
    """The supplier whose filling or reconcile was given up for want of progress."""
    damaged: tuple[bytes, ...] = ()
    """Keys whose rows were newly found damaged: report them, and fetch them from peers."""

    @property
    def released(self) -> bool:
        """What others were waiting for is over: wake every consumer session of this replica."""
        return self.given_up is not None or (self.applied is not None and self.applied.released)


Work: TypeAlias = Callable[[Transaction], Outcome]
"""What a session wants done in one transaction."""


def guarded(expected: Identity | None, peer: str, body: Callable[[Transaction, Identity], Outcome]) -> Work:
    """Work of a session that belongs to one incarnation of this replica: under another it does nothing."""

    def work(transaction: Transaction) -> Outcome:
        identity = read_identity(transaction)
        if identity is None or identity != expected:
            return Outcome(error="this replica has begun a new incarnation")
        try:
            return body(transaction, identity)
        except ProtocolError as error:
            # Raised by checks alone, before the first change that they are about.
            return Outcome(error=broke_protocol(peer, error))

    return work


def broke_protocol(peer: str, error: ProtocolError) -> str:
    """The words for a peer that says what no honest replica says."""
    return f"{peer} broke the protocol: {error.reason}"


def own_words(cluster: str, incarnation: Incarnation, clock: Clock, said_at: Millis) -> Statement:
    """What a peer says of itself by sending a message."""
    return Statement(cluster, incarnation, clock, {}, said_at, Millis(0))


def settled(transaction: Transaction, doubt: Doubt, now: Millis, entropy: Entropy) -> Outcome:
    """Begin a new incarnation, in the very transaction in which the doubt arose."""
    begun = settle(transaction, doubt, now, entropy)
    return Outcome(begun=begun, error=f"a new incarnation was begun: {doubt.reason}")


class Attendance:
    """Which stores speak for which clusters on the streams of this replica that are open now."""

    def __init__(self) -> None:
        self._present: dict[str, dict[object, Present]] = {}

    def others(self, cluster: str, session: object, claimed: Present) -> Present | None:
        """A store that speaks for the cluster on another stream and is not the one claimed; none: no such."""
        there = self._present.get(cluster, {})
        return next((one for holder, one in there.items() if holder is not session and one != claimed), None)

    def is_present(self, cluster: str, present: Present) -> bool:
        """Whether this store speaks for the cluster on a stream that is open."""
        return present in self._present.get(cluster, {}).values()

    def enter(self, cluster: str, session: object, present: Present) -> None:
        """A session was accepted."""
        self._present.setdefault(cluster, {})[session] = present

    def leave(self, session: object) -> None:
        """A session is over."""
        for cluster, there in list(self._present.items()):
            there.pop(session, None)
            if not there:
                del self._present[cluster]


def retry_delay(failures: int, first: Millis, most: Millis, chance: float) -> Millis:
    """How long to wait after so many failures in a row (at least 1), ``chance`` being from 0 up to 1.

    The bound doubles with each failure up to ``most``; the wait is somewhere in its upper half, so that a
    fleet does not come back in step and no wait is nothing.
    """
    bound = min(most, first * 2 ** min(failures - 1, 32))
    return Millis(int(bound * (0.5 + chance / 2)))
