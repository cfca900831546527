"""Limits bind what a request adds, to the byte, and nothing else."""

from __future__ import annotations

from dataclasses import fields

import pytest

from crdt.key import EntryKey
from replica.core.commands import Forget, Links, Remember, Update
from replica.core.errors import Code, Refused
from replica.core.limits import DEFAULT_LIMITS, Limits
from tests.core.one_replica import KEY, Replica, links, sibling

TEXTS = [("title", 1024), ("author", 1024), ("provenance", 1024), ("body", 64 * 1024)]


@pytest.fixture
def replica() -> Replica:
    return Replica()


@pytest.mark.parametrize(("field", "most"), TEXTS)
@pytest.mark.parametrize("unit", ["a", "é", "語", "🧠"])
def test_a_text_may_have_so_many_bytes_and_not_one_more(
    replica: Replica, field: str, most: int, unit: str
) -> None:
    width = len(unit.encode())
    fits = unit * (most // width) + "a" * (most % width)
    for command in (Remember(key=KEY, **{field: fits}), Update(key=KEY, **{field: fits[::-1]})):
        replica.do(command)
        assert getattr(replica.recall(), field) == getattr(command, field)
    for large in (Remember(key=KEY, **{field: fits + "a"}), Update(key=KEY, **{field: "a" + fits})):
        replica.refuses(Code.INVALID_ARGUMENT, field, lambda command=large: replica.do(command))


def test_tags_are_limited_in_number_and_bytes(replica: Replica) -> None:
    many = tuple(f"{at:03}" for at in range(65))
    replica.refuses(Code.INVALID_ARGUMENT, "tags", lambda: replica.remember(Remember(key=KEY, tags=many)))
    assert replica.remember(Remember(key=KEY, tags=many[:64])).tags_added == 64
    replica.refuses(
        Code.INVALID_ARGUMENT,
        "tags[1]",
        lambda: replica.remember(Remember(key=KEY, tags=("ok", "é" * 64 + "a"))),
    )
    replica.refuses(
        Code.INVALID_ARGUMENT,
        "add_tags",
        lambda: replica.update(Update(key=KEY, add_tags=tuple(f"new{at}" for at in range(65)))),
    )
    assert replica.update(Update(key=KEY, add_tags=("é" * 64,))).tags_added == 1
    assert len(replica.recall().tags) == 65


def test_links_are_limited_in_number_and_bytes(replica: Replica) -> None:
    many = tuple(f"{at:03}" for at in range(257))
    spread = (Links("a", many[:200]), Links("b", many[:57]))
    for refused in (links(a=many), spread):
        replica.refuses(
            Code.INVALID_ARGUMENT,
            "add_links",
            lambda targets=refused: replica.remember(Remember(key=KEY, add_links=targets)),
        )
    assert replica.remember(Remember(key=KEY, add_links=links(a=many[:256]))).links_added == 256
    fits, large = "語" * 21 + "a", "語" * 21 + "aa"
    assert (len(fits.encode()), len(large.encode())) == (64, 65)
    replica.update(Update(key=KEY, add_links=(Links(fits, ("é" * 256,)),)))
    replica.refuses(
        Code.INVALID_ARGUMENT,
        "add_links[1].relation",
        lambda: replica.update(Update(key=KEY, add_links=(Links("a", ("x",)), Links(large, ("x",))))),
    )
    replica.refuses(
        Code.INVALID_ARGUMENT,
        "add_links[0].targets[1]",
        lambda: replica.update(Update(key=KEY, add_links=links(a=("x", "é" * 256 + "a")))),
    )


def test_what_is_given_twice_counts_once(replica: Replica) -> None:
    assert replica.remember(Remember(key=KEY, tags=("a", "b") * 100)).tags_added == 2
    repeated = (Links("a", ("x", "x") * 200), Links("a", ("x",)))
    assert replica.remember(Remember(key=KEY, add_links=repeated)).links_added == 1


def test_a_thousand_adds_keep_every_tag(replica: Replica) -> None:
    for at in range(1000):
        assert replica.remember(Remember(key=KEY, tags=(f"tag-{at}",))).tags_added == 1
    assert replica.recall().tags == tuple(sorted(f"tag-{at}" for at in range(1000)))


def test_a_fold_may_exceed_the_limits_and_what_adds_nothing_is_never_refused() -> None:
    """An entry whose every part is larger than this replica allows: its peers are configured otherwise."""
    small = Replica(
        limits=Limits(
            title_bytes=1,
            body_bytes=1,
            tags=1,
            tag_bytes=1,
            link_targets=1,
            relation_bytes=1,
            target_bytes=1,
        )
    )
    tags = tuple(f"tag{at}" for at in range(100))
    small.arrive(sibling("eu", fields={"title": "long", "body": "longer"}, tags=tags))
    small.arrive(sibling("us", fields={"title": "long"}, tags=("other",)))
    assert len(small.recall().tags) == 101
    small.remember(Remember(key=KEY))
    assert small.remember(Remember(key=KEY, title="long", body="longer", tags=tags)).tags_added == 0
    assert small.update(Update(key=KEY, remove_tags=(*tags[:50], "x" * 1000))).tags_removed == 50
    held = links(relation=("target", "other"))
    Replica(small.storage).update(Update(key=KEY, add_links=held))
    assert small.update(Update(key=KEY, add_links=held)).links_added == 0
    assert small.update(Update(key=KEY, remove_links=links(relation="target"))).links_removed == 1
    small.refuses(Code.INVALID_ARGUMENT, "title", lambda: small.update(Update(key=KEY, title="grow")))
    small.refuses(
        Code.INVALID_ARGUMENT, "add_tags", lambda: small.update(Update(key=KEY, add_tags=("a", "b")))
    )
    small.update(Update(key=KEY, title="", body="b", add_tags=("a",)))
    assert small.forget(Forget(key=KEY, lapse=True)).existed
    assert small.forget(Forget(key=KEY)).existed


def test_an_entry_grows_no_larger_than_fits_between_replicas() -> None:
    small = Replica(limits=Limits(entry_bytes=2000))
    small.remember(Remember(key=KEY, title="t", body="b" * 1500))
    Replica(small.storage).remember(Remember(key=KEY, tags=tuple(f"tag{at}" for at in range(60))))
    size = len(small.recall().tags)
    for command in (Update(key=KEY, add_tags=("new",)), Update(key=KEY, title="longer")):
        small.refuses(Code.RESOURCE_EXHAUSTED, "key", lambda command=command: small.update(command))
    small.update(Update(key=KEY, add_tags=("tag1",), title="t", author=""))
    small.remember(Remember(key=KEY))
    assert len(small.recall().tags) == size
    small.update(Update(key=KEY, body="", remove_tags=tuple(f"tag{at}" for at in range(1, 60))))
    assert small.update(Update(key=KEY, add_tags=("new",))).tags_added == 1


def test_limits_are_configured_down_only() -> None:
    for limit in fields(Limits):
        largest = getattr(DEFAULT_LIMITS, limit.name)
        assert getattr(Limits(**{limit.name: 1}), limit.name) == 1
        assert getattr(Limits(**{limit.name: largest}), limit.name) == largest
        for bad in (largest + 1, 0, -1):
            with pytest.raises(Refused) as caught:
                Limits(**{limit.name: bad})
            assert caught.value.field == limit.name


def test_the_limits_are_those_of_the_design() -> None:
    stated = Limits(
        title_bytes=1024,
        author_bytes=1024,
        provenance_bytes=1024,
        body_bytes=65536,
        tags=64,
        tag_bytes=128,
        link_targets=256,
        relation_bytes=64,
        target_bytes=512,
        entry_bytes=8388608,
        page_entries=500,
        page_bytes=2097152,
    )
    assert stated == DEFAULT_LIMITS


def test_key_components_may_have_128_bytes(replica: Replica) -> None:
    key = EntryKey.make("é" * 64, "語" * 42 + "aa", "🧠" * 32)
    replica.remember(Remember(key=key, body="x"))
    assert replica.recall(key).key == key
