"""The join of registers, step by step; its laws over reachable states are in test_fleet."""

from hypothesis import given
from hypothesis import strategies as st

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.dot import Actor, Dot
from crdt.register import Register, Sibling, context_over, covers, join, make_register
from tests.crdt.values import AP, EU, US, clocks, registers, siblings, tombstone, value

A, B, C = Dot(EU, 1), Dot(US, 1), Dot(AP, 1)


def clock(*dots: Dot) -> Clock:
    return Clock.of(dots)


def dots_of(register: Register) -> list[Dot]:
    return [sibling.dot for sibling in register]


# --- the values


@given(st.lists(siblings, max_size=5, unique_by=lambda sibling: sibling.dot))
def test_a_register_is_in_the_order_of_its_dots(unordered: list[Sibling]) -> None:
    register = make_register(unordered)
    assert dots_of(register) == sorted(sibling.dot for sibling in unordered)
    assert register == make_register(reversed(unordered))


@given(registers)
def test_a_context_covers_the_dots_and_all_they_had_replaced_and_no_more(register: Register) -> None:
    context = context_over(register)
    for sibling in register:
        assert covers(context, sibling.dot)
        for actor, top in sibling.context.items():
            assert covers(context, Dot(actor, top))
    named = {sibling.dot for sibling in register}
    named |= {Dot(actor, top) for sibling in register for actor, top in sibling.context.items()}
    assert {Dot(actor, top) for actor, top in context.items()} <= named


def test_a_context_covers_every_dot_of_an_actor_up_to_its_counter() -> None:
    assert covers({EU: 5}, Dot(EU, 1))
    assert covers({EU: 5}, Dot(EU, 5))
    assert not covers({EU: 5}, Dot(EU, 6))
    assert not covers({EU: 5}, Dot(US, 1))


# --- step 1: what is kept


def test_step_1_keeps_what_the_supplier_also_has() -> None:
    a = value(A)
    assert join((a,), (a,), clock(A), clock(A)).register == (a,)


def test_step_1_keeps_what_the_supplier_has_not_seen() -> None:
    a, b = value(A), value(B)
    assert join((a,), (), clock(A), EMPTY_CLOCK).register == (a,)
    assert join((a,), (b,), clock(A), clock(B)).register == (a, b)


def test_step_1_drops_what_the_supplier_has_seen_and_lacks() -> None:
    a = value(A)
    assert join((a,), (), clock(A), clock(A)).register == ()


# --- step 2: what is taken


def test_step_2_takes_news() -> None:
    b = value(B)
    assert join((), (b,), EMPTY_CLOCK, clock(B)).register == (b,)


def test_step_2_does_not_take_what_was_seen_and_is_gone() -> None:
    assert join((), (value(B),), clock(B), clock(B)).register == ()


def test_step_2_takes_what_is_seen_and_local_too() -> None:
    b = value(B)
    assert join((b,), (b,), clock(B), clock(B)).register == (b,)


# --- step 3: what is superseded


def test_step_3_drops_what_a_remaining_context_covers_on_either_side() -> None:
    a, b = value(A), value(B, seen={EU: 1})
    for local, remote in (((a,), (b,)), ((b,), (a,))):
        assert join(local, remote, clock(*dots_of(local)), clock(*dots_of(remote))).register == (b,)


def test_step_3_asks_only_what_remains() -> None:
    """The supplier's b had replaced a, but b is known here to be gone: nothing remains that covers a."""
    a, b = value(A), value(B, seen={EU: 1})
    assert join((a,), (b,), clock(A, B), clock(B)).register == (a,)


def test_step_3_drops_chains_whole() -> None:
    a, b, c = value(A), value(B, seen={EU: 1}), value(C, seen={EU: 1, US: 1})
    assert join((a,), (c,), clock(A), clock(C)).register == (c,)
    assert join((b,), (a,), clock(B), clock(A)).register == (b,)
    assert join((a, c), (b,), clock(A, C), clock(B)).register == (c,)


def test_step_3_keeps_siblings_of_one_write() -> None:
    """They share a context, and none covers another."""
    pair = (value(Dot(EU, 5), seen={EU: 2, US: 1}), value(Dot(EU, 6), seen={EU: 2, US: 1}))
    assert join((), pair, EMPTY_CLOCK, clock(*dots_of(pair))).register == pair
    assert join(pair, (value(B),), clock(*dots_of(pair)), clock(B)).register == pair


def test_no_sibling_is_dropped_on_its_own_word() -> None:
    """A context that covers its own dot is the mistake of some writer; what was written must not vanish."""
    odd, other = value(A, seen={EU: 1}), value(B)
    assert join((odd,), (other,), clock(A), clock(B)).register == (odd, other)
    assert join((odd,), (), clock(A), EMPTY_CLOCK).register == (odd,)


# --- step 4: what is seen


