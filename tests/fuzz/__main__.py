"""Throw mutants of good inputs at every reader of foreign bytes.

Run: python -m tests.fuzz --inputs 100000000 [--seed N] [--target NAME]

Ends with a table of inputs and of rates in processor time, and exit code 1 if an input made a
reader hang, fail in an untyped way, or keep memory. The same seed makes the same inputs.
"""

import argparse
import sys
import time

from tests.fuzz.judge import Outcome, fuzz, memory_bytes
from tests.fuzz.targets import all_targets

_TELL_INPUTS = 1_000_000


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
    began = time.process_time()
    outcome = fuzz(
        targets,
        given.inputs,
        given.seed,
        seconds=time.process_time,
        tell=_Progress(),
        tell_finding=lambda finding: print(finding, flush=True),
    )
    seconds = time.process_time() - began
    for name, inputs in sorted(outcome.inputs.items()):
        print(f"{name:32} {inputs:12,} inputs {inputs / outcome.seconds[name]:10,.0f} a second")
    rate = f"{outcome.total / seconds:,.0f} a second"
    print(f"{outcome.total:,} inputs in {seconds:,.0f} s of processor time, {rate}")
    for finding in outcome.findings:
        print(finding)
    print(f"{len(outcome.findings)} findings, seed {given.seed}")
    return 1 if outcome.findings else 0


class _Progress:
    """Tells it after every million."""

    def __init__(self) -> None:
        self._told = 0

    def __call__(self, outcome: Outcome) -> None:
        if outcome.total - self._told >= _TELL_INPUTS:
            self._told = outcome.total
            memory = f"{memory_bytes() / 2**20:,.0f} MiB"
            print(
                f"{outcome.total:,} inputs, {len(outcome.findings)} findings, {memory}", flush=True
            )


if __name__ == "__main__":
    sys.exit(main())
