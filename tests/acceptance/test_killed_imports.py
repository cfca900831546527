"""kill -9 during an import, again and again: what was acknowledged is there after the restart."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from threading import Event, Thread

from replica.client import Client, RememberCall, Remembered, Retry, RicordoError, batches, remember
from tests.acceptance.real_notes import RealNote, needs_notes, real_notes
from tests.server.process import Process

KILLS = 20
BATCH = 25
"""Entries in one call: small, so that a kill falls among many."""


def _call(note: RealNote) -> RememberCall:
    line = note.line
    return remember(
        line["repo"],
        line["topic"],
        id=line["id"],
        kind=line["kind"],
        title=line["title"],
        body=line["body"],
        tags=line["tags"],
        add_links=line["links"],
        created_at_ms=line["created_at"],
    )


class _Import:
    """Writes notes batch by batch until the replica is gone, and keeps what was acknowledged."""

    def __init__(self, address: str, notes: list[RealNote], enough: int) -> None:
        self.acknowledged: set[str] = set()
        self.is_enough = Event()
        """Set when that many are acknowledged."""
        self._enough = enough
        self._address = address
        self._notes = notes
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with Client(self._address, retry=Retry(deadline=0.5, attempt_timeout=0.5)) as client:
            for batch in batches(map(_call, self._notes), entries=BATCH):
                try:
                    outcomes = client.remember_many(batch)
                except RicordoError:
                    return
                self.acknowledged |= {each.key for each in outcomes if isinstance(each, Remembered)}
                if len(self.acknowledged) >= self._enough:
                    self.is_enough.set()

    def ended(self) -> set[str]:
        """What was acknowledged until it ended."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.acknowledged


@needs_notes
def test_twenty_kills_during_imports_lose_no_acknowledged_note(tmp_path: Path) -> None:
    chance = random.Random(20)
    notes = {note.key: note for note in real_notes()}
    acknowledged: set[str] = set()
    interrupted = 0
    written: set[str] = set()
    for _ in range(KILLS):
        with Process(tmp_path) as process, Client(process.announced["listen"]) as client:
            assert all(_recalled(client, written).values()), "all that the last life acknowledged"
            left = [note for key, note in notes.items() if key not in acknowledged]
            running = _Import(process.announced["listen"], left, chance.randrange(1, 300))
            assert running.is_enough.wait(60)
            process.signal(signal.SIGKILL)
            written = running.ended()
        acknowledged |= written
        interrupted += len(written) < len(left)
    assert interrupted == KILLS, "every kill fell into an import"
    with Process(tmp_path) as process, Client(process.announced["listen"]) as client:
        assert client.get_status().counts.damaged == 0
        for key, title in _recalled(client, acknowledged).items():
            assert title == notes[key].line["title"]


def _recalled(client: Client, keys: set[str]) -> dict[str, str]:
    """The titles of these entries; empty where there is none."""
    ordered = sorted(keys)
    found = {}
    for start in range(0, len(ordered), 250):
        for entry in client.recall_many(ordered[start : start + 250]):
            found[entry.key] = entry.title if entry.exists else ""
    return found
