"""Throw mutants of good inputs at every reader of foreign bytes.

Run: python -m tests.fuzz --inputs 100000000 [--seed N] [--target NAME]

Ends with a table of inputs and rates, and exit code 1 if an input made a reader hang, fail in an
untyped way, or keep memory. The same seed makes the same inputs.
"""

import argparse
import sys
import time

from tests.fuzz.judge import GROUP, Outcome, fuzz
from tests.fuzz.targets import all_targets

_TELL_INPUTS = GROUP * 4000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", help="only targets with this in their name")
    given = parser.parse_args()
    wanted = given.target or [""]
    targets = [one for one in all_targets() if any(part in one.name for part in wanted)]
    if not targets:
        parser.error(f"no target has {' or '.join(wanted)} in its name")
    began = time.perf_counter()
    outcome = fuzz(
        targets,
        given.inputs,
        given.seed,
        seconds=time.perf_counter,
        tell=_tell,
        tell_finding=lambda finding: print(finding, flush=True),
    )
    seconds = time.perf_counter() - began
    for name, inputs in sorted(outcome.inputs.items()):
        print(f"{name:32} {inputs:12,} inputs {inputs / outcome.seconds[name]:10,.0f} a second")
    print(f"{outcome.total:,} inputs in {seconds:,.0f} s, {outcome.total / seconds:,.0f} a second")
    for finding in outcome.findings:
        print(finding)
    print(f"{len(outcome.findings)} findings, seed {given.seed}")
    return 1 if outcome.findings else 0


def _tell(outcome: Outcome) -> None:
    if outcome.total % _TELL_INPUTS == 0:
        print(f"{outcome.total:,} inputs, {len(outcome.findings)} findings", flush=True)


if __name__ == "__main__":
    sys.exit(main())
