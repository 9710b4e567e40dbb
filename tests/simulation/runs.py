"""Many simulated runs, in a few processes."""

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple

from tests.simulation.world import Outcome, simulate


class Verdict(NamedTuple):
    """The part of an outcome that crosses processes."""

    seed: int
    digest: str
    violations: list[str]


def verdict(seed: int) -> Verdict:
    try:
        outcome = quiet(seed)
    except Exception as error:
        return Verdict(seed, "", [f"crash: {error!r}"])
    return Verdict(seed, outcome.digest, outcome.violations)


def quiet(seed: int) -> Outcome:
    """Simulate without the log lines of the nodes, which expect all these faults."""
    with silence():
        return simulate(seed)


@contextmanager
def silence() -> Iterator[None]:
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(previous)


def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[Verdict]:
    """Yield verdicts in the order of the seeds."""
    waiting = iter(seeds)
    if jobs == 1:
        yield from map(verdict, waiting)
        return
    # Not forked: a child must not share its parent's loop, nor its locks.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        while some := list(islice(waiting, 50 * jobs)):
            yield from pool.map(verdict, some)


def command(seed: int) -> str:
    return f"python -m tests.simulation --seed {seed} -v"
