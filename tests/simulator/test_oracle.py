"""The oracle against short histories whose outcome was worked out by hand from the design."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from replica.simulator.oracle import Answer, Contradiction, Dot, Expected, Oracle, excused

KEY = "k"


class Story:
    """A fleet told in one line a step: replicas a to d, one key, and a dot for every write that is due."""

    def __init__(self) -> None:
        self.oracle = Oracle()
        self.counters: dict[str, int] = {}
        self.incarnation: dict[str, bytes] = {}
        for replica in "abcd":
            self.oracle.join(replica)
            self.incarnation[replica] = b"1"
        self.last: Dot = ("", b"", 0)
        self.answer: Answer | None = None

    def mint(self, replica: str) -> list[Dot]:
        self.counters[replica] = self.counters.get(replica, 0) + 1
        self.last = (replica, self.incarnation[replica], self.counters[replica])
        return [self.last]

    def remember(
        self,
        replica: str,
        now: int,
        *,
        ttl: int | None = None,
        default: int | None = None,
        durable: bool = False,
        kind: str | None = None,
        created_at: int | None = None,
        tags: Collection[str] = (),
        untag: Collection[str] = (),
        links: Mapping[str, Collection[str]] | None = None,
        unlink: Mapping[str, Collection[str]] | None = None,
        held: Collection[Dot] | None = None,
        **fields: str,
    ) -> Dot:
        self.answer = self.oracle.remembered(
            replica,
            KEY,
            self.mint(replica),
            now=now,
            ttl_ms=ttl,
            default_ttl_ms=default,
            durable=durable,
            kind=kind,
            created_at=created_at,
            fields=fields,
            add_tags=tags,
            remove_tags=untag,
            add_links=links,
            remove_links=unlink,
            held=held,
        )
        return self.last

    def update(
        self,
        replica: str,
        now: int,
        *,
        tags: Collection[str] = (),
        untag: Collection[str] = (),
        links: Mapping[str, Collection[str]] | None = None,
        unlink: Mapping[str, Collection[str]] | None = None,
        **fields: str,
    ) -> Dot:
        self.answer = self.oracle.updated(
            replica,
            KEY,
            self.mint(replica),
            now=now,
            fields=fields,
            add_tags=tags,
            remove_tags=untag,
            add_links=links,
            remove_links=unlink,
        )
        return self.last

    def forget(self, replica: str, now: int) -> Dot:
        self.answer = self.oracle.forgot(replica, KEY, self.mint(replica), now=now)
        return self.last

    def lapse(self, replica: str, now: int, lapse: int = 60_000) -> Dot:
        self.answer = self.oracle.lapsed(replica, KEY, self.mint(replica), now=now, lapse_ms=lapse)
        return self.last

    def pull(self, receiver: str, supplier: str) -> None:
        self.oracle.caught_up(receiver, self.oracle.seen(supplier))

    def deliver(self, receiver: str, *dots: Dot) -> None:
        self.oracle.delivered(receiver, KEY, dots)

    def at(self, replica: str, now: int) -> Expected:
        found = self.oracle.expected_at(replica, KEY, now)
        assert found is not None
        return found

    def hidden(self, replica: str, now: int) -> bool:
        return self.oracle.expected_at(replica, KEY, now) is None

    def healed(self, now: int) -> Expected:
        found = self.oracle.expected(KEY, now)
        assert found is not None
        return found

    def gone(self, now: int) -> bool:
        return self.oracle.expected(KEY, now) is None


@pytest.fixture
def story() -> Story:
    return Story()


# --- one replica


def test_a_creation_shows_what_it_was_given(story: Story) -> None:
    dot = story.remember("a", 100, title="t", tags=["x"], links={"see": ["k2", "k3"]})
    assert story.answer == Answer(written=True, existed=False, created=True)
    assert story.at("a", 100) == Expected(
        kind="Note",
        created_at=100,
        fields={"title": "t"},
        concurrent={},
        tags=frozenset({"x"}),
        links=frozenset({("see", "k2"), ("see", "k3")}),
        revisions=(),
        expires_at=None,
        siblings=frozenset({dot}),
    )
    assert story.hidden("b", 100)
    assert story.oracle.expected("another", 100) is None


def test_a_later_remember_edits_and_ignores_another_kind(story: Story) -> None:
    story.remember("a", 100, kind="Decision", created_at=7, title="t", body="b")
    story.remember("a", 200, kind="Note", created_at=9, title="", body="c")
    assert story.answer == Answer(written=True, existed=True, kind_ignored=True)
    shown = story.at("a", 200)
    assert (shown.kind, shown.created_at, shown.fields) == ("Decision", 7, {"body": "c"})
    assert shown.revisions == ()


def test_update_of_an_absent_entry_is_refused(story: Story) -> None:
    refused = story.oracle.updated("a", KEY, [], now=1, fields={"title": "t"})
    assert refused == Answer(written=False, existed=False)
    with pytest.raises(Contradiction):
        story.update("a", 1, title="t")
    story.remember("a", 1, ttl=10)
    with pytest.raises(Contradiction):
        story.update("a", 11, title="t")


def test_adding_and_removing_the_same_tag_or_link_is_refused(story: Story) -> None:
    story.remember("a", 1, title="t")
    assert not story.oracle.updated("a", KEY, [], now=2, add_tags=["x"], remove_tags=["x"]).written
    assert not story.oracle.remembered(
        "a", KEY, [], now=2, add_links={"r": ["x"]}, remove_links={"r": ["x"]}
    ).written
    story.update("a", 2, links={"r": ["x"]}, unlink={"s": ["x"]})


def test_a_write_that_was_due_and_not_made_is_a_contradiction(story: Story) -> None:
    with pytest.raises(Contradiction):
        story.oracle.remembered("a", KEY, [], now=1)


def test_a_dot_is_never_minted_twice(story: Story) -> None:
    dot = story.remember("a", 1)
    with pytest.raises(Contradiction, match="second time"):
        story.oracle.remembered("a", "another", [dot], now=1)


def test_forget_leaves_nothing_and_of_nothing_writes_nothing(story: Story) -> None:
    assert story.oracle.forgot("a", KEY, [], now=1) == Answer(written=False, existed=False)
    story.remember("a", 1, title="t")
    story.forget("a", 2)
    assert story.answer == Answer(written=True, existed=True)
    assert story.hidden("a", 2)
    assert story.oracle.forgot("a", KEY, [], now=3) == Answer(written=False, existed=False)
    story.remember("a", 4, body="b")
    assert story.answer == Answer(written=True, existed=False, created=True)
    assert story.at("a", 4).fields == {"body": "b"}


def test_forget_of_a_purged_entry_writes_nothing_and_a_living_one_is_never_purged(story: Story) -> None:
    story.remember("a", 0, ttl=10)
    with pytest.raises(Contradiction, match="is live"):
        story.oracle.forgot("a", KEY, [], now=9, purged=True)
    with pytest.raises(Contradiction, match="one write was due"):
        story.oracle.forgot("a", KEY, [], now=10)
    assert story.oracle.forgot("a", KEY, [], now=10, purged=True) == Answer(written=False, existed=False)


# --- expiry


def test_an_entry_is_hidden_from_the_very_millisecond_of_its_expiry(story: Story) -> None:
    story.remember("a", 100, ttl=50)
    assert story.answer is not None
    assert story.answer.expires_at == 150
    assert story.at("a", 149).expires_at == 150
    assert story.hidden("a", 150)


def test_a_creation_takes_its_ttl_then_durable_then_the_default(story: Story) -> None:
    story.remember("a", 0, ttl=5, default=9)
    assert story.at("a", 4).expires_at == 5
    story.remember("a", 5, default=9)
    assert story.at("a", 5).expires_at == 14
    story.remember("a", 14, durable=True, default=9)
    assert story.at("a", 14).expires_at is None


def test_a_ttl_over_a_live_entry_gives_or_extends_an_expiry_and_never_shortens_it(story: Story) -> None:
    story.remember("a", 0)
    story.remember("a", 10, ttl=100)
    assert story.at("a", 10).expires_at == 110
    story.remember("a", 20, ttl=10)
    assert story.at("a", 20).expires_at == 110
    story.remember("a", 30, default=1_000, durable=True)
    assert story.answer == Answer(written=True, existed=True, expires_at=110, durable_ignored=True)
    story.update("a", 40, title="t")
    assert story.at("a", 40).expires_at == 110
    story.remember("a", 50, ttl=200)
    assert story.at("a", 50).expires_at == 250


def test_a_lapse_follows_the_rule_of_a_ttl_and_keeps_the_record(story: Story) -> None:
    assert story.oracle.lapsed("a", KEY, [], now=0, lapse_ms=5) == Answer(written=False, existed=False)
    story.remember("a", 0, title="t", tags=["x"])
    before = story.at("a", 0)
    dot = story.lapse("a", 10, 60)
    assert story.answer == Answer(written=True, existed=True, expires_at=70)
    assert story.at("a", 69) == replace(before, expires_at=70, siblings=frozenset({dot}))
    story.lapse("a", 20, 10)
    assert story.at("a", 20).expires_at == 70
    assert story.hidden("a", 70)


def test_of_concurrent_expiries_the_later_wins_and_durable_is_the_bottom(story: Story) -> None:
    story.remember("a", 0, title="t")
    story.pull("b", "a")
    story.pull("c", "a")
    story.remember("a", 1, ttl=100)
    story.remember("b", 1, ttl=200)
    story.update("c", 1, body="b")
    assert story.healed(200).expires_at == 201
    assert story.healed(200).fields == {"title": "t", "body": "b"}
    assert story.gone(201)


def test_history_1_a_note_that_had_expired_takes_no_unaware_durable_one_with_it(story: Story) -> None:
    dead = story.remember("a", 0, ttl=10, title="dead", tags=["x"])
    alive = story.remember("b", 10, title="alive")
    story.pull("a", "b")
    shown = story.healed(1_000)
    assert (shown.fields, shown.tags, shown.expires_at) == ({"title": "alive"}, frozenset(), None)
    assert shown.concurrent == {}
    assert shown.siblings == {dead, alive}
    assert story.at("a", 5) == shown, "the refinement looks at the siblings, not at the time"


def test_a_note_that_lived_when_the_other_was_written_expires_it(story: Story) -> None:
    story.remember("a", 0, ttl=10)
    story.remember("b", 9)
    assert story.healed(9).expires_at == 10
    assert story.gone(10)


def test_a_tombstone_does_not_refine_a_value_away(story: Story) -> None:
    story.remember("a", 0, ttl=10, title="t")
    story.remember("b", 0, title="u")
    story.forget("b", 50)
    story.pull("a", "b")
    assert story.at("a", 9).fields == {"title": "t"}
    assert story.gone(10)


def test_what_was_refined_away_is_replaced_and_not_folded(story: Story) -> None:
    dead = story.remember("a", 0, ttl=10, title="dead", tags=["x"])
    story.pull("c", "a")
    story.remember("b", 10, title="alive")
    story.pull("b", "a")
    over = story.update("b", 20, body="b")
    assert story.at("b", 20).siblings == {over}
    assert story.at("b", 20).fields == {"title": "alive", "body": "b"}
    # On a slow clock the dead note was written over: what it held was never folded by `over`, so it stays.
    later = story.remember("c", 9, ttl=1_000)
    story.pull("b", "c")
    shown = story.healed(30)
    assert shown.siblings == {over, later}
    assert shown.concurrent["title"] == ("alive", "dead")
    assert shown.tags == {"x"}
    assert dead not in shown.siblings


def test_remember_over_a_hidden_entry_begins_anew_and_claims_nothing_of_it(story: Story) -> None:
    story.remember("a", 0, ttl=10, title="old", tags=["x"])
    story.pull("b", "a")
    new = story.remember("a", 10, body="new")
    assert story.answer == Answer(written=True, existed=False, created=True)
    assert story.at("a", 10).fields == {"body": "new"}
    assert story.at("a", 10).siblings == {new}
    extended = story.remember("b", 5, ttl=100)
    story.pull("a", "b")
    shown = story.healed(20)
    assert shown.siblings == {new, extended}
    assert shown.fields == {"title": "old", "body": "new"}
    assert shown.tags == {"x"}
    assert shown.expires_at == 105


def test_an_own_write_that_another_replaced_unread_is_never_claimed(story: Story) -> None:
    """A context that is one run per actor must not swallow an own write which nobody folded."""
    story.remember("a", 0, ttl=10, title="old")
    story.pull("b", "a")
    story.pull("c", "a")
    story.remember("b", 10, body="anew")  # b's clock is ahead: it replaces a's write without folding it
    story.pull("a", "b")
    story.update("a", 11, author="me")  # folds b's write only
    story.remember("c", 5, ttl=100)  # carries a's title on
    assert story.healed(20).fields == {"title": "old", "body": "anew", "author": "me"}


def test_history_16_forget_of_a_hidden_entry_removes_what_lives_elsewhere(story: Story) -> None:
    story.remember("a", 0, ttl=1_000, title="t")
    story.pull("b", "a")
    story.forget("b", 1_000)
    assert story.answer == Answer(written=True, existed=False)
    story.pull("a", "b")
    assert story.hidden("a", 500)


def test_history_16_a_write_over_what_lives_elsewhere_is_refused_beyond_a_minute(story: Story) -> None:
    story.remember("a", 0, ttl=100_000)

    def refused(now: int, slowest: int) -> bool:
        return story.oracle.clock_refusal("a", KEY, now=now, slowest=slowest)

    assert not refused(99_999, 0), "live here: an ordinary write"
    assert refused(100_000, 39_999)
    assert not refused(100_000, 40_000)
    story.forget("a", 1)
    assert not refused(100_000, 0), "a tombstone is nothing to destroy"


# --- concurrent writes


def test_of_concurrent_values_the_later_is_shown_and_all_are_reported(story: Story) -> None:
    story.remember("a", 0, title="t", body="same")
    story.pull("b", "a")
    story.update("a", 20, title="mine", body="both")
    story.update("b", 10, title="yours", body="both")
    shown = story.healed(20)
    assert shown.fields == {"title": "mine", "body": "both"}
    assert shown.concurrent == {"title": ("mine", "yours")}


def test_a_tie_of_times_goes_to_the_greater_dot(story: Story) -> None:
    story.remember("b", 5, title="of b")
    story.remember("a", 5, title="of a")
    shown = story.healed(5)
    assert shown.fields == {"title": "of b"}
    assert shown.concurrent == {"title": ("of a", "of b")}, "and both creations agree on the rest"


def test_a_later_edit_wins_whatever_the_wall_clocks_say(story: Story) -> None:
    story.remember("a", 1_000_000, title="wild")
    story.pull("b", "a")
    story.update("b", 5, title="later")
    assert story.healed(10).fields == {"title": "later"}
    assert story.healed(10).concurrent == {}


def test_a_clearing_is_a_value_like_any_other(story: Story) -> None:
    story.remember("a", 0, title="t")
    story.pull("b", "a")
    story.update("a", 2, title="")
    story.update("b", 1, title="u")
    shown = story.healed(2)
    assert shown.fields == {}
    assert shown.concurrent == {"title": ("", "u")}


def test_only_a_write_that_sets_the_field_collapses_and_it_keeps_the_losers(story: Story) -> None:
    story.remember("a", 0, title="t")
    story.pull("b", "a")
    story.pull("c", "a")
    story.update("a", 1, title="one")
    story.update("b", 2, title="two")
    story.update("c", 3, title="three")
    story.pull("a", "b")
    story.pull("a", "c")
    story.update("a", 4, body="b")
    assert story.at("a", 4).concurrent == {"title": ("one", "three", "two")}
    story.update("a", 5, title="two")
    shown = story.at("a", 5)
    assert (shown.fields["title"], shown.concurrent) == ("two", {})
    assert shown.revisions == (("title", "one"), ("title", "three"))
    story.update("a", 6, title="plain")
    assert story.at("a", 6).revisions == (("title", "one"), ("title", "three")), "a plain edit keeps none"


def test_equal_concurrent_values_leave_no_revision(story: Story) -> None:
    story.remember("a", 0, title="same")
    story.remember("b", 0, title="same")
    story.pull("a", "b")
    story.update("a", 1, title="new")
    assert story.at("a", 1).revisions == ()


def test_a_value_collapsed_twice_concurrently_is_one_revision_and_a_forget_takes_it(story: Story) -> None:
    story.remember("a", 0, created_at=0, title="one")
    story.remember("b", 0, created_at=0, title="two")
    story.pull("a", "b")
    story.pull("b", "a")
    story.update("a", 1, title="x")
    story.update("b", 1, title="y")
    shown = story.healed(1)
    assert shown.revisions == (("title", "one"), ("title", "two"))
    assert shown.concurrent == {"title": ("x", "y")}
    story.forget("a", 2)
    shown = story.healed(2)
    assert shown.revisions == (("title", "one"), ("title", "two")), "b's collapse was concurrent with it"
    story.pull("c", "b")
    story.pull("c", "a")
    story.forget("c", 3)
    assert story.gone(3)


def test_a_write_cuts_revisions_to_the_newest_32(story: Story) -> None:
    for round_ in range(40):
        now = 10 * round_
        story.remember("a", now, title=f"{round_:02}a")
        story.remember("b", now + 1, title=f"{round_:02}b")
        story.pull("a", "b")
        story.remember("a", now + 2, title=f"{round_:02}c")
        story.pull("b", "a")
    shown = story.healed(1_000)
    values = [value for name, value in shown.revisions if name == "title"]
    assert values == sorted([f"{round_:02}{by}" for round_ in range(24, 40) for by in "ab"])


def test_a_write_cuts_revisions_to_128_kib_of_values(story: Story) -> None:
    for round_ in range(2):
        story.remember("a", 10 * round_, created_at=0, body="a" * 40_000)
        story.remember("b", 10 * round_ + 1, created_at=0, body="b" * 40_000)
        story.pull("a", "b")
        story.remember("a", 10 * round_ + 2, created_at=0, body="c")
        story.pull("b", "a")
    assert [value[0] for _, value in story.healed(100).revisions] == ["a", "b", "b"]


def test_a_tag_added_again_outlives_the_removal_of_the_old_one(story: Story) -> None:
    story.remember("a", 0, tags=["x", "y"], links={"r": ["p"]})
    story.pull("b", "a")
    story.update("a", 1, untag=["x", "y"], unlink={"r": ["p"]})
    story.update("b", 1, tags=["x"])
    shown = story.healed(1)
    assert (shown.tags, shown.links) == (frozenset({"x"}), frozenset())
    story.pull("a", "b")
    story.update("a", 2, untag=["x"])
    assert story.healed(2).tags == frozenset()
    story.update("a", 3, tags=["x"])
    assert story.healed(3).tags == {"x"}


def test_a_write_concurrent_with_a_forget_survives_with_what_it_says_anew(story: Story) -> None:
    story.remember("a", 0, kind="Decision", title="t", body="b", tags=["x", "y"])
    story.pull("b", "a")
    story.forget("a", 1)
    story.update("b", 1, title="u", tags=["y"])
    shown = story.healed(1)
    assert (shown.kind, shown.created_at) == ("Decision", 0)
    assert (shown.fields, shown.tags) == ({"title": "u"}, frozenset({"y"}))


def test_a_lapse_concurrent_with_a_forget_leaves_an_entry_without_content(story: Story) -> None:
    story.remember("a", 0, title="t", tags=["x"])
    story.pull("b", "a")
    story.forget("a", 1)
    story.lapse("b", 1, 60)
    shown = story.healed(60)
    assert (shown.kind, shown.created_at, shown.fields, shown.tags) == (None, None, {}, frozenset())
    assert story.gone(61)


def test_a_remember_after_a_forget_carries_what_the_forget_had_seen(story: Story) -> None:
    story.remember("a", 0, title="t", body="b")
    story.pull("b", "a")
    story.pull("c", "a")
    story.forget("a", 1)
    story.remember("a", 2, title="new")
    story.update("b", 1, author="me")
    shown = story.healed(2)
    assert shown.fields == {"title": "new", "author": "me"}, "the body was forgotten, and stays so"


def test_creations_that_disagree_are_settled_by_naming_the_shown_kind(story: Story) -> None:
    story.remember("a", 1, kind="Note", created_at=0)
    story.remember("b", 2, kind="Decision", created_at=5)
    story.pull("a", "b")
    disputed = {"kind": ("Decision", "Note"), "created_at": ("0", "5")}
    assert (story.at("a", 2).kind, story.at("a", 2).concurrent) == ("Decision", disputed)
    story.update("a", 3, title="t")
    shown = story.at("a", 3)
    assert (shown.created_at, shown.concurrent) == (5, {"kind": ("Decision", "Note")})
    assert shown.revisions == (("created_at", "0"),)
    story.remember("a", 4, kind="Note")
    assert story.answer is not None
    assert story.answer.kind_ignored
    assert story.at("a", 4).concurrent == {"kind": ("Decision", "Note")}
    story.remember("a", 5, kind="Decision")
    assert not story.answer.kind_ignored
    shown = story.at("a", 5)
    assert not shown.concurrent
    assert shown.revisions == (("created_at", "0"), ("kind", "Note"))


# --- what has arrived


def test_a_replica_shows_what_it_has_seen_and_no_more(story: Story) -> None:
    first = story.remember("a", 0, title="t")
    second = story.update("a", 1, title="u")
    assert story.hidden("b", 1)
    story.deliver("b", first)
    assert story.at("b", 1).fields == {"title": "t"}
    story.deliver("b", second)
    assert story.at("b", 1).fields == {"title": "u"}
    story.deliver("b", first)
    assert story.at("b", 1).siblings == {second}, "a late duplicate changes nothing"


def test_a_write_brings_its_whole_past_on_its_key(story: Story) -> None:
    first = story.remember("a", 0, title="t")
    forgotten = story.forget("a", 1)
    story.deliver("b", forgotten)
    story.deliver("b", first)
    assert story.hidden("b", 1)


def test_a_supplier_is_seen_as_of_its_snapshot(story: Story) -> None:
    story.remember("a", 0, title="t")
    seen = story.oracle.seen("a")
    story.update("a", 1, title="u")
    story.oracle.caught_up("b", seen)
    assert story.at("b", 1).fields == {"title": "t"}


def test_a_dot_of_another_key_is_no_sibling(story: Story) -> None:
    dot = story.remember("a", 0)
    with pytest.raises(Contradiction, match="names no write"):
        story.oracle.delivered("b", "another", [dot])


# --- faults


def test_what_was_lost_before_anyone_had_seen_it_is_not_expected(story: Story) -> None:
    story.remember("a", 0, title="kept")
    story.pull("b", "a")
    story.update("a", 1, title="lost")
    story.oracle.wiped("a")
    assert story.hidden("a", 1)
    assert story.healed(1).fields == {"title": "kept"}
    story.incarnation["a"] = b"2"
    story.remember("a", 2, title="anew")
    assert story.healed(2).concurrent == {"title": ("anew", "kept"), "created_at": ("0", "2")}


def test_what_another_has_seen_outlives_its_writer(story: Story) -> None:
    story.remember("a", 0, title="t")
    story.pull("b", "a")
    story.oracle.wiped("a")
    assert story.healed(0).fields == {"title": "t"}


def test_a_removal_lost_with_its_writer_is_undone(story: Story) -> None:
    story.remember("a", 0, title="t")
    story.pull("b", "a")
    story.forget("a", 1)
    assert story.gone(1)
    story.oracle.wiped("a")
    assert story.healed(1).fields == {"title": "t"}


def test_a_replica_rolled_back_has_seen_what_it_had_seen_then(story: Story) -> None:
    story.remember("a", 0, title="t")
    past = story.oracle.snapshot("a")
    story.forget("a", 1)
    story.pull("b", "a")
    story.oracle.rolled_back("a", past)
    assert story.at("a", 1).fields == {"title": "t"}
    assert story.gone(1), "b has seen the forget"


def test_a_removal_on_behalf_covers_exactly_what_it_names(story: Story) -> None:
    seen_there = story.remember("a", 0, title="t")
    story.pull("b", "a")
    story.forget("a", 1)
    news = story.remember("c", 1, title="news")
    story.pull("b", "c")
    story.oracle.removed_on_behalf("b", KEY, [("b", b"1", 9)], [seen_there], 2)
    assert story.at("b", 2).siblings == {news}


def test_nobody_removes_on_behalf_what_nobody_had_removed(story: Story) -> None:
    dot = story.remember("a", 0, ttl=10)
    with pytest.raises(Contradiction, match="nobody had removed"):
        story.oracle.removed_on_behalf("a", KEY, [("a", b"1", 9)], [dot], 9)
    with pytest.raises(Contradiction, match="has not seen"):
        story.oracle.removed_on_behalf("b", KEY, [("b", b"1", 9)], [dot], 10)
    anew = story.remember("a", 10)
    with pytest.raises(Contradiction, match="nobody had removed"):
        story.oracle.removed_on_behalf("a", KEY, [("a", b"1", 9)], [anew], 20)


def test_what_expired_by_the_latest_clock_may_be_removed_on_behalf(story: Story) -> None:
    dot = story.remember("a", 0, ttl=10)
    story.oracle.removed_on_behalf("a", KEY, [("a", b"1", 9)], [dot], 9, latest=10)
    assert story.hidden("a", 9)


def test_history_12_a_removal_with_a_dot_leaves_a_concurrent_durable_note(story: Story) -> None:
    story.remember("a", 5, title="durable")
    short = story.remember("b", 0, ttl=10)
    story.deliver("a", short)
    assert story.hidden("a", 10), "it was written while the other lived"
    story.oracle.removed_on_behalf("b", KEY, [("b", b"1", 9)], [short], 20)
    assert story.hidden("b", 20)
    story.pull("b", "a")
    assert story.at("b", 20).fields == {"title": "durable"}
    assert story.healed(20) == story.at("b", 20)


def test_a_write_is_judged_by_what_the_register_held_where_that_is_told(story: Story) -> None:
    short = story.remember("a", 0, ttl=10)
    lasting = story.remember("b", 5, title="lasting")
    story.deliver("a", lasting)
    story.oracle.remembered("a", KEY, [("a", b"1", 8)], now=20, held=[lasting])
    assert story.at("a", 20).fields == {"title": "lasting"}
    assert story.at("a", 20).siblings == {("a", b"1", 8)}
    with pytest.raises(Contradiction, match="has not seen"):
        story.oracle.remembered("c", KEY, [("c", b"1", 1)], now=20, held=[short])


# --- the allowed differences


def judge(story: Story, now: int, got: Expected | None, *, lapsed: bool = False, grace_ms: int = 0) -> bool:
    expected = story.oracle.expected(KEY, now)
    evidence = story.oracle.evidence(KEY, now, got)
    return excused(expected, got, evidence, lapsed=lapsed, latest=now, grace_ms=grace_ms)


def test_nothing_is_excused_in_a_fleet_without_loss_or_lapse(story: Story) -> None:
    story.remember("a", 0, ttl=10)
    story.remember("b", 0, ttl=100)
    shown = story.healed(50)
    assert judge(story, 50, shown)
    assert not judge(story, 50, None)
    assert not judge(story, 50, replace(shown, tags=frozenset({"x"})))


def test_a_value_past_its_own_expiry_may_be_gone_and_a_living_one_may_not(story: Story) -> None:
    story.remember("a", 0, ttl=10, title="short")
    alone = Story()
    alone.remember("b", 0, ttl=100, title="long")
    story.remember("b", 0, ttl=100, title="long")
    assert judge(story, 50, alone.healed(50), lapsed=True)
    assert not judge(story, 50, alone.healed(50), lapsed=True, grace_ms=41)
    assert not judge(story, 50, None, lapsed=True)
    assert not judge(story, 50, replace(alone.healed(50), tags=frozenset({"x"})), lapsed=True)


def test_a_durable_value_may_stay_where_what_expired_it_is_gone(story: Story) -> None:
    lasting = story.remember("a", 0, title="lasting")
    alone = story.at("a", 0)
    story.remember("b", 0, ttl=10, title="short")
    assert story.gone(10)
    assert judge(story, 10, alone, lapsed=True)
    assert not judge(story, 10, alone)
    assert not judge(story, 10, replace(alone, siblings=frozenset({lasting, ("b", b"1", 1)})), lapsed=True)


def test_what_only_lost_data_had_removed_may_return_where_every_member_lost_data(story: Story) -> None:
    story.remember("a", 0, title="t")
    old = story.at("a", 0)
    kept = story.oracle.snapshot("a")
    story.forget("a", 1)
    story.pull("b", "a")
    for replica in "acd":
        story.oracle.rolled_back(replica, kept)
    assert not judge(story, 1, old), "b keeps the forget"
    story.oracle.rolled_back("b", story.oracle.snapshot("b"))
    assert judge(story, 1, old)


def test_a_value_that_a_lost_write_had_superseded_may_be_gone(story: Story) -> None:
    story.remember("a", 0, title="t")
    story.pull("b", "a")
    story.pull("c", "b")
    story.forget("a", 1)
    story.oracle.wiped("a")
    assert not story.gone(1)
    assert judge(story, 1, None)


def test_a_durable_value_may_go_with_its_expired_entry_only_where_data_was_lost(story: Story) -> None:
    story.remember("a", 0, ttl=10, title="short")
    story.remember("b", 5, title="lasting")
    story.remember("c", 5, ttl=100, title="long")
    alone = story.at("c", 50)
    assert len(story.healed(50).siblings) == 3
    assert not judge(story, 50, alone, lapsed=True)
    story.oracle.wiped("d")
    assert judge(story, 50, alone, lapsed=True)


def test_a_removal_that_a_value_had_superseded_takes_nothing_beside_it(story: Story) -> None:
    story.remember("a", 0, title="t", body="b")
    story.pull("b", "a")
    story.forget("a", 1)
    anew = story.remember("a", 2, author="me", held=[])  # the tombstone had been purged
    brought = story.update("b", 1, title="u")
    story.pull("a", "b")
    shown = story.at("a", 2)
    assert shown.siblings == {anew, brought}
    assert shown.fields == {"author": "me", "title": "u", "body": "b"}
    assert not judge(story, 2, replace(shown, fields={"author": "me", "title": "u"}), lapsed=True)


def test_what_a_purged_removal_took_may_return_beside_what_survived_it(story: Story) -> None:
    story.remember("a", 0, title="t", body="b", tags=["x"])
    story.pull("b", "a")
    story.forget("a", 1)
    story.update("b", 1, title="u")
    brought = story.at("b", 1)
    assert brought.fields == {"title": "u", "body": "b"}
    assert story.healed(1).fields == {"title": "u"}
    assert judge(story, 1, brought, lapsed=True)
    assert not judge(story, 1, brought)
    assert not judge(story, 1, replace(brought, fields={"title": "u", "body": "c"}), lapsed=True)
    assert not judge(story, 1, replace(brought, fields={"body": "b"}), lapsed=True)


def test_a_tombstone_is_never_read_as_a_value(story: Story) -> None:
    story.remember("a", 0)
    shown = story.at("a", 0)
    tombstone = story.forget("a", 1)
    with pytest.raises(Contradiction, match="tombstone"):
        story.oracle.evidence(KEY, 1, replace(shown, siblings=frozenset({tombstone})))


def test_a_kind_that_a_forget_took_along_is_set_by_naming_any(story: Story) -> None:
    story.remember("a", 1, kind="Note", created_at=0)
    story.remember("b", 2, kind="Decision", created_at=0)
    story.pull("a", "b")
    story.pull("b", "a")
    story.update("a", 3, title="t")
    story.forget("b", 4)
    story.pull("a", "b")
    assert story.at("a", 5).kind is None, "the update carried the dispute along, and the forget removed it"
    story.remember("a", 6, kind="Memory")
    assert story.answer is not None
    assert not story.answer.kind_ignored
    assert story.at("a", 6).kind == "Memory"


def test_a_dot_that_was_lost_unseen_may_be_minted_again_and_names_the_new_write(story: Story) -> None:
    before = story.oracle.snapshot("a")
    dot = story.remember("a", 1, title="lost")
    story.oracle.rolled_back("a", before)
    story.oracle.remembered("a", KEY, [dot], now=2, fields={"title": "kept"})
    assert story.at("a", 3).fields == {"title": "kept"}
    assert story.healed(3).siblings == {dot}
