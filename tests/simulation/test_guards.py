"""Each guard is taken out of the real code, and the simulation must notice."""

import pytest
from tests.simulation.guards import GUARDS, MOST_SEEDS, Guard
from tests.simulation.runs import verdict

_NOTICED = [guard for guard in GUARDS if guard.noticed_by is not None]


@pytest.mark.parametrize("guard", _NOTICED, ids=lambda guard: guard.name)
def test_a_removed_guard_is_noticed(guard: Guard) -> None:
    assert guard.noticed_by is not None
    found = verdict(guard.noticed_by, guard.name)
    assert found.violations, (
        f"seed {guard.noticed_by} no longer notices this;"
        f' look with: python -m tests.simulation --guard "{guard.name}" --seeds {MOST_SEEDS}'
    )
    assert not found.violations[0].startswith("crash")
