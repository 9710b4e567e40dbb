"""Power cuts at every step of a cluster's work.

    python -m tests.faults.power_cuts --states 5000 --seed 7
    python -m tests.faults.power_cuts --guards

The work of one process is recorded once: every write, sync, link, rename and removal. From the
record every state can be made that a power cut could have left, on a disk that holds only the
synced bytes and entries for certain. Each state is opened by a broker, read, written to, swept, and
checked by fsck.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from tests.faults.power.cuts import (
    choose,
    first_acknowledgement,
    quick_place,
    record_work,
    try_cuts,
)
from tests.faults.power.guards import Guard


def try_once(guard: Guard, *, states: int, seed: int, stop_at_first: bool) -> int:
    """Record and cut; return the number of violations."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="stratalog-power-", dir=quick_place()))
    try:
        changes = record_work(folder, guard)
    finally:
        shutil.rmtree(folder)
    begin = 0 if guard is Guard.NONE else first_acknowledgement(changes)
    cuts = choose(changes, states=states, seed=seed, begin=begin)
    outcome = try_cuts(changes, cuts, stop_at_first=stop_at_first, say=print)
    for stage, count in outcome.states.items():
        print(f"  {stage or 'start'}: {count} states")
    opened, seconds = outcome.states.total(), time.monotonic() - began
    print(
        f"guard taken out: {guard}; {outcome.changes} changes, {opened} states, {seconds:.0f} s,",
        end=" ",
    )
    print(f"{len(outcome.violations)} violations")
    return len(outcome.violations)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--states", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--guards", action="store_true", help="take out each guard, in turn")
    options = parser.parse_args()
    if not options.guards:
        found = try_once(Guard.NONE, states=options.states, seed=options.seed, stop_at_first=False)
        return int(found > 0)
    guards = [guard for guard in Guard if guard is not Guard.NONE]
    missed = [
        guard
        for guard in guards
        if not try_once(guard, states=options.states, seed=options.seed, stop_at_first=True)
    ]
    for guard in missed:
        print(f"not noticed: {guard}")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
