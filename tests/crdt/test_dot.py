"""Dots: named writes in a total order."""

from hypothesis import given

from crdt.dot import Actor, Dot, Incarnation
from tests.crdt.values import dots


@given(dots, dots)
def test_dots_are_ordered_by_cluster_bytes_then_incarnation_then_counter(a: Dot, b: Dot) -> None:
    def bytewise(dot: Dot) -> tuple[bytes, bytes, int]:
        return (dot.actor.cluster.encode(), dot.actor.incarnation, dot.counter)

    assert (a < b) == (bytewise(a) < bytewise(b))
    assert (a == b) == (bytewise(a) == bytewise(b))


def test_clusters_are_ordered_by_their_bytes_also_beyond_the_basic_plane() -> None:
    nothing = Incarnation(b"")
    assert Actor("\uffee", nothing) < Actor("\U0001f600", nothing)
    assert "\uffee".encode() < "\U0001f600".encode()
