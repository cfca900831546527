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
