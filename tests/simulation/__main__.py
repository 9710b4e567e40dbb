"""Simulate clusters from the command line.

python -m tests.simulation --seeds 10000 --jobs 2            many seeds
python -m tests.simulation --seed 17 -v                      one seed, with its history
python -m tests.simulation --guard "grace" --seeds 40        the same without one of the guards
python -m tests.simulation --guards                          the first seed that misses each guard
python -m tests.simulation --guards --into docs/safety.md    the same, put into its page
"""

import argparse
import sys
from pathlib import Path

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from tests.simulation.guard_table import HEADING, row_of, with_table
from tests.simulation.guards import guard_named
from tests.simulation.runs import command, first_noticed, first_notices, run_seeds
from tests.simulation.world import simulate

from stratalog.clock import SYSTEM_CLOCK


def main() -> int:
    arguments = _arguments()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.guards:
        return show_guards(arguments.jobs, arguments.into)
    if arguments.seed is not None:
        return show_seed(arguments.seed, arguments.guard, verbose=arguments.verbose)
    if arguments.guard is not None:
        return show_guard(arguments.guard, seeds)
    return run_many(seeds, arguments.jobs)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--guard", help="remove this guard")
    parser.add_argument("--guards", action="store_true", help="remove each guard in turn")
    parser.add_argument("--into", type=Path, help="with --guards: the page that has the table")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --seed: the history")
    return parser.parse_args()


def show_seed(seed: int, guard: str | None, *, verbose: bool) -> int:
    if guard is None:
        outcome = simulate(seed)
    else:
        with guard_named(guard).removed():
            outcome = simulate(seed)
    if verbose:
        print("\n".join([*outcome.calls, *map(str, outcome.history)]))
    for name, count in outcome.counts.items():
        print(f"{name}: {count}")
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    print(f"seed {seed}: digest {outcome.digest}, {len(outcome.violations)} violations")
    return 1 if outcome.violations else 0


def run_many(seeds: range, jobs: int) -> int:
    began_s = SYSTEM_CLOCK.monotonic()
    failed, virtual_s = 0, 0.0
    with _progress() as progress:
        task = progress.add_task("seeds", total=len(seeds))
        for verdict in run_seeds(seeds, jobs):
            progress.advance(task)
            virtual_s += verdict.virtual_s
            if verdict.violations:
                failed += 1
                progress.print(f"seed {verdict.seed}:", *verdict.violations, sep="\n  ")
                progress.print(f"  {command(verdict.seed)}", highlight=False)
    took_s = SYSTEM_CLOCK.monotonic() - began_s
    print(
        f"{len(seeds)} seeds from {seeds.start}: {failed} with violations;"
        f" {took_s:.0f} s, {took_s / max(len(seeds), 1):.2f} s each with {jobs} processes,"
        f" {virtual_s / took_s:.0f} virtual seconds a second"
    )
    return 1 if failed else 0


def show_guard(name: str, seeds: range) -> int:
    found = first_noticed(name, seeds)
    if found is None:
        print(f"without {name!r}: no violation in {len(seeds)} seeds")
        return 1
    print(f"without {name!r}: noticed by seed {found.seed}", *found.violations, sep="\n  ")
    return 0


def show_guards(jobs: int, page: Path | None) -> int:
    """Print a table of the seeds that notice the absence of each guard, or put it into a page.

    The page stays as it is if one of them is not noticed.
    """
    rows: list[str] = []
    unnoticed: list[str] = []
    print(*HEADING, sep="\n")
    for guard, found in first_notices(jobs):
        if isinstance(found, str):
            unnoticed.append(f"{guard.name}: {found}")
        else:
            rows.append(row_of(guard, found))
            print(rows[-1], flush=True)
    print(*unnoticed, sep="\n", file=sys.stderr)
    if unnoticed:
        return 1
    if page is not None:
        page.write_text(with_table(page.read_text(), rows))
    return 0


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
