"""Values to state laws about: actors, dots, clocks, records and registers of any shape."""

from hypothesis import strategies as st

from crdt.clock import Clock
from crdt.dot import Actor, Dot, Incarnation, Millis
from crdt.record import DotStore, Link, Record, RevisionKey, Value
from crdt.register import Register, Sibling, make_register

NOW = Millis(1_700_000_000_000)

EU, US, AP = (
    Actor(cluster, Incarnation(bytes([number]) * 16))
    for number, cluster in enumerate(("eu-west", "us-east", "ap-süd"), 1)
)
EU_AGAIN = Actor("eu-west", Incarnation(b"\xff" * 16))
ACTORS = (EU, US, AP, EU_AGAIN)

actors = st.sampled_from(ACTORS)
dots = st.builds(Dot, actors, st.integers(1, 20))
dot_sets = st.frozensets(dots, max_size=40)
clocks = dot_sets.map(Clock.of)

times = st.integers(-(2**63), 2**63 - 1).map(Millis)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.none() | texts | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=12)


def stores(values: st.SearchStrategy[str | int | bytes | None]) -> st.SearchStrategy[DotStore]:
    """Dot stores with any of these values."""
    return st.dictionaries(dots, st.builds(Value, values, times), min_size=1, max_size=3)


elements = stores(st.none())

records = st.builds(
    Record,
    context=clocks,
    fields=st.dictionaries(texts, stores(scalars), max_size=4),
    tags=st.dictionaries(texts, elements, max_size=4),
    links=st.dictionaries(st.builds(Link, texts, texts), elements, max_size=4),
    revisions=st.dictionaries(st.builds(RevisionKey, texts, dots), stores(scalars), max_size=3),
)
"""Records of any shape, whether or not any writer could have made them."""


def _sibling(dot: Dot, context: dict[Actor, int], payload: bytes, expires_at: int | None, at: int) -> Sibling:
    tombstone = expires_at == 0
    return Sibling(
        dot,
        context,
        payload,
        tombstone,
        None if tombstone or expires_at is None else Millis(expires_at),
        Millis(at),
    )


siblings = st.builds(
    _sibling,
    dots,
    st.dictionaries(actors, st.integers(1, 20), max_size=3),
    st.binary(max_size=12),
    st.none() | st.integers(0, 2**64 - 1),
    times,
)
registers: st.SearchStrategy[Register] = st.lists(
    siblings, max_size=5, unique_by=lambda sibling: sibling.dot
).map(make_register)
"""Registers of any shape, whether or not any writer could have made them."""


def value(
    dot: Dot,
    *,
    seen: dict[Actor, int] | None = None,
    payload: bytes = b"",
    expires_at: int | None = None,
    written_at: int = NOW,
) -> Sibling:
    """A value sibling."""
    expiry = None if expires_at is None else Millis(expires_at)
    return Sibling(dot, seen or {}, payload, False, expiry, Millis(written_at))


def tombstone(
    dot: Dot, *, seen: dict[Actor, int] | None = None, payload: bytes = b"", written_at: int = NOW
) -> Sibling:
    """A tombstone sibling."""
    return Sibling(dot, seen or {}, payload, True, None, Millis(written_at))
