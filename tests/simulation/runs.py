"""Many simulated runs, in a few processes."""

import gc
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple

from tests.simulation.database import empty_control_plane
from tests.simulation.guards import GUARDS, MOST_SEEDS, Guard, guard_named
from tests.simulation.world import simulate


class Verdict(NamedTuple):
    """The part of an outcome that crosses processes."""

    seed: int
    digest: str
    violations: list[str]
    counts: dict[str, int]
    virtual_s: float


def verdict(seed: int, guard: str | None = None) -> Verdict:
    """Simulate a seed, without one of the guards if its name is given."""
    # Migrations are no part of a protocol, and need all of their SQL.
    empty_control_plane()
    try:
        with guard_named(guard).removed() if guard is not None else nullcontext():
            outcome = simulate(seed)
    except Exception as error:
        return Verdict(seed, "", [f"crash: {error!r}"], {}, 0.0)
    return Verdict(seed, outcome.digest, outcome.violations, outcome.counts, outcome.virtual_s)


def first_noticed(guard: str, seeds: Iterable[int]) -> Verdict | None:
    """The first seed that has a violation without this guard."""
    found = (one for seed in seeds if (one := verdict(seed, guard)).violations)
    return next(found, None)


def first_notices(jobs: int) -> Iterator[tuple[Guard, Verdict | None]]:
    """Remove each guard in turn, and yield it with the first seed that notices."""
    with _pool(jobs) as pool:
        notice = partial(first_noticed, seeds=range(MOST_SEEDS))
        yield from zip(GUARDS, pool.map(notice, [guard.name for guard in GUARDS]), strict=True)


def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[Verdict]:
    """Yield verdicts in the order of the seeds."""
    waiting = iter(seeds)
    if jobs == 1:
        yield from map(verdict, waiting)
        return
    with _pool(jobs) as pool:
        while some := list(islice(waiting, 50 * jobs)):
            yield from pool.map(verdict, some)


def _pool(jobs: int) -> ProcessPoolExecutor:
    # Not forked: a child must not share its parent's loop, nor its locks.
    # Imported code lives as long as its process: no garbage collection need look at it.
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=gc.freeze)


def command(seed: int) -> str:
    return f"python -m tests.simulation --seed {seed} -v"
