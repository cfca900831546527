"""Real notes, imported into three clusters at once while their links are cut."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from replica.demo.fleet import CLUSTERS, Fleet, now_ms, ricordo
from replica.demo.links import Links
from tests.acceptance.real_notes import RealNote, needs_notes, real_notes, write_notes

SHARED = 500
"""How many notes all three clusters are given, each with a body of its own."""

CONVERGED_WITHIN = 60.0
"""Seconds; in ordinary life it takes a few. A bound on the wait, not a claim about speed."""


def _body_at(cluster: str, note: RealNote) -> str:
    return f"{note.line['body']}\nas seen in {cluster}"


def _import_all(fleet: Fleet, files: dict[str, Path]) -> list[dict[str, Any]]:
    imports = [
        subprocess.Popen(
            ricordo("import", str(file), "--address", fleet[cluster].address, "--json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=fleet.environment(),
            text=True,
        )
        for cluster, file in files.items()
    ]
    reports = []
    for each in imports:
        out, err = each.communicate(timeout=100)
        assert each.returncode == 0, err
        reports.append(json.loads(out))
    return reports


def _digests(fleet: Fleet, at: int) -> dict[str, tuple[bytes, int]]:
    found = {cluster: fleet[cluster].client.get_digest(at_ms=at) for cluster in CLUSTERS}
    return {cluster: (digest.digest, digest.live) for cluster, digest in found.items()}


def _wait_until_equal(fleet: Fleet, at: int, entries: int) -> None:
    bound = time.monotonic() + CONVERGED_WITHIN
    while True:
        found = _digests(fleet, at)
        if len(set(found.values())) == 1 and found["eu"][1] == entries:
            return
        assert time.monotonic() < bound, f"not converged: {found}"


@needs_notes
def test_notes_imported_apart_are_everywhere_when_the_links_return(tmp_path: Path) -> None:
    notes = real_notes()
    shared, rest = notes[:SHARED], notes[SHARED:]
    files = {
        cluster: write_notes(
            tmp_path / f"{cluster}.jsonl",
            [*(note.with_body(_body_at(cluster, note)) for note in shared), *rest[place :: len(CLUSTERS)]],
        )
        for place, cluster in enumerate(CLUSTERS)
    }
    with Links(CLUSTERS) as links, Fleet(tmp_path, links) as fleet:
        links.cut(*CLUSTERS)
        begun = now_ms()
        reports = _import_all(fleet, files)
        at = now_ms()
        assert sum(report["created"] for report in reports) == len(rest) + SHARED * len(CLUSTERS)
        assert [report["refused"] for report in reports] == [0, 0, 0]
        apart = _digests(fleet, at)
        assert len({digest for digest, _ in apart.values()}) == len(CLUSTERS)

        links.heal()
        healed = time.monotonic()
        _wait_until_equal(fleet, at, len(notes))
        print(f"converged {time.monotonic() - healed:.1f} s after the return of the links")

        for cluster in CLUSTERS:
            client = fleet[cluster].client
            found = {
                entry.key: entry for count in client.list_repos() for entry in client.scan(count.repo_id)
            }
            assert found.keys() == {note.key for note in notes}
            for place, note in enumerate(notes):
                line, entry = note.line, found[note.key]
                assert (entry.kind, entry.title) == (line["kind"], line["title"])
                assert (entry.author, entry.provenance) == (line["author"], line["provenance"])
                assert entry.created_at_ms == line["created_at"]
                assert set(entry.tags) == set(line["tags"])
                links_of = {name: set(targets) for name, targets in entry.links.items()}
                assert links_of == {name: set(targets) for name, targets in line["links"].items() if targets}
                ttl = line.get("ttl_seconds")
                if ttl is None:
                    assert entry.expires_at_ms is None
                else:
                    assert entry.expires_at_ms is not None
                    assert begun <= entry.expires_at_ms - ttl * 1000 <= at
                if place < SHARED:
                    bodies = {value.cluster: value.value for value in entry.concurrent["body"]}
                    assert bodies == {each: _body_at(each, note) for each in CLUSTERS}
                    assert entry.body == entry.concurrent["body"][0].value
                    assert entry.concurrent.keys() == {"body"}
                else:
                    assert entry.body == line["body"]
                    assert not entry.concurrent
        assert len(set(_digests(fleet, at).values())) == 1
