"""The load of the soak: for each replica a writer of what nobody else writes, who tells the ledger."""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Callable

from replica.client import (
    Client,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    NotFoundError,
    ResourceExhaustedError,
    Retry,
    RicordoError,
    UnavailableError,
)
from tests.faults.fleet import Fleet
from tests.faults.ledger import Ledger
from tests.faults.member import Member

__all__ = ["REPO", "Load"]

REPO = "soak"
_HOURS = 4 * 3600.0
_PATIENCE = Retry(deadline=2.0, attempt_timeout=2.0)
_TAGS_ON_ONE = 12
"""Writes of one writer on one shared entry: what it holds is written anew with each."""

_REFUSALS = (
    UnavailableError,
    DeadlineExceededError,
    ResourceExhaustedError,
    FailedPreconditionError,
    DataLossError,
    NotFoundError,
)
"""What a replica may answer while something is wrong with it."""


class Load:
    """The writers, from :meth:`start` to :meth:`stop`."""

    def __init__(self, fleet: Fleet, ledger: Ledger, seed: int, pause: float) -> None:
        """``pause``: seconds between two writes of a writer."""
        self.writers = {
            cluster: Writer(fleet[cluster], ledger, random.Random(f"{seed} {cluster}"), pause)
            for cluster in fleet.clusters
        }

    def start(self) -> None:
        """Begin to write."""
        for writer in self.writers.values():
            writer.thread.start()

    def stop(self) -> None:
        """Write no more."""
        for writer in self.writers.values():
            writer.stop()

    @property
    def unexpected(self) -> list[str]:
        """What a replica must never answer, whatever is wrong."""
        return [each for writer in self.writers.values() for each in writer.unexpected]

    @property
    def refusals(self) -> Counter[str]:
        """What was refused, by code."""
        return sum((writer.refusals for writer in self.writers.values()), Counter())


class Writer:
    """Writes to one replica, whichever life of it is running."""

    def __init__(self, member: Member, ledger: Ledger, chance: random.Random, pause: float) -> None:
        self.thread = threading.Thread(target=self._run, name=f"writer {member.cluster}", daemon=True)
        self.unexpected: list[str] = []
        self.refusals: Counter[str] = Counter()
        self._member = member
        self._ledger = ledger
        self._chance = chance
        self._pause = pause
        self._number = 0
        self._made: deque[str] = deque()
        """Keys that may be forgotten."""
        self._stopped = threading.Event()
        self._gate = threading.Lock()
        """Held while a call is under way, and by whoever wants none to be."""

    def hold(self) -> threading.Lock:
        """While this is held the writer writes nothing."""
        return self._gate

    def stop(self) -> None:
        """Write no more."""
        self._stopped.set()
        if self.thread.is_alive():
            self.thread.join(60)

    def _run(self) -> None:
        client: Client | None = None
        address = ""
        while not self._stopped.wait(self._pause):
            with self._gate:
                if not self._member.running or not self._member.listen:
                    continue
                if client is None or address != self._member.listen:
                    if client is not None:
                        client.close()
                    address = self._member.listen
                    client = Client(address, retry=_PATIENCE)
                try:
                    self._chosen()(client)
                except _REFUSALS as error:
                    self.refusals[type(error).__name__] += 1
                except RicordoError as error:
                    self.unexpected.append(f"{self._member.cluster}: {error!r}")
        if client is not None:
            client.close()

    def _chosen(self) -> Callable[[Client], None]:
        """What to do next: most of all new entries and tags."""
        self._number += 1
        kinds = [self._note, self._tag, self._latest, self._brief, self._forget]
        return self._chance.choices(kinds, (6, 6, 3, 2, 3))[0]

    def _name(self) -> str:
        return f"{self._member.cluster}-{self._number}"

    def _note(self, client: Client) -> None:
        """A new entry. It can be read where it was written, at once."""
        key, title = f"repo/{REPO}/mem/notes/{self._name()}", f"note {self._number} of {self._member.cluster}"
        self._ledger.sending(key, title)
        body = "x" * self._chance.choice((0, 50, 500, 5000))
        client.remember(REPO, "notes", id=self._name(), title=title, body=body)
        self._ledger.remembered(key, title)
        if self._chance.random() < 0.2 and not client.recall(key).exists:
            self.unexpected.append(f"{self._member.cluster}: does not show {key}, which it acknowledged")
        if self._chance.random() < 0.4:
            self._made.append(key)

    def _tag(self, client: Client) -> None:
        """A tag of its own on an entry that all writers share."""
        id = f"shared-{self._number // (_TAGS_ON_ONE * 3)}"
        key, tag = f"repo/{REPO}/mem/shared/{id}", self._name()
        self._ledger.sending_tag(key, tag)
        client.remember(REPO, "shared", id=id, tags=[tag])
        self._ledger.tagged(key, tag)

    def _latest(self, client: Client) -> None:
        """The next title of an entry of its own."""
        id = f"{self._member.cluster}-{self._number % 5}"
        key, title = f"repo/{REPO}/mem/latest/{id}", self._name()
        self._ledger.sending(key, title)
        client.remember(REPO, "latest", id=id, title=title)
        self._ledger.remembered(key, title)

    def _brief(self, client: Client) -> None:
        """An entry that lives for some hours."""
        key, title = f"repo/{REPO}/mem/brief/{self._name()}", self._name()
        self._ledger.sending(key, title)
        done = client.remember(REPO, "brief", id=self._name(), title=title, ttl_seconds=_HOURS)
        self._ledger.remembered(key, title, done.expires_at_ms)

    def _forget(self, client: Client) -> None:
        """Forget an entry of its own, for good: nobody writes it again."""
        if not self._made:
            return
        key = self._made.popleft()
        self._ledger.forgetting(key)
        done = client.forget(key)
        self._ledger.forgot(key, existed=done.existed)
