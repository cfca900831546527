"""The TTL of new entries that name none, per repository."""

from __future__ import annotations

import pytest

from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import Remember
from replica.core.errors import Refused
from replica.core.policy import LONGEST_DEFAULT, TtlPolicy
from tests.core.one_replica import START, Replica

POLICY = TtlPolicy(Millis(1000), {"kept": None, "long": Millis(5000)})


@pytest.mark.parametrize(
    ("repo_id", "ttl"), [("kept", None), ("long", 5000), ("other", 1000), ("kep", 1000), ("kept ", 1000)]
)
def test_overrides_go_by_the_exact_name(repo_id: str, ttl: int | None) -> None:
    replica = Replica(policy=POLICY)
    made = replica.remember(Remember(key=EntryKey.make(repo_id, "t", "i")))
    assert made.expires_at == (None if ttl is None else START + ttl)


def test_a_writer_may_say_otherwise() -> None:
    replica = Replica(policy=POLICY)
    assert replica.remember(Remember(key=EntryKey("r", "t", "1"), durable=True)).expires_at is None
    longer = replica.remember(Remember(key=EntryKey("r", "t", "2"), ttl=Millis(9000)))
    assert longer.expires_at == START + 9000
    shorter = replica.remember(Remember(key=EntryKey("r", "t", "3"), ttl=Millis(1)))
    assert shorter.expires_at == START + 1


def test_the_policy_is_for_new_entries_only() -> None:
    replica = Replica()
    key = EntryKey("r", "t", "i")
    replica.remember(Remember(key=key))
    replica.node = Replica(policy=POLICY).node
    assert replica.remember(Remember(key=key, title="x")).expires_at is None


@pytest.mark.parametrize("ttl", [0, -1, LONGEST_DEFAULT + 1])
def test_a_ttl_is_positive_and_finite(ttl: int) -> None:
    with pytest.raises(Refused):
        TtlPolicy(Millis(ttl))
    with pytest.raises(Refused):
        TtlPolicy(None, {"r": Millis(ttl)})
    assert TtlPolicy(LONGEST_DEFAULT).of("r") == LONGEST_DEFAULT


def test_an_override_names_a_repository() -> None:
    with pytest.raises(Refused):
        TtlPolicy(None, {"": None})
