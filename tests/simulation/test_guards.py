"""Each guard is taken out of the real code, and the simulation must notice."""

from contextlib import nullcontext

import pytest
from tests.simulation.guards import GUARDS, MOST_SEEDS, Guard
from tests.simulation.runs import first_noticed, verdict
from tests.simulation.world import simulate

_NOTICED = [guard for guard in GUARDS if guard.noticed_by is not None]
_WITH_SCENARIO = [guard for guard in GUARDS if guard.scenario is not nullcontext]


@pytest.mark.parametrize("guard", _NOTICED, ids=lambda guard: guard.name)
def test_a_removed_guard_is_noticed(guard: Guard) -> None:
    assert guard.noticed_by is not None
    # A change of the code may move the moment to another seed: the recorded one is a hint.
    found = first_noticed(guard.name, (guard.noticed_by, *range(MOST_SEEDS)))
    assert found is not None, f"none of {MOST_SEEDS} seeds notices that {guard.name!r} is missing"
    assert not found.violations[0].startswith("crash")


def test_every_guard_is_noticed_by_some_seed() -> None:
    assert [guard.name for guard in GUARDS if guard.noticed_by is None] == []


def test_a_chain_that_cuts_a_row_is_noticed_when_it_happens() -> None:
    [guard] = [guard for guard in GUARDS if guard.name == "chain at a row's edge"]
    assert guard.noticed_by is not None

    verdicts = (verdict(seed, guard.name) for seed in (guard.noticed_by, *range(MOST_SEEDS)))

    assert any("a chain moved block_start" in one for each in verdicts for one in each.violations)


@pytest.mark.parametrize("guard", _WITH_SCENARIO, ids=lambda guard: guard.name)
def test_a_scenario_breaks_no_promise_while_its_guard_stands(guard: Guard) -> None:
    assert guard.noticed_by is not None
    for seed in range(guard.noticed_by + 1):
        with guard.scenario():
            outcome = simulate(seed)
        assert not outcome.violations, seed
