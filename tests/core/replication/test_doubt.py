"""The question at a start: what the answers mean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crdt.clock import EMPTY_CLOCK
from crdt.dot import Incarnation
from replica.core.doubt import Doubt, doubt_at_start, doubt_of_place, settle
from replica.core.identity import read_identity
from replica.core.messages import Answer, Question
from replica.core.rows import get_cursor
from replica.core.supplier import answer
from replica.core.underway import busy_with
from tests.core.replication.small_fleet import Site, World, one_by_one, sync


def asked(site: Site, *peers: Site) -> dict[str, Answer]:
    question = Question(site.name, site.identity.incarnation, site.identity.store_id)
    out = {}
    for peer in peers:
        with peer.storage.snapshot() as snapshot:
            out[peer.name] = answer(snapshot, peer.identity, question)
    return out


def doubt(site: Site, answers: dict[str, Answer], configured: tuple[str, ...] = ("B", "C")) -> Doubt | None:
    with site.storage.snapshot() as snapshot:
        return doubt_at_start(snapshot, site.identity, configured, answers)


def fleet() -> tuple[Site, Site, Site]:
    world = World()
    a, b, c = (Site(world, name, [peer for peer in "ABC" if peer != name]) for name in "ABC")
    a.remember("k", "v")
    b.remember("l", "v")
    sync(a, b, c)
    return a, b, c


def test_a_replica_whose_peers_know_no_more_of_it_goes_on() -> None:
    a, b, c = fleet()
    assert doubt(a, asked(a, b, c)) is None


def test_a_replica_without_peers_has_nobody_to_ask() -> None:
    a, _, _ = fleet()
    assert doubt(a, {}, ()) is None
    assert doubt(a, {}, ("A",)) is None


def test_a_peer_that_could_not_be_asked_leaves_a_doubt() -> None:
    a, b, _ = fleet()
    found = doubt(a, asked(a, b))
    assert found is not None
    assert "C could not be asked" in found.reason


def test_a_peer_that_is_new_or_filling_does_not_count_as_asked() -> None:
    a, b, c = fleet()
    answers = asked(a, b, c)
    for changed in (
        replace(answers["C"], filling=True),
        replace(answers["C"], incarnation=None, clock=EMPTY_CLOCK, acknowledged=None),
    ):
        assert doubt(a, {**answers, "C": changed}) is not None
    c.wipe()
    one_by_one(c, b, 1)
    with c.storage.snapshot() as snapshot:
        assert busy_with(snapshot) == "B"
    assert doubt(a, asked(a, b, c)) is not None


def test_a_peer_that_is_connected_to_this_very_store_leaves_a_doubt() -> None:
    a, b, c = fleet()
    answers = asked(a, b, c)
    found = doubt(a, {**answers, "B": replace(answers["B"], connected=True)})
    assert found is not None
    assert "connected to another replica with this very store" in found.reason


def test_a_store_that_lies_where_it_was_left_is_no_copy() -> None:
    a, _, _ = fleet()
    assert a.storage.run(lambda tx: doubt_of_place(tx, b"here")) is None
    assert a.storage.run(lambda tx: doubt_of_place(tx, b"here")) is None
    assert a.storage.run(lambda tx: doubt_of_place(tx, b"there")) is not None
    assert a.storage.run(lambda tx: doubt_of_place(tx, b"there")) is None


@pytest.mark.parametrize("what", ["write", "news"])
def test_a_directory_from_a_copy_is_found_out(what: str) -> None:
    a, b, c = fleet()
    old = a.copy()
    if what == "write":
        a.remember("lost", "v")
    else:
        b.remember("news", "v")
    sync(a, b, c)
    a.roll_back(old, noticed=False)
    found = doubt(a, asked(a, b, c))
    assert found is not None
    assert found.above == a.identity.incarnation


def test_an_acknowledgement_later_than_the_cursor_is_found_out() -> None:
    a, b, c = fleet()
    answers = asked(a, b, c)
    acknowledged = answers["B"].acknowledged
    assert acknowledged is not None
    later = {**answers, "B": replace(answers["B"], acknowledged=acknowledged + 1)}
    found = doubt(a, later)
    assert found is not None
    assert "acknowledgement" in found.reason


def test_a_new_incarnation_is_above_everything_that_was_heard_of() -> None:
    a, b, c = fleet()
    answers = asked(a, b, c)
    far = Incarnation(b"\x7f" + bytes(15))
    found = doubt(a, {**answers, "C": replace(answers["C"], incarnation=far)})
    assert found is not None
    before = a.identity
    with a.storage.transaction() as transaction:
        begun = settle(transaction, found, a.now, a.world.entropy)
    with a.storage.snapshot() as snapshot:
        assert read_identity(snapshot) == begun
        assert get_cursor(snapshot, "B") is None
    assert begun.incarnation > far
    assert begun.store_id != before.store_id
    assert begun.cluster == before.cluster


def test_beginning_anew_drops_what_is_under_way() -> None:
    a, b, _ = fleet()
    n = Site(a.world, "N")
    one_by_one(n, b, 1)
    with n.storage.snapshot() as snapshot:
        assert busy_with(snapshot) == "B"
    n.storage.run(lambda tx: settle(tx, Doubt("told to"), n.now, n.world.entropy))
    with n.storage.snapshot() as snapshot:
        assert busy_with(snapshot) is None
