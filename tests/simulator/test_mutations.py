"""Each rule that is broken on purpose is noticed. A check that no mutation can fail is not a check."""

import pytest

from replica.simulator.run import replay, simulate
from replica.simulator.script import Script
from tests.simulator.mutation import broken
from tests.simulator.mutations import MUTATIONS, Mutation

EACH = pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)


@EACH
def test_a_broken_rule_is_noticed_by_a_short_script(mutation: Mutation) -> None:
    script = Script.parse(mutation.script)
    whole = replay(script)
    assert whole.ok, f"the script fails with every rule in force: {whole.failure}"
    with broken(mutation.module, mutation.old, mutation.new):
        assert not replay(script).ok


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@EACH
def test_a_broken_rule_is_noticed_by_random_runs(mutation: Mutation) -> None:
    with broken(mutation.module, mutation.old, mutation.new):
        assert any(not simulate(None, 200, seed, faults=mutation.faults).ok for seed in range(20_000))


def test_what_was_broken_is_whole_again_afterwards() -> None:
    mutation = MUTATIONS[0]
    script = Script.parse(mutation.script)
    with broken(mutation.module, mutation.old, mutation.new):
        assert not replay(script).ok
    assert replay(script).ok


def test_a_mutation_that_has_lost_its_place_says_so() -> None:
    with pytest.raises(AssertionError, match="0 times"), broken("crdt.register", "no such line", ""):
        pass
    with (
        pytest.raises(AssertionError, match="nothing"),
        broken("crdt.register", '    "Register",', '   "Register", '),
    ):
        pass
