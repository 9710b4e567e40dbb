"""Simulate clusters from the command line.

python -m tests.simulation --seeds 10000 --from 0 --jobs 2     many seeds
python -m tests.simulation --seed 17 -v                        one seed, with its history
"""

import argparse
import sys

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from tests.simulation.runs import command, run_seeds, silence
from tests.simulation.world import simulate

from stratalog.clock import SYSTEM_CLOCK


def main() -> int:
    arguments = _arguments()
    if arguments.seed is not None:
        return show_seed(arguments.seed, verbose=arguments.verbose)
    return run_many(range(arguments.first, arguments.first + arguments.seeds), arguments.jobs)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --seed: the history")
    return parser.parse_args()


def show_seed(seed: int, *, verbose: bool) -> int:
    with silence():
        outcome = simulate(seed)
    if verbose:
        print("\n".join([*outcome.calls, *outcome.history]))
    for name, count in outcome.counts.items():
        print(f"{name}: {count}")
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    print(f"seed {seed}: digest {outcome.digest}, {len(outcome.violations)} violations")
    return 1 if outcome.violations else 0


def run_many(seeds: range, jobs: int) -> int:
    began_s = SYSTEM_CLOCK.monotonic()
    failed = 0
    with _progress() as progress:
        task = progress.add_task("seeds", total=len(seeds))
        for verdict in run_seeds(seeds, jobs):
            progress.advance(task)
            if verdict.violations:
                failed += 1
                progress.print(f"seed {verdict.seed}:", *verdict.violations, sep="\n  ")
                progress.print(f"  {command(verdict.seed)}", highlight=False)
    took_s = SYSTEM_CLOCK.monotonic() - began_s
    print(
        f"{len(seeds)} seeds from {seeds.start}: {failed} with violations;"
        f" {took_s:.0f} s, {took_s / max(len(seeds), 1):.2f} s each with {jobs} processes"
    )
    return 1 if failed else 0


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )


if __name__ == "__main__":
    sys.exit(main())
