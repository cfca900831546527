"""Watching: the events, folded, are the state; every lapse is told once; a resume loses and repeats none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import Forget, Remember, Update
from replica.core.entry import Entry, read_entry
from replica.core.errors import Code, Refused
from replica.core.identity import begin_anew, begin_store
from replica.core.limits import Limits
from replica.core.paging import make_token
from replica.core.rows import Due, changes_after, expiries, registers, tombstones
from replica.core.scope import check_scope
from replica.core.storage import DamagedRow, Storage
from replica.core.vanishing import drop_register
from replica.core.watch import (
    Advance,
    Event,
    Forgotten,
    Happened,
    Lapsed,
    Position,
    Put,
    advance,
    begin,
    position_token,
    read_position,
)
from tests.core.one_replica import START, Replica, sibling

EVERYTHING = check_scope(None, None)


@pytest.fixture
def replica(storage: Storage) -> Replica:
    return one(storage)


def one(storage: Storage | None = None) -> Replica:
    """A replica whose store has an identity."""
    replica = Replica(storage)
    identity = replica.storage.run(lambda t: begin_store(t, "home", START, lambda size: b"\1" * size))
    replica.node = replace(replica.node, identity=identity)
    return replica


def start(replica: Replica, scope: bytes = EVERYTHING, *, initial_state: bool = False) -> Position:
    with replica.storage.snapshot() as snapshot:
        return begin(snapshot, scope, replica.now, initial_state=initial_state)


def step(
    replica: Replica,
    position: Position,
    scope: bytes = EVERYTHING,
    *,
    rows: int = 500,
    limits: Limits | None = None,
) -> Advance:
    with replica.storage.snapshot() as snapshot:
        return advance(snapshot, scope, position, replica.now, limits or replica.node.limits, rows)


def all_events(
    replica: Replica, position: Position, scope: bytes = EVERYTHING
) -> tuple[list[Event], Position]:
    events: list[Event] = []
    while True:
        found = step(replica, position, scope, rows=3)
        events += found.events
        position = found.position
        if found.caught_up:
            return events, position


def told(events: Sequence[Event]) -> list[tuple[str, str]]:
    """What happened to which id."""
    return [
        (
            type(event.happened).__name__,
            (event.happened.entry.key if isinstance(event.happened, Put) else event.happened.key).id,
        )
        for event in events
    ]


def remember(replica: Replica, id: str, ttl: int | None = None, topic: str = "t", repo: str = "r") -> None:
    replica.remember(
        Remember(key=EntryKey(repo, topic, id), ttl=None if ttl is None else Millis(ttl), title=id)
    )


def purge(replica: Replica) -> None:
    """Drop everything dead, as a purge without any grace would."""
    with replica.storage.transaction() as transaction:
        dead = [*tombstones(transaction), *expiries(transaction, until=replica.now)]
        for due in dead:
            drop_register(transaction, due.key)


# --- what is told


def test_changes_come_in_order_with_the_entry_as_it_is(replica: Replica) -> None:
    position = start(replica)
    remember(replica, "a")
    remember(replica, "b")
    remember(replica, "c")
    replica.forget(Forget(key=EntryKey("r", "t", "a")))
    replica.update(Update(key=EntryKey("r", "t", "b"), title="changed"))
    events, _ = all_events(replica, position)
    assert told(events) == [("Put", "c"), ("Forgotten", "a"), ("Put", "b")]
    assert isinstance(events[2].happened, Put)
    assert events[2].happened.entry == replica.recall(EntryKey("r", "t", "b"))


def test_a_lapse_is_an_event_at_the_very_millisecond(replica: Replica) -> None:
    remember(replica, "a", 10)
    position = start(replica)
    assert step(replica, position).deadline == START + 10
    replica.now = Millis(START + 9)
    assert all_events(replica, position)[0] == []
    replica.now = Millis(START + 10)
    (event,), after = all_events(replica, position)
    assert event.happened == Lapsed(EntryKey("r", "t", "a"), Millis(START + 10))
    assert all_events(replica, after)[0] == []
    assert step(replica, after).deadline is None


def test_an_entry_with_a_new_expiry_does_not_lapse_at_the_old_one(replica: Replica) -> None:
    remember(replica, "a", 10)
    position = start(replica)
    remember(replica, "a", 20)
    replica.now = Millis(START + 10)
    events, position = all_events(replica, position)
    assert told(events) == [("Put", "a")]
    replica.now = Millis(START + 20)
    assert told(all_events(replica, position)[0]) == [("Lapsed", "a")]


def test_a_lapse_while_nobody_watched_is_told_once(replica: Replica) -> None:
    remember(replica, "known", 10)
    position = start(replica)
    remember(replica, "unknown", 10)
    replica.now = Millis(START + 10_000)
    events, position = all_events(replica, position)
    assert told(events) == [("Lapsed", "known"), ("Lapsed", "unknown")]
    assert all_events(replica, position)[0] == []


def test_what_arrives_past_its_expiry_has_lapsed(replica: Replica) -> None:
    """An expiry that was set elsewhere, longer ago than this watch has been waiting."""
    key = EntryKey("r", "t", "a")
    position = start(replica)
    replica.arrive(sibling("eu", expires_at=START - 5, written_at=START - 10), key=key)
    assert [event.happened for event in all_events(replica, position)[0]] == [Lapsed(key, Millis(START - 5))]


def test_values_of_which_each_expired_before_another_have_lapsed(replica: Replica) -> None:
    key = EntryKey("r", "t", "a")
    position = start(replica)
    replica.arrive(
        sibling("eu", expires_at=START + 5, written_at=START + 9),
        sibling("us", expires_at=START + 8, written_at=START + 6),
        key=key,
    )
    assert [event.happened for event in all_events(replica, position)[0]] == [Lapsed(key, Millis(START + 8))]


def test_what_lapsed_lives_again_when_the_clock_is_set_back(replica: Replica) -> None:
    for at in range(8):
        remember(replica, str(at), 10 + at)
    position = start(replica)
    replica.now = Millis(START + 1_000_000)
    events, position = all_events(replica, position)
    assert len(events) == 8
    replica.now = Millis(START + 12)
    events, position = all_events(replica, position)
    assert told(events) == [("Put", id) for id in "76543"]
    replica.now = Millis(START + 13)
    assert told(all_events(replica, position)[0]) == [("Lapsed", "3")]


def test_a_scope_ends_at_its_component(replica: Replica) -> None:
    scopes = [check_scope("r", "svc"), check_scope("r", None), check_scope(None, None)]
    positions = [start(replica, scope) for scope in scopes]
    remember(replica, "a", topic="svc")
    remember(replica, "b", topic="svc-api")
    remember(replica, "c", repo="r2")
    seen = [
        [id for _, id in told(all_events(replica, position, scope)[0])]
        for position, scope in zip(positions, scopes, strict=True)
    ]
    assert seen == [["a"], ["a", "b"], ["a", "b", "c"]]


def test_the_initial_state_is_what_is_live_in_key_order(replica: Replica) -> None:
    for id in ("c", "a", "b", "dead", "gone"):
        remember(replica, id, 1 if id == "dead" else None)
    replica.forget(Forget(key=EntryKey("r", "t", "gone")))
    replica.now = Millis(START + 1)
    events, position = all_events(replica, start(replica, initial_state=True))
    assert told(events) == [("Put", "a"), ("Put", "b"), ("Put", "c")]
    remember(replica, "d")
    assert told(all_events(replica, position)[0]) == [("Put", "d")]


def test_during_the_initial_state_each_change_is_told_once(replica: Replica) -> None:
    for id in "abcd":
        remember(replica, id)
    found = step(replica, start(replica, initial_state=True), rows=2)
    assert told(found.events) == [("Put", "a"), ("Put", "b")]
    remember(replica, "a")
    remember(replica, "d")
    events, _ = all_events(replica, found.position)
    assert told(events) == [("Put", "a"), ("Put", "c"), ("Put", "d")]


def test_a_damaged_row_is_left_out_and_reported(replica: Replica) -> None:
    remember(replica, "a", 10)
    remember(replica, "b", 10)
    key = EntryKey("r", "t", "a")
    position = start(replica)
    replica.damage(key)
    replica.now = Millis(START + 10)
    found = step(replica, position)
    assert (told(found.events), found.damaged) == ([("Lapsed", "b")], (key,))
    found = step(replica, start(replica, initial_state=True))
    assert found.damaged == (key,)


def test_a_step_holds_no_more_than_an_answer_may(replica: Replica) -> None:
    for id in "abcdef":
        remember(replica, id)
    few = replace(replica.node.limits, page_entries=2)
    found = step(replica, start(replica, initial_state=True), limits=few)
    assert (len(found.events), found.caught_up, found.deadline) == (2, False, None)
    small = replace(replica.node.limits, page_bytes=1)
    found = step(replica, start(replica, initial_state=True), limits=small)
    assert (len(found.events), found.caught_up) == (1, False)


# --- tokens


def test_a_token_names_a_position_in_one_scope(replica: Replica) -> None:
    scope, other = check_scope("r", None), check_scope("r2", None)
    for initial_state in (False, True):
        position = start(replica, scope, initial_state=initial_state)
        token = position_token(scope, position)
        assert read_position(scope, token) == position
        for bad_scope, bad in ((other, token), (scope, "?"), (scope, token[:-1]), (scope, "")):
            with pytest.raises(Refused) as caught:
                read_position(bad_scope, bad)
            assert (caught.value.code, caught.value.field) == (Code.INVALID_ARGUMENT, "resume_token")


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x90", b"\x96\xc4\x01s\x01\xff\xc4\x00\x01\xc0"])
def test_a_token_that_was_made_up_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as caught:
        read_position(b"", make_token("watch", b"", body))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_topic_needs_its_repository() -> None:
    with pytest.raises(Refused) as caught:
        check_scope(None, "t")
    assert (caught.value.code, caught.value.field) == (Code.INVALID_ARGUMENT, "repo_id")


def too_old(replica: Replica, position: Position) -> bool:
    try:
        step(replica, position)
    except Refused as refused:
        return (refused.code, refused.field) == (Code.OUT_OF_RANGE, "resume_token")
    return False


def test_a_token_of_another_store_or_a_lost_past_is_too_old(replica: Replica) -> None:
    remember(replica, "a")
    position = start(replica)
    assert too_old(replica, replace(position, store_id=b"o" * 16))
    assert too_old(replica, replace(position, sequence=position.sequence + 1))
    assert not too_old(replica, position)
    replica.storage.run(lambda t: begin_anew(t, START, lambda size: b"\2" * size))
    assert too_old(replica, position)


def test_a_token_that_a_purge_passed_by_is_too_old(replica: Replica) -> None:
    remember(replica, "a")
    before = start(replica)
    replica.forget(Forget(key=EntryKey("r", "t", "a")))
    after = start(replica)
    purge(replica)
    assert too_old(replica, before)
    assert not too_old(replica, after)


def test_a_token_from_before_a_lapse_that_was_purged_is_too_old(replica: Replica) -> None:
    """Its sequence says nothing of that: the entry was last written before the token was made."""
    remember(replica, "a", 10)
    remember(replica, "b")
    before = start(replica)
    replica.now = Millis(START + 10)
    _, after = all_events(replica, before)
    purge(replica)
    assert too_old(replica, before)
    assert not too_old(replica, after)


def test_a_purge_in_the_middle_of_a_millisecond_is_noticed(replica: Replica) -> None:
    for id in "ab":
        remember(replica, id, 10)
    position = start(replica)
    replica.now = Millis(START + 10)
    found = step(replica, position, rows=1)
    assert told(found.events) == [("Lapsed", "a")]
    purge(replica)
    assert too_old(replica, found.position)


def test_a_purge_by_a_wild_clock_does_not_end_watches_made_since(replica: Replica) -> None:
    remember(replica, "far", 1_000_000)
    before = start(replica)
    replica.now = Millis(START + 2_000_000)
    _, wild = all_events(replica, before)
    purge(replica)
    replica.now = START
    assert too_old(replica, before)
    for _ in range(2):
        assert not too_old(replica, wild)
        events, wild = all_events(replica, wild)
        assert not events
    watching = start(replica)
    for round in range(3):
        remember(replica, "near", 10)
        replica.now = Millis(replica.now + 20)
        events, watching = all_events(replica, watching)
        assert told(events) == [("Lapsed", "near")], round
        purge(replica)
        assert not too_old(replica, watching)


def test_an_entry_that_vanishes_alive_ends_every_watch(replica: Replica) -> None:
    for ttl in (None, 1000):
        remember(replica, "a", ttl)
        watching = start(replica)
        with replica.storage.transaction() as transaction:
            drop_register(transaction, EntryKey("r", "t", "a").to_store())
        assert too_old(replica, watching)
        assert not too_old(replica, start(replica))


def test_a_damaged_row_that_vanishes_ends_every_watch(replica: Replica) -> None:
    remember(replica, "a")
    watching = start(replica)
    replica.damage(EntryKey("r", "t", "a"))
    with replica.storage.transaction() as transaction:
        drop_register(transaction, EntryKey("r", "t", "a").to_store())
    assert too_old(replica, watching)


# --- the law


IDS = st.sampled_from([EntryKey(repo, topic, id) for repo in "rs" for topic in ("t", "u") for id in "ab"])
SCOPES = [check_scope(None, None), check_scope("r", None), check_scope("s", "u")]


@dataclass
class Watcher:
    """Somebody who folds events, and has kept the token of the last one."""

    scope: bytes
    token: str
    last: dict[EntryKey, Happened] = field(default_factory=dict)
    """What happened to each key, as far as it was told."""

    def fold(self, event: Event) -> None:
        self.token = position_token(self.scope, event.position)
        happened = event.happened
        key = happened.entry.key if isinstance(happened, Put) else happened.key
        assert key.to_store().startswith(self.scope)
        if isinstance(happened, Lapsed):
            assert self.last.get(key) != happened, "a lapse was told twice"
        self.last[key] = happened

    def live(self) -> dict[EntryKey, Entry]:
        return {key: put.entry for key, put in self.last.items() if isinstance(put, Put)}


class Watching(RuleBasedStateMachine):
    """Random writes, lapses, purges and clocks; watchers that are slow, and that resume anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.replica = one()
        self.watchers: list[Watcher] = []

    @rule(key=IDS, ttl=st.sampled_from([None, 1, 5, 50]))
    def remember(self, key: EntryKey, ttl: int | None) -> None:
        self.replica.remember(Remember(key=key, ttl=None if ttl is None else Millis(ttl)))

    @rule(key=IDS, lapse=st.booleans())
    def forget(self, key: EntryKey, lapse: bool) -> None:
        self.replica.forget(Forget(key=key, lapse=lapse, lapse_for=Millis(3) if lapse else None))

    @rule(by=st.sampled_from([1, 1, 2, 5, 100, -3, -50]))
    def time_passes(self, by: int) -> None:
        self.replica.now = Millis(self.replica.now + by)

    @rule()
    def purge(self) -> None:
        purge(self.replica)

    @rule()
    def purge_one_alive(self) -> None:
        """Whatever the cause."""
        with self.replica.storage.transaction() as transaction:
            for key, _ in list(registers(transaction))[:1]:
                drop_register(transaction, key)

    @rule(scope=st.sampled_from(SCOPES))
    @precondition(lambda self: len(self.watchers) < 3)
    def watch(self, scope: bytes) -> None:
        position = start(self.replica, scope, initial_state=True)
        self.watchers.append(Watcher(scope, position_token(scope, position)))

    @rule(at=st.integers(0, 2), rows=st.integers(1, 6), cut=st.none() | st.integers(0, 3))
    @precondition(lambda self: self.watchers)
    def read(self, at: int, rows: int, cut: int | None) -> None:
        """Read on; with `cut` the watcher gets only so many events, and has to resume from the last."""
        watcher = self.watchers[at % len(self.watchers)]
        position = read_position(watcher.scope, watcher.token)
        try:
            found = step(self.replica, position, watcher.scope, rows=rows)
        except Refused:
            self.watchers.remove(watcher)
            return
        for event in found.events[:cut]:
            watcher.fold(event)
            self.holds(watcher)
        if cut is None or cut >= len(found.events):
            watcher.token = position_token(watcher.scope, found.position)
            self.holds(watcher)
        if found.caught_up:
            assert found.deadline == next((due.at for due in self.dues() if due.at > self.replica.now), None)

    def dues(self) -> list[Due]:
        with self.replica.storage.snapshot() as snapshot:
            return list(expiries(snapshot))

    def holds(self, watcher: Watcher) -> None:
        """What was told is the state that the position names, for each key that has not changed since."""
        position = read_position(watcher.scope, watcher.token)
        place = (position.lapses.at, position.lapses.key)
        with self.replica.storage.snapshot() as snapshot:
            ahead = {change.key for change in changes_after(snapshot, position.sequence)}
            expiry = {due.key: due.at for due in expiries(snapshot)}
            for raw, register in registers(snapshot):
                assert not isinstance(register, DamagedRow)
                if raw in ahead or not raw.startswith(watcher.scope):
                    continue
                key = EntryKey.from_store(raw)
                last = watcher.last.get(key)
                shown = read_entry(key, register, Millis(-1))
                if position.walked is not None and raw >= position.walked:
                    assert last is None
                elif not shown.exists:
                    assert last in (None, Forgotten(key))
                elif raw in expiry and (expiry[raw], raw) < place:
                    assert last in (None, Lapsed(key, expiry[raw]))
                else:
                    assert isinstance(last, Put)
                    assert last.entry.version == shown.version

    @invariant()
    def whoever_is_up_to_date_has_the_state(self) -> None:
        for watcher in list(self.watchers):
            probe = Watcher(watcher.scope, watcher.token, dict(watcher.last))
            try:
                events, _ = all_events(self.replica, read_position(probe.scope, probe.token), probe.scope)
            except Refused:
                continue
            for event in events:
                probe.fold(event)
            with self.replica.storage.snapshot() as snapshot:
                entries = [
                    read_entry(EntryKey.from_store(raw), register, self.replica.now)
                    for raw, register in registers(snapshot)
                    if not isinstance(register, DamagedRow) and raw.startswith(probe.scope)
                ]
            assert {key: entry.version for key, entry in probe.live().items()} == {
                entry.key: entry.version for entry in entries if entry.exists
            }


Watching.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWatching = Watching.TestCase
