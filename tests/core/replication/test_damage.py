"""Damaged rows: never folded, never replicated, fetched again whole."""

from __future__ import annotations

from replica.core.damage import damaged_keys, fetch, heal, note_damage
from replica.core.messages import Fetched
from replica.core.must_reconcile import put_on_list
from replica.core.rows import get_cursor, put_register
from replica.core.storage import Table, Transaction
from replica.core.underway import get_reconcile
from tests.core.replication.small_fleet import Site, Stream, World, pull, store_key, sync

K = store_key("k")


def damage(site: Site, key: bytes = K) -> None:
    """Flip a bit of a row."""

    def flip(transaction: Transaction) -> None:
        frame = transaction.get(Table.REGISTERS, key)
        assert frame is not None
        transaction.put(Table.REGISTERS, key, frame[:-1] + bytes([frame[-1] ^ 1]))

    site.storage.run(flip)


def answers(*sites: Site) -> list[Fetched]:
    out: list[Fetched] = []
    for site in sites:
        with site.storage.snapshot() as snapshot:
            out += fetch(snapshot, (K,))
    return out


def fleet() -> tuple[Site, Site, Site]:
    world = World()
    a, b, c = (Site(world, name, [peer for peer in "ABC" if peer != name]) for name in "ABC")
    sync(a, b, c)
    return a, b, c


def noted(site: Site) -> tuple[bytes, ...]:
    with site.storage.snapshot() as snapshot:
        return damaged_keys(snapshot)


def test_a_damaged_row_is_skipped_reported_and_keeps_batches_from_being_complete() -> None:
    a, b, _ = fleet()
    a.remember("other", "v")
    a.remember("k", "v")
    damage(a)
    stream = Stream(b, a)
    stream.run_open()
    assert b.titles("other") == {"v"}
    assert b.read("k") == ()
    assert noted(a) == (K,)
    assert not a.clock().leq(b.clock())
    stream.beat()
    with b.storage.snapshot() as snapshot:
        cursor = get_cursor(snapshot, "A")
    assert cursor is not None
    assert cursor.sequence == 2
    stream.close()
    pull(b, a)
    assert not a.clock().leq(b.clock()), "nor does a new stream vouch for the clock"


def test_once_healed_a_row_travels_like_a_change() -> None:
    a, b, c = fleet()
    a.remember("k", "v")
    pull(c, a)
    damage(a)
    pull(b, a)
    assert b.titles("k") == set()
    assert a.storage.run(lambda tx: heal(tx, K, answers(c), everyone=False))
    assert noted(a) == ()
    assert a.titles("k") == {"v"}
    pull(b, a)
    assert b.titles("k") == {"v"}
    assert b.clock() == a.clock()


def test_answers_that_have_not_seen_all_of_it_do_not_suffice() -> None:
    a, b, c = fleet()
    a.remember("k", "old")
    pull(b, a)
    a.remember("k", "new")
    pull(c, a)
    damage(a)
    assert not a.storage.run(lambda tx: heal(tx, K, answers(b), everyone=False))
    assert a.storage.run(lambda tx: heal(tx, K, answers(b, c), everyone=False))
    assert a.titles("k") == {"new"}


def test_when_everybody_was_asked_what_nobody_else_had_is_lost_and_the_rest_is_back() -> None:
    a, b, c = fleet()
    a.remember("k", "old")
    sync(a, b, c)
    a.remember("k", "only here")
    damage(a)
    assert not a.storage.run(lambda tx: heal(tx, K, answers(b, c), everyone=False))
    assert a.storage.run(lambda tx: heal(tx, K, answers(b, c), everyone=True))
    assert a.titles("k") == {"old"}


def test_what_all_others_have_purged_stays_away() -> None:
    a, b, c = fleet()
    a.remember("k", "v")
    sync(a, b, c)
    a.forget("k")
    sync(a, b, c)
    for site in (b, c):
        assert site.purge().tombstones == 1
    damage(a)
    assert a.storage.run(lambda tx: heal(tx, K, answers(b, c), everyone=False))
    assert a.everything() == {}


def test_a_local_write_over_a_damaged_row_ends_the_damage() -> None:
    a, b, _ = fleet()
    a.remember("k", "v")
    sync(a, b)
    damage(a)
    a.storage.run(lambda tx: note_damage(tx, (K,)))
    assert noted(a) == (K,)
    register = b.read("k")

    def put(transaction: Transaction) -> None:
        put_register(transaction, K, register, origin=None)

    a.storage.run(put)
    assert noted(a) == ()


def test_a_reconcile_waits_before_a_damaged_row() -> None:
    world = World()
    s, n = Site(world, "S"), Site(world, "N")
    s.remember("a", "v")
    s.remember("k", "v")
    s.remember("z", "v")
    n.remember("mine", "n")
    damage(s)
    stream = Stream(n, s)
    stream.run_open()
    # Noted first, and only then passed on up to there.
    stream.run_open()
    with n.storage.snapshot() as snapshot:
        state = get_reconcile(snapshot)
    assert state is not None
    assert state.position == K
    assert n.titles("a") == {"v"}
    assert noted(s) == (K,)
    stream.close()


