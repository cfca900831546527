"""A clock that is set wrong by hours on one replica: it misleads its own readers, and destroys nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from replica.client import FailedPreconditionError, Status
from tests.faults.clocks import needs_faketime
from tests.faults.fleet import Fleet, until

HOURS = 5 * 3600
EAGER = {"compaction-interval": "500ms", "compaction-grace": "100ms"}
"""So that what may be purged is purged at once."""

BRIEF = "repo/r/mem/t/brief"
DURABLE = "repo/r/mem/t/durable"


@needs_faketime
def test_a_clock_hours_ahead_hides_entries_on_its_own_replica_and_purges_nothing(tmp_path: Path) -> None:
    with Fleet(tmp_path, ("eu", "us"), EAGER, stepped=True) as fleet:
        fleet.start()
        eu, us = fleet["eu"], fleet["us"]
        eu.client.remember("r", "t", id="brief", title="an hour", ttl_seconds=3600)
        us.client.remember("r", "t", id="durable", title="for ever")
        fleet.until_agreed()
        assert us.clock is not None
        us.clock.step(HOURS)
        until("the entry is hidden", lambda: not us.client.recall(BRIEF).exists)
        fleet.until_peer("eu", "us", "ahead", lambda peer: abs((peer.skew_ms or 0) - HOURS * 1000) < 60_000)
        until("its log says so", lambda: bool(fleet.logged("us", "the clock of this machine was set")))
        for member in fleet.running:
            done = member.client.compact()
            assert (done.purged_expired, done.purged_tombstones) == (0, 0)
        assert eu.client.recall(BRIEF).title == "an hour"
        assert us.client.recall(DURABLE).title == eu.client.recall(DURABLE).title == "for ever"
        # It may not destroy what lives elsewhere, and it serves on.
        with pytest.raises(FailedPreconditionError, match="clock"):
            us.client.remember("r", "t", id="brief", title="over it")
        us.client.remember("r", "t", id="durable", tags=["from the future"])
        fleet.until_peer("eu", "us", "at the end", lambda peer: peer.lag == 0)
        us.clock.step(0)
        until("the entry is back", lambda: us.client.recall(BRIEF).exists)
        fleet.until_agreed()
        for member in fleet.running:
            assert member.client.recall(BRIEF).title == "an hour"
            assert member.client.recall(DURABLE).tags == ("from the future",)
        assert not fleet.unexplained()


@needs_faketime
def test_a_clock_hours_behind_keeps_what_it_writes_and_purges_go_on_when_it_is_right_again(
    tmp_path: Path,
) -> None:
    with Fleet(tmp_path, ("eu", "us"), EAGER, stepped=True) as fleet:
        fleet.start()
        eu, us = fleet["eu"], fleet["us"]
        eu.client.remember("r", "t", id="durable", title="before")
        fleet.until_agreed()
        assert us.clock is not None
        us.clock.step(-HOURS)
        fleet.until_peer("eu", "us", "behind", lambda peer: abs((peer.skew_ms or 0) + HOURS * 1000) < 60_000)
        # It had seen the title, so its own wins whatever its clock says.
        us.client.update(DURABLE, title="after")
        eu.client.remember("r", "t", id="brief", ttl_seconds=1)
        until("the edit is everywhere", lambda: eu.client.recall(DURABLE).title == "after")
        until("it has lapsed", lambda: not eu.client.recall(BRIEF).exists)
        # By the slowest clock it lives on for hours.
        assert eu.client.compact().purged_expired == 0
        assert us.client.recall(BRIEF).exists
        us.clock.step(0)

        def purged(status: Status) -> bool:
            return (status.counts.registers, status.counts.expired) == (1, 0)

        until("it is purged", lambda: all(purged(each.client.get_status()) for each in fleet.running))
        fleet.until_agreed()
        assert us.client.recall(DURABLE).title == "after"
        assert not fleet.unexplained()
