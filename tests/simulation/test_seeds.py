"""A hundred simulated clusters; `python -m tests.simulation` runs more."""

import os
import subprocess
import sys

import pytest
from tests.simulation.runs import command, quiet

_SEEDS = 100
_TOGETHER = 5


@pytest.mark.parametrize("first", range(0, _SEEDS, _TOGETHER))
def test_a_simulated_cluster_keeps_its_promises(first: int) -> None:
    for seed in range(first, first + _TOGETHER):
        outcome = quiet(seed)
        assert not outcome.violations, command(seed)


def test_the_same_seed_gives_the_same_digest_in_another_process() -> None:
    digests = {_digest_elsewhere(seed=3, hash_seed=hash_seed) for hash_seed in ("1", "2")}

    assert digests == {quiet(3).digest}


def test_another_seed_gives_another_digest() -> None:
    assert quiet(1).digest != quiet(2).digest


def _digest_elsewhere(*, seed: int, hash_seed: str) -> str:
    code = f"from tests.simulation.runs import quiet; print(quiet({seed}).digest)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
