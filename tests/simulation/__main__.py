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
from tests.simulation.guards import MOST_SEEDS, guard_named
from tests.simulation.runs import command, first_noticed, first_notices, run_seeds
from tests.simulation.world import simulate

from stratalog.clock import SYSTEM_CLOCK

_TABLE_BEGINS = "<!-- The table of guards -->"
_TABLE_ENDS = "<!-- The end of the table of guards -->"
_VIOLATION_CHARS = 100


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
    """Print a table of the seeds that notice the absence of each guard, or put it into a page."""
    lines = ["| guard | meaning | seeds | first violation |", "|---|---|---|---|"]
    unnoticed = 0
    print(*lines, sep="\n")
    for guard, found in first_notices(jobs):
        unnoticed += found is None
        seeds = f"more than {MOST_SEEDS}" if found is None else f"{found.seed + 1}"
        violation = "" if found is None else _shortened(found.violations[0])
        lines.append(f"| {guard.name} | {guard.meaning} | {seeds} | {violation} |")
        print(lines[-1], flush=True)
    if page is not None:
        before, rest = page.read_text().split(_TABLE_BEGINS)
        after = rest.split(_TABLE_ENDS)[1]
        page.write_text("\n".join([before + _TABLE_BEGINS, *lines, _TABLE_ENDS + after]))
    return 1 if unnoticed else 0


def _shortened(violation: str) -> str:
    text = violation.replace("|", "/")
    return text if len(text) <= _VIOLATION_CHARS else f"{text[:_VIOLATION_CHARS]} ..."


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
