"""The tour: its steps, in order. Each is a function that does something, shows it and checks it.

A step leaves the fleet whole (no link cut) and in agreement. To add one, write it and name it in STEPS.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from replica.demo.fleet import CLUSTERS, DemoError, Fleet, now_ms, ricordo
from replica.demo.narrator import Narrator
from replica.demo.notes import Note

__all__ = ["STEPS", "Step", "Tour"]


@dataclass(slots=True)
class Tour:
    """What the steps share."""

    fleet: Fleet
    narrator: Narrator
    notes: Sequence[Note]
    folder: Path
    """For files of the demo's own."""

    def expect(self, holds: bool, text: str) -> None:
        """Tell that something holds; raises DemoError where it does not."""
        if not holds:
            raise DemoError(f"this does not hold: {text}")
        self.narrator.held(text)

    def until(self, text: str, condition: Callable[[], bool]) -> None:
        """Wait until something holds, and tell it."""
        seconds = self.fleet.wait(text, condition)
        self.narrator.held(f"{text} ({seconds:.1f} s)")

    def until_agreed(self) -> None:
        """Wait until all clusters hold the same, and tell it."""
        self.until("all three hold the same", self.fleet.agree)

    def everywhere(self, key: str) -> bool:
        """An entry is live at every cluster's replica."""
        return all(self.holds(cluster, key) for cluster in CLUSTERS)

    def nowhere(self, key: str) -> bool:
        """An entry is live at no cluster's replica."""
        return not any(self.holds(cluster, key) for cluster in CLUSTERS)

    def holds(self, cluster: str, key: str) -> bool:
        """An entry is live at a cluster's replica."""
        return self.fleet[cluster].client.recall(key).exists


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the tour."""

    title: str
    run: Callable[[Tour], None]


def start(tour: Tour) -> None:
    """Show the fleet once everyone pulls from everyone."""
    tour.narrator.say(
        """Each cluster has a replica of its own: a process, a store on disk, and one port for agents. Each
        pulls from the two others, over links that this demo can cut. Below, `eu$` means: run beside the
        replica of eu (RICORDO_ADDRESS names it)."""
    )
    members = [tour.fleet[cluster] for cluster in CLUSTERS]
    rows = [(member.cluster, str(member.process.pid), member.address) for member in members]
    tour.narrator.table(("cluster", "process", "agents call"), rows)
    tour.until("each pulls from the two others", tour.fleet.connected)


def fill(tour: Tour) -> None:
    """Import a third of the notes through each replica, at once."""
    notes = tour.notes
    tour.narrator.say(
        f"""The notes are this project's own decision records and their passages, {len(notes)} in all. A third
        of them goes in at each cluster, all three at once."""
    )
    running = []
    for index, cluster in enumerate(CLUSTERS):
        file = tour.folder / f"{cluster}.jsonl"
        lines = [json.dumps(note.line, ensure_ascii=False) + "\n" for note in notes[index::3]]
        file.write_text("".join(lines), encoding="utf-8")
        process = subprocess.Popen(
            ricordo("import", file.name),
            cwd=tour.folder,
            env=tour.fleet.environment(RICORDO_ADDRESS=tour.fleet[cluster].address),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append((cluster, file, process))
    for cluster, file, process in running:
        said, _ = process.communicate(timeout=30)
        tour.narrator.prompt(cluster, ("import", file.name))
        tour.narrator.output(said)
        if process.returncode:
            raise DemoError(f"the import at {cluster} ended with {process.returncode}")
    tour.until_agreed()
    found = {digest.live for digest in tour.fleet.digests(now_ms()).values()}
    tour.expect(found == {len(notes)}, f"each holds all {len(notes)} notes")
    tour.narrator.run("ap", "topics", "--repo", "ricordo")


def edit_at_once(tour: Tour) -> None:
    """One note, edited on two clusters that cannot see each other."""
    note = min((note for note in tour.notes if note.topic != "decisions"), key=lambda note: len(note.body))
    (tag,) = note.tags
    fleet, narrator = tour.fleet, tour.narrator
    narrator.say("All links are cut. Someone edits a note on eu, and someone else the same note on us.")
    fleet.links.cut(*CLUSTERS)
    narrator.run("eu", "update", note.key, "--title", f"{note.title}, in short", "--tag", "reviewed")
    doubt = ("--title", f"{note.title}, in doubt", "--tag", "disputed", "--untag", tag)
    narrator.run("us", "update", note.key, *doubt)
    narrator.say("The links return. Neither edit had seen the other, so neither undoes the other in silence.")
    fleet.links.heal()
    tour.until_agreed()
    narrator.run("ap", "recall", note.key)
    entries = [fleet[cluster].client.recall(note.key) for cluster in CLUSTERS]
    titles = {f"{note.title}, in short", f"{note.title}, in doubt"}
    tour.expect(
        all({str(value.value) for value in entry.concurrent.get("title", ())} == titles for entry in entries),
        "every cluster shows one title, the same, and reports both",
    )
    tour.expect(
        all(set(entry.tags) == {"reviewed", "disputed"} for entry in entries),
        "the tags that either added are there, and the one that us removed is gone",
    )
    narrator.say("Whoever reads it on ap settles it by writing the title. What lost stays in its history.")
    narrator.run("ap", "update", note.key, "--title", note.title)
    tour.until_agreed()
    narrator.run("eu", "history", note.key)
    history = fleet["eu"].client.history(note.key)
    title = history.fields["title"]
    tour.expect(
        {str(value.value) for value in title.revisions} == titles and not title.concurrent,
        "one title is left, and both that lost are among its revisions",
    )


def cut_off(tour: Tour) -> None:
    """A cluster cut off from the others: everyone goes on, and everything arrives."""
    fleet, narrator = tour.fleet, tour.narrator
    narrator.say("Now ap is cut off. Agents there go on reading and writing, as do all others.")
    fleet.links.cut("ap")
    fleet.wait(
        "ap notices that it is alone",
        lambda: not any(peer.connected for peer in fleet["ap"].client.get_status().peers),
    )
    narrator.run("ap", "peers", "list")
    written = {cluster: f"repo/ricordo/mem/field-notes/from-{cluster}" for cluster in CLUSTERS}
    for cluster, key in written.items():
        narrator.run(
            cluster, "remember", key, "--title", f"Seen in {cluster}", "--body", "While ap was alone."
        )
    fleet.wait("eu and us exchange what they wrote", lambda: tour.holds("us", written["eu"]))
    fleet.wait("us and eu exchange what they wrote", lambda: tour.holds("eu", written["us"]))
    at = now_ms()
    digests = fleet.digests(at)
    narrator.table(
        ("cluster", "live", "digest"),
        [(cluster, str(digests[cluster].live), digests[cluster].digest.hex()) for cluster in CLUSTERS],
    )
    tour.expect(
        digests["eu"].digest == digests["us"].digest != digests["ap"].digest,
        "eu and us hold the same, ap does not",
    )
    narrator.say("The links return.")
    fleet.links.heal()
    tour.until_agreed()
    tour.expect(
        all(map(tour.everywhere, written.values())),
        "what each wrote meanwhile is on all three",
    )
    fleet.wait("ap is connected again", lambda: fleet.connected(CLUSTERS))


def lapse(tour: Tour) -> None:
    """An entry with a short life."""
    fleet, narrator = tour.fleet, tour.narrator
    key = "repo/ricordo/mem/field-notes/short-lived"
    before = fleet.digests(now_ms())["eu"].live
    narrator.say("An entry may have an expiry: a moment, not a countdown of each replica's own.")
    narrator.run("eu", "remember", key, "--title", "The build is red", "--body", "", "--ttl", "4s")
    moment = fleet["eu"].client.recall(key).expires_at_ms
    if moment is None:
        raise DemoError(f"eu holds {key} without an expiry")
    # The digest of a moment that has passed is still that of what lived then: no hurry is needed here.
    tour.until(
        "all three have it, with one expiry",
        lambda: fleet.agree(moment - 1) and fleet.digests(moment - 1)["ap"].live == before + 1,
    )
    tour.until("it lapses on all three", lambda: tour.nowhere(key))
    narrator.run("us", "recall", key, exits=3)
    earlier, from_then_on = fleet.digests(moment - 1), fleet.digests(moment)
    tour.expect(
        {digest.live for digest in earlier.values()} == {before + 1}
        and {digest.live for digest in from_then_on.values()} == {before},
        "a millisecond before that moment each counted it, and from that moment on none",
    )


def forget(tour: Tour) -> None:
    """A forget that one cluster hears of late, while it still has the entry."""
    fleet, narrator = tour.fleet, tour.narrator
    key = "repo/ricordo/mem/field-notes/from-us"
    narrator.say("An entry is forgotten on us while ap is cut off and still has it.")
    fleet.links.cut("ap")
    narrator.run("us", "forget", key)
    fleet.wait("the forget arrives at eu", lambda: not tour.holds("eu", key))
    tour.expect(tour.holds("ap", key), "ap still has it")
    narrator.say("The links return. What ap has is older than the forget, and does not bring the entry back.")
    fleet.links.heal()
    tour.until_agreed()
    tour.expect(tour.nowhere(key), "it is gone on all three")
    narrator.run("ap", "recall", key, exits=3)


def purge(tour: Tour) -> None:
    """Tombstones go once everyone has seen them, and nothing returns."""
    fleet, narrator = tour.fleet, tour.narrator
    clients = [fleet[cluster].client for cluster in CLUSTERS]
    narrator.say(
        """What is left of a forgotten entry is a tombstone. A replica drops it once it knows that every
        cluster has seen it: from time to time by itself, or when told to."""
    )
    narrator.run("us", "compact")
    tour.until(
        "no cluster holds a tombstone any more",
        lambda: all(client.compact() and not client.get_status().counts.tombstones for client in clients),
    )
    tour.expect(tour.nowhere("repo/ricordo/mem/field-notes/from-us"), "and the entry is still gone")


def compare(tour: Tour) -> None:
    """The last word: digests of one moment."""
    fleet, narrator = tour.fleet, tour.narrator
    narrator.say("At one moment, asked of each cluster: how many entries it holds, and their digest.")
    at = now_ms()
    digests = fleet.digests(at)
    narrator.table(
        ("cluster", "live", "digest"),
        [(cluster, str(digests[cluster].live), digests[cluster].digest.hex()) for cluster in CLUSTERS],
    )
    tour.expect(len(set(digests.values())) == 1, "all three agree")


STEPS = (
    Step("Three replicas", start),
    Step("Notes from all sides", fill),
    Step("Two edits at once", edit_at_once),
    Step("A cluster cut off", cut_off),
    Step("An entry that lapses", lapse),
    Step("A forget", forget),
    Step("No trace", purge),
    Step("The same everywhere", compare),
)
"""In the order of the tour."""
