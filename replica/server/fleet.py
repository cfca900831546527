"""What the streams of this replica share: settings, who is connected as whom, and who waits for what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from replica.core.consumer_session import ConsumerSession
from replica.core.joining import Fault
from replica.core.session import Attendance, Outcome, Settings
from replica.logs import logger
from replica.server.healing import Healer
from replica.server.peer_book import Peer
from replica.server.runtime import Runtime
from replica.wire.answers import key_text

__all__ = ["Fleet"]

_log = logger()


class Fleet:
    """The streams of this replica that are open."""

    def __init__(self, runtime: Runtime, healer: Healer) -> None:
        config = runtime.config
        self._runtime = runtime
        self._healer = healer
        self._pulling: set[ConsumerSession] = set()
        self.attendance = Attendance()
        self.settings = Settings(
            heartbeat=config.replication.heartbeat,
            silence=config.replication.silence,
            batch_bytes=config.replication.batch,
            reconcile_timeout=config.reconcile.timeout,
            max_silence=config.compaction.max_silence,
        )

    @contextmanager
    def pulling(self, session: ConsumerSession) -> Iterator[None]:
        """A stream on which this replica pulls is open."""
        self._pulling.add(session)
        try:
            yield
        finally:
            self._pulling.discard(session)

    def report(self, peer: Peer, outcome: Outcome) -> None:
        """Count, log and pass on what a piece of a session's work did."""
        applied = outcome.applied
        if applied is not None and applied.dropped is None:
            faults = [_fault_text(fault) for fault in applied.faults]
            peer.applied(applied.received, len(applied.changed), faults)
            for fault in faults:
                _log.error(
                    "one dot has two contents: some replica is at fault", peer=peer.cluster, fault=fault
                )
            if applied.taken_over:
                _log.info("must reconcile", peer=peer.cluster, members=", ".join(applied.taken_over))
        learned = outcome.learned
        for what, members in (
            ("a member was heard of", learned.joined),
            ("a member began a new incarnation", learned.replaced),
            ("a member lost data", learned.lost),
        ):
            if members:
                _log.info(what, peer=peer.cluster, members=", ".join(members))
        if outcome.left_list:
            _log.info("the peer has reconciled", peer=peer.cluster)
        if outcome.damaged:
            self._healer.found(outcome.damaged)
        if outcome.given_up is not None:
            _log.warning("gave up waiting", supplier=outcome.given_up)
        if outcome.begun is not None:
            self._runtime.adopt(outcome.begun)
            _log.warning(
                "began a new incarnation", incarnation=outcome.begun.incarnation.hex(), reason=outcome.error
            )
        if outcome.released or outcome.begun is not None:
            self.wake()

    def wake(self) -> None:
        """What others were waiting for is over."""
        for session in self._pulling:
            session.wake()
        self._runtime.stir()


def _fault_text(fault: Fault) -> str:
    (cluster, incarnation), counter = fault.dot
    return f"{key_text(fault.key)}: write {counter} of {cluster}, incarnation {incarnation.hex()}"