@given(registers, registers, clocks, clocks)
def test_step_4_the_local_clock_sees_the_remote_dots_and_the_tops_of_their_contexts(
    local: Register, remote: Register, local_clock: Clock, remote_clock: Clock
) -> None:
    seen = set(join(local, remote, local_clock, remote_clock).seen)
    tops = {Dot(actor, top) for sibling in remote for actor, top in sibling.context.items()}
    assert seen == {sibling.dot for sibling in remote} | tops


def test_step_4_sees_also_what_step_2_did_not_take() -> None:
    b = value(B, seen={AP: 3})
    assert set(join((), (b,), clock(B), clock(B)).seen) == {B, Dot(AP, 3)}


def test_step_4_does_not_claim_what_lies_below_a_top() -> None:
    assert Dot(AP, 2) not in join((), (value(B, seen={AP: 3}),), EMPTY_CLOCK, clock(B)).seen


# --- step 6: what was purged at the supplier


def test_step_6_a_sibling_dropped_on_the_word_of_the_clock_alone_had_been_purged() -> None:
    assert join((value(A),), (), clock(A), clock(A)).purged_there
    assert join((tombstone(A),), (value(B),), clock(A), clock(A, B)).purged_there


def test_step_6_a_superseded_sibling_had_not() -> None:
    a, b = value(A), value(B, seen={EU: 1})
    assert not join((a,), (b,), clock(A), clock(A, B)).purged_there


def test_step_6_a_sibling_that_is_kept_had_not() -> None:
    assert not join((value(A),), (), clock(A), EMPTY_CLOCK).purged_there
    assert not join((value(A),), (value(A),), clock(A), clock(A)).purged_there
    assert not join((), (value(A),), EMPTY_CLOCK, clock(A)).purged_there


def test_step_6_asks_what_remains_not_what_was_sent() -> None:
    """The supplier sends what had replaced a, but that is known here to be gone: a was purged with it."""
    a, b = value(A), value(B, seen={EU: 1})
    assert join((a,), (b,), clock(A, B), clock(A, B)).purged_there


def test_step_6_a_local_sibling_can_be_what_covers() -> None:
    a, b = value(A), value(B, seen={EU: 1})
    assert not join((a, b), (), clock(A, B), clock(A)).purged_there


# --- faults


FAULTY = [
    (value(A, payload=b"a"), value(A, payload=b"b")),
    (value(A), tombstone(A)),
    (value(A), value(A, expires_at=1)),
    (value(A, expires_at=1), value(A, expires_at=2)),
    (value(A, written_at=1), value(A, written_at=2)),
    (value(A), value(A, seen={US: 1})),
    (value(A, seen={US: 1}), value(A, seen={US: 2})),
]


def test_one_dot_with_two_contents_is_a_fault_and_both_sides_keep_the_same() -> None:
    for lesser, greater in FAULTY:
        for local, remote in ((lesser, greater), (greater, lesser)):
            joined = join((local,), (remote,), clock(A), clock(A))
            assert joined.faults == (A,)
            assert joined.register == (greater,)
        for same in (lesser, greater):
            assert join((same,), (same,), clock(A), clock(A)).faults == ()


@given(siblings, siblings, siblings)
def test_of_two_contents_the_greater_is_kept_by_a_total_order(a: Sibling, b: Sibling, c: Sibling) -> None:
    def under_one_dot(sibling: Sibling) -> Register:
        return (Sibling(A, {}, sibling.payload, sibling.tombstone, sibling.expires_at, sibling.written_at),)

    def both(local: Register, remote: Register) -> Register:
        return join(local, remote, clock(A), clock(A)).register

    x, y, z = under_one_dot(a), under_one_dot(b), under_one_dot(c)
    assert both(x, y) == both(y, x)
    assert both(x, y) in (x, y)
    assert both(both(x, y), z) == both(x, both(y, z))


def test_a_fault_is_reported_beside_what_is_sound() -> None:
    joined = join((value(A), value(B)), (value(A, payload=b"x"), value(C)), clock(A, B), clock(A, C))
    assert joined.faults == (A,)
    assert dots_of(joined.register) == sorted([A, B, C])


# --- whatever the states


@given(registers, registers, clocks, clocks)
def test_a_join_makes_nothing_up(
    local: Register, remote: Register, local_clock: Clock, remote_clock: Clock
) -> None:
    joined = join(local, remote, local_clock, remote_clock)
    assert set(dots_of(joined.register)) <= {*dots_of(local), *dots_of(remote)}
    assert all(sibling in (*local, *remote) for sibling in joined.register)
    assert dots_of(joined.register) == sorted(set(dots_of(joined.register)))


@given(registers, clocks)
def test_what_nobody_has_seen_is_never_dropped(register: Register, local_clock: Clock) -> None:
    assert join(register, (), local_clock, EMPTY_CLOCK).register == tuple(
        sibling
        for sibling in register
        if not any(covers(other.context, sibling.dot) for other in register if other is not sibling)
    )


def test_incarnations_of_one_cluster_do_not_cover_each_other() -> None:
    again = Actor(EU.cluster, AP.incarnation)
    old, young = value(Dot(EU, 1)), value(Dot(again, 2))
    assert join((old,), (young,), clock(old.dot), clock(young.dot)).register == (old, young)
