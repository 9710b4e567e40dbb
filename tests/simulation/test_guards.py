"""Each guard is taken out of the real code, and the simulation must notice."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.simulation import guards
from tests.simulation.guard_table import HEADING, recorded_seeds, row_of, with_table
from tests.simulation.guards import GUARDS, MOST_SEEDS, Guard, without
from tests.simulation.runs import (
    Notice,
    StaleRemovalError,
    first_noticed,
    noticing,
    verdict,
)
from tests.simulation.world import simulate

from stratalog.janitor.sweeper import Sweeper

_PAGE = Path(__file__).parents[2] / "docs" / "safety.md"
_RECORDED = recorded_seeds(_PAGE.read_text())
_WITH_SCENARIO = [guard for guard in GUARDS if guard.scenario is not nullcontext]


def _seeds(guard: Guard) -> list[int]:
    """A change of the code may move the moment to another seed: the recorded one is a hint."""
    recorded = _RECORDED.get(guard.name, 0)
    return [recorded, *(seed for seed in range(MOST_SEEDS) if seed != recorded)]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_removed_guard_is_noticed(guard: Guard) -> None:
    found = first_noticed(guard.name, _seeds(guard))

    assert found is not None, f"none of {MOST_SEEDS} seeds notices that {guard.name!r} is missing"


def test_the_page_has_a_seed_for_every_guard() -> None:
    assert [*_RECORDED] == [guard.name for guard in GUARDS]
    assert all(seed < MOST_SEEDS for seed in _RECORDED.values())


def test_a_chain_that_cuts_a_row_is_noticed_when_it_happens() -> None:
    [guard] = [guard for guard in GUARDS if guard.name == "chain at a row's edge"]

    verdicts = (verdict(seed, guard.name) for seed in _seeds(guard))

    assert any("a chain moved block_start" in one for each in verdicts for one in each.violations)


@pytest.mark.parametrize("guard", _WITH_SCENARIO, ids=lambda guard: guard.name)
def test_a_scenario_breaks_no_promise_while_its_guard_stands(guard: Guard) -> None:
    for seed in range(_RECORDED[guard.name] + 1):
        with guard.scenario():
            outcome = simulate(seed)
        assert not outcome.violations, seed


@pytest.mark.parametrize(
    "violation",
    [
        "crash: KeyError('_horizon_ms')",
        "aborted-read: plain kept 0:1 failed (BlockFailedError(TypeError('resolve() takes 2')))",
        "mistake: the janitor could not finish sweep: AttributeError('no attribute: age')",
    ],
)
def test_a_removal_that_fails_by_itself_is_an_error_and_no_notice(violation: str) -> None:
    with pytest.raises(StaleRemovalError, match="does not fit the code"):
        noticing(["unseen: idempotent kept 0:3 was acknowledged", violation])


def test_a_run_that_did_not_end_is_no_notice_of_a_guard() -> None:
    assert noticing(["stuck: not over after 90.0 s"]) == []
    assert noticing(["stuck: not over after 90.0 s", "gap: 3"]) == ["gap: 3"]


def test_a_removal_that_is_older_than_the_code_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def horizon(self: Any) -> int:
        return int(self.renamed_since)

    stale = Guard("stale", "A removal of yesterday.", without(Sweeper, "_horizon_ms", horizon))
    monkeypatch.setattr(guards, "GUARDS", (stale,))

    with pytest.raises(StaleRemovalError, match="renamed_since"):
        first_noticed("stale", range(MOST_SEEDS))


def test_the_table_is_read_as_it_was_written() -> None:
    row = row_of(GUARDS[3], Notice(7, ["went-back: a | b\n" + "c" * 200]))

    page = with_table(_PAGE.read_text(), [row])

    assert recorded_seeds(page) == {GUARDS[3].name: 7}
    assert HEADING[0] in page
    assert with_table(page, [row]) == page
