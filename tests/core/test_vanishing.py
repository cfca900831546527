"""What is remembered of registers that vanish without a change."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import Forget, Remember
from replica.core.rows import get_sequence
from replica.core.vanishing import NEVER, Vanished, drop_register, get_vanished
from tests.core.one_replica import KEY, START, Replica


def drop(replica: Replica, key: EntryKey = KEY) -> Vanished:
    with replica.storage.transaction() as transaction:
        drop_register(transaction, key.to_store())
        return get_vanished(transaction)


def test_a_new_store_has_lost_nothing(replica: Replica) -> None:
    with replica.storage.snapshot() as snapshot:
        assert get_vanished(snapshot) == Vanished()
    assert Vanished().latest_since(0) is None


def test_the_highest_sequence_that_vanished_is_kept(replica: Replica) -> None:
    others = [EntryKey("r", "t", id) for id in "ab"]
    for key in others:
        replica.remember(Remember(key=key))
        replica.forget(Forget(key=key))
    with replica.storage.snapshot() as snapshot:
        highest = get_sequence(snapshot)
    assert drop(replica, others[1]).sequence == highest
    assert drop(replica, others[0]).sequence == highest


def test_a_tombstone_takes_no_lapse_along_and_a_durable_entry_all(replica: Replica) -> None:
    replica.remember(Remember(key=KEY))
    replica.forget(Forget(key=KEY))
    assert drop(replica).latest_since(0) is None
    replica.remember(Remember(key=KEY))
    assert drop(replica).latest_since(0) == NEVER


def test_so_does_a_row_that_nobody_can_read(replica: Replica) -> None:
    replica.remember(Remember(key=KEY, ttl=Millis(1)))
    replica.damage()
    assert drop(replica).latest_since(0) == NEVER


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=60))
def test_the_latest_expiry_since_any_moment_is_kept(ttls: list[int]) -> None:
    """Exactly, while few follow one another in descending order; with more, none that is too early."""
    replica = Replica()
    for ttl in ttls:
        replica.remember(Remember(key=KEY, ttl=Millis(ttl)))
        vanished = drop(replica)
    assert vanished.count == len(ttls)
    assert vanished.latest_since(len(ttls)) is None
    assert len(vanished.steps) <= 16
    for count in range(len(ttls)):
        latest = START + max(ttls[count:])
        kept = vanished.latest_since(count)
        assert kept is not None
        assert kept >= latest
        if len(vanished.steps) < 16:
            assert kept == latest


def test_many_in_descending_order_take_no_more_room() -> None:
    replica = Replica()
    for ttl in range(100, 0, -1):
        replica.remember(Remember(key=KEY, ttl=Millis(ttl)))
        vanished = drop(replica)
        assert vanished.latest_since(100 - ttl) in range(START + ttl, START + 101)
    assert vanished.latest_since(0) == START + 100
    assert len(vanished.steps) <= 16