def test_what_arrives_for_a_damaged_row_is_left_to_the_healing() -> None:
    a, b, _ = fleet()
    a.remember("k", "v")
    sync(a, b)
    damage(b)
    a.remember("k", "more")
    outcomes = _run(Stream(b, a))
    assert any(K in outcome for outcome in outcomes)
    assert noted(b) == (K,)
    assert b.storage.run(lambda tx: heal(tx, K, answers(a), everyone=False))
    assert b.titles("k") == {"more"}


def _run(stream: Stream) -> list[tuple[bytes, ...]]:
    damaged: list[tuple[bytes, ...]] = []
    for _ in range(100):
        stream.poll()
        if stream.up:
            stream.deliver_up()
        elif stream.down:
            outcome = stream.deliver_down()
            if outcome is not None:
                damaged.append(outcome.damaged)
    stream.close()
    return damaged


def test_a_key_that_is_damaged_at_the_peer_too_is_not_answered() -> None:
    a, b, _ = fleet()
    a.remember("k", "v")
    sync(a, b)
    damage(a)
    assert answers(a) == []
    assert len(answers(b)) == 1


def damage_key(site: Site, key: bytes = K) -> bytes:
    """Flip a bit of the key of a row; the key as it then is."""
    flipped = key[:-1] + bytes([key[-1] ^ 4])

    def flip(transaction: Transaction) -> None:
        frame = transaction.get(Table.REGISTERS, key)
        assert frame is not None
        transaction.delete(Table.REGISTERS, key)
        transaction.put(Table.REGISTERS, flipped, frame)

    site.storage.run(flip)
    return flipped


def test_a_row_whose_key_is_damaged_is_lost_under_its_right_key_and_not_purged() -> None:
    a, b, c = fleet()
    a.remember("k", "v")
    a.remember("other", "v")
    pull(b, a)
    wrong = damage_key(a)
    assert a.storage.run(lambda tx: note_damage(tx, (wrong,))) == (K,)
    assert noted(a) == (K,)
    pull(c, a)
    assert c.titles("other") == {"v"}
    assert not a.clock().leq(c.clock()), "it claims nothing that it cannot show"
    assert a.storage.run(lambda tx: heal(tx, K, answers(b), everyone=False))
    assert noted(a) == ()
    assert a.titles("k") == b.titles("k") == {"v"}
    pull(c, a)
    assert c.titles("k") == {"v"}
    with a.storage.snapshot() as snapshot:
        assert snapshot.get(Table.REGISTERS, wrong) is None


def test_a_register_that_the_log_names_and_that_is_not_there_is_noticed_when_it_is_to_be_sent() -> None:
    a, b, c = fleet()
    a.remember("k", "v")
    pull(b, a)
    damage_key(a)
    pull(c, a)
    assert noted(a) == (K,)
    assert not a.clock().leq(c.clock())
    assert a.storage.run(lambda tx: heal(tx, K, answers(b), everyone=False))
    sync(a, b, c)
    assert a.titles("k") == b.titles("k") == c.titles("k") == {"v"}


def test_what_was_purged_and_what_never_was_is_not_lost() -> None:
    a, b, _ = fleet()
    a.remember("k", "v")
    pull(b, a)
    assert a.storage.run(lambda tx: note_damage(tx, (K, store_key("never")))) == ()
    assert noted(a) == ()


def test_a_damaged_row_that_its_log_row_does_not_name_is_still_noted() -> None:
    a, _, _ = fleet()
    a.remember("k", "v")
    damage(a)

    def lose_the_log(transaction: Transaction) -> None:
        for place, _ in list(transaction.items(Table.CHANGES)):
            transaction.delete(Table.CHANGES, place)

    a.storage.run(lose_the_log)
    assert a.storage.run(lambda tx: note_damage(tx, (K,))) == (K,)


def test_a_reconcile_takes_no_register_for_purged_whose_key_was_damaged() -> None:
    a, b, _ = fleet()
    a.remember("k", "v")
    pull(b, a)
    a.remember("kz", "v")
    # b is to reconcile with a, which has lost the register of k; the damaged row comes behind it.
    a.storage.run(lambda tx: put_on_list(tx, ("B",)))
    damage_key(a)
    stream = Stream(b, a)
    stream.run_open()
    stream.run_open()
    stream.close()
    assert noted(a) == (K,)
    assert b.titles("k") == {"v"}
    assert a.storage.run(lambda tx: heal(tx, K, answers(b), everyone=True))
    sync(a, b)
    assert a.titles("k") == b.titles("k") == {"v"}
