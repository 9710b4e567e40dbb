"""A hundred simulated clusters; `python -m tests.simulation` runs more."""

import os
import subprocess
import sys

import pytest
from tests.simulation.disasters import DISASTERS
from tests.simulation.faults import FAULTS
from tests.simulation.runs import command
from tests.simulation.seals import SEALS
from tests.simulation.world import simulate

_SEEDS = 100
_TOGETHER = 5


@pytest.mark.parametrize("first", range(0, _SEEDS, _TOGETHER))
def test_a_simulated_cluster_keeps_its_promises(first: int) -> None:
    for seed in range(first, first + _TOGETHER):
        outcome = simulate(seed)
        assert not outcome.violations, command(seed)


@pytest.mark.parametrize("seed", [3, 2], ids=["in memory", "in a folder"])
def test_the_same_seed_gives_the_same_digest_in_another_process(seed: int) -> None:
    digests = {_digest_elsewhere(seed=seed, hash_seed=hash_seed) for hash_seed in ("1", "2")}

    assert digests == {simulate(seed).digest}


def test_every_kind_of_fault_and_of_seal_happens() -> None:
    missing = {*FAULTS, *DISASTERS, *SEALS}
    for seed in range(_SEEDS):
        counts = simulate(seed).counts
        missing -= {kind for kind in missing if counts.get(kind)}
        if not missing:
            break

    assert not missing


def test_another_seed_gives_another_digest() -> None:
    assert simulate(1).digest != simulate(2).digest


def _digest_elsewhere(*, seed: int, hash_seed: str) -> str:
    code = f"from tests.simulation.world import simulate; print(simulate({seed}).digest)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
