"""Many simulated runs, in a few processes."""

import gc
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple

from tests.simulation.database import empty_control_plane
from tests.simulation.guards import GUARDS, MOST_SEEDS, Guard, guard_named
from tests.simulation.world import simulate

_CRASH = "crash:"
_STUCK = "stuck:"
_MISFITS = ("TypeError(", "AttributeError(", "NameError(", "UnboundLocalError(", "ImportError(")
"""Errors of a function that is called, or calls others, in a way they do not know."""


class Verdict(NamedTuple):
    """The part of an outcome that crosses processes."""

    seed: int
    digest: str
    violations: list[str]
    counts: dict[str, int]
    virtual_s: float


class Notice(NamedTuple):
    """A seed that noticed the absence of a guard, with the violations that show it."""

    seed: int
    violations: list[str]


class StaleRemovalError(Exception):
    """The code has changed, and the removal of a guard does not fit it any more."""


def verdict(seed: int, guard: str | None = None) -> Verdict:
    """Simulate a seed, without one of the guards if its name is given."""
    # Migrations are no part of a protocol, and need all of their SQL.
    empty_control_plane()
    try:
        with guard_named(guard).removed() if guard is not None else nullcontext():
            outcome = simulate(seed)
    except Exception as error:
        return Verdict(seed, "", [f"{_CRASH} {error!r}"], {}, 0.0)
    return Verdict(seed, outcome.digest, outcome.violations, outcome.counts, outcome.virtual_s)


def first_noticed(guard: str, seeds: Iterable[int]) -> Notice | None:
    """The first seed that has a violation without this guard."""
    for seed in seeds:
        if noticed := noticing(verdict(seed, guard).violations):
            return Notice(seed, noticed)
    return None


def noticing(violations: Iterable[str]) -> list[str]:
    """Return the violations that the absence of a guard explains.

    Raises `StaleRemovalError` if the removal itself failed. A run that never ended says nothing
    of the reason.
    """
    found = [*violations]
    for violation in found:
        if violation.startswith(_CRASH) or any(error in violation for error in _MISFITS):
            raise StaleRemovalError(f"the removal does not fit the code: {violation}")
    return [violation for violation in found if not violation.startswith(_STUCK)]


def first_notices(jobs: int) -> Iterator[tuple[Guard, Notice | str]]:
    """Remove each guard in turn, and yield it with its notice, or with the reason for none."""
    with _pool(jobs) as pool:
        yield from zip(GUARDS, pool.map(_notice, [guard.name for guard in GUARDS]), strict=True)


def _notice(guard: str) -> Notice | str:
    try:
        found = first_noticed(guard, range(MOST_SEEDS))
    except StaleRemovalError as error:
        return str(error)
    return found or f"none of {MOST_SEEDS} seeds notices that it is missing"


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
