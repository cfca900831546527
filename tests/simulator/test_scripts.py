"""Short histories that a fleet has to survive: each was found by a random run, and shrunk."""

from replica.simulator.run import replay
from replica.simulator.script import Script


def check(text: str) -> None:
    report = replay(Script.parse(text))
    assert report.failure is None, report.failure.where


def test_an_empty_replica_that_greeted_two_suppliers_says_hello_again_to_the_second() -> None:
    check(
        """
        fleet replicas=3 keys=1 links=["ab","ac","bc"]
        remember at=a key=0 title=x
        remember at=b key=0 title=y
        pull at=c source=a messages=1
        pull at=c source=b messages=1
        pull at=c source=a
        pull at=c source=b
        """
    )


def test_a_row_that_was_damaged_comes_back_with_all_that_its_siblings_replace() -> None:
    check(
        """
        fleet replicas=5 keys=3 links=["ab","ac","ad","ae","bc","bd","be","cd","ce","de"]
        remember at=b key=0
        pull at=d source=b
        remember at=e key=0
        remember at=c key=2
        update at=e key=0
        damage at=d key=0
        """
    )


def test_a_batch_does_not_go_beyond_a_damaged_row_that_a_crash_would_hide() -> None:
    check(
        """
        fleet replicas=3 keys=1 links=["ab","bc","ac"]
        pull at=b source=a
        pass ms=20000
        remember at=a key=0
        pull at=c source=a
        damage at=a key=0
        pull at=b source=a
        crash at=a
        pull at=b source=a
        remember at=b key=0
        """
    )


def test_a_replica_rolled_back_to_before_it_acknowledged_an_empty_log_is_served() -> None:
    check(
        """
        fleet replicas=4 keys=1 links=["ab","ac","ad","bc"] forgiving=true
        save at=d
        pull at=d source=a
        rollback at=d
        """
    )


def test_a_filling_whose_supplier_is_gone_is_given_up_though_the_clock_is_set_back() -> None:
    check(
        """
        fleet replicas=4 keys=7 links=["ab","ac","ad","bc","bd","cd"] batch_bytes=1
        remember at=d key=4
        remember at=d key=6
        pull at=c source=d messages=3
        turn at=c skew=-600000
        crash at=d
        """
    )


def test_a_dot_whose_write_was_lost_before_anyone_had_seen_it_may_name_another() -> None:
    check(
        """
        fleet replicas=5 keys=3 links=["ab","ac","ad","ae"] forgiving=true
        pull at=e source=a
        save at=e
        remember at=e key=0
        rollback at=e
        remember at=e key=2
        """
    )


def test_a_reconcile_with_a_peer_that_is_gone_is_given_up_by_a_purge_when_nobody_waits_for_it() -> None:
    check(
        """
        fleet replicas=4 keys=1 links=["ab","bc","cd","ad"] default_ttl=40000 forgiving=true
        remember at=b key=0
        pull at=a source=b
        pull at=a source=d messages=2
        pass ms=150000
        wipe at=d
        purge at=c
        """
    )


def test_a_replica_that_waits_for_its_turn_looks_again_though_its_clock_was_set_back() -> None:
    check(
        """
        fleet replicas=4 keys=1 links=["ab","ac","ad","bc","bd","cd"]
        pull at=c source=a
        turn at=c skew=-600000
        remember at=c key=0
        pull at=c source=d messages=5
        cut at=c source=d
        remember at=a key=0
        """
    )
