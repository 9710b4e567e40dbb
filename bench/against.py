"""Run benches in this tree and in another one, in turns, and print the ratio of every figure.

Run: python -m bench.against ../before produce consume [--turns 3] [--pass="--rounds 1"]

The other folder is a checkout of an older commit; both trees use this Python. The text of `--pass`
goes to every bench. A figure is a number in a line of output, and is compared with the number at
the same position of the same line. The ratio is that of the medians: above 1, this tree's figure
is larger, which is good for a speed and bad for a time.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TypeAlias

HERE = Path(__file__).parents[1]
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w.]*\w)")
Figures: TypeAlias = dict[str, list[list[float]]]
"""By line with its numbers replaced: the numbers of each turn."""


def run(tree: Path, bench: str, arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{bench}", *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"bench.{bench} failed in {tree}:\n{done.stdout}")
    return done.stdout


def note(figures: Figures, output: str) -> None:
    for line in output.splitlines():
        numbers = [float(found.replace(",", "")) for found in NUMBER.findall(line)]
        if numbers:
            figures[" ".join(NUMBER.sub("#", line).split())].append(numbers)


def medians(turns: list[list[float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*turns, strict=True)]


def show(bench: str, before: Figures, now: Figures) -> None:
    print(f"{bench}: before, now, ratio")
    for label in before.keys() & now.keys():
        pairs = zip(medians(before[label]), medians(now[label]), strict=True)
        shown = "  ".join(f"{a:g} {b:g} ({b / a:.2f})" for a, b in pairs if a)
        print(f"  {label}\n    {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", type=Path)
    parser.add_argument("benches", nargs="+")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--pass", dest="passed", default="", help="arguments for every bench")
    how = parser.parse_args()
    for bench in how.benches:
        before: Figures = defaultdict(list)
        now: Figures = defaultdict(list)
        for turn in range(how.turns):
            print(f"{bench}: turn {turn + 1} of {how.turns}", file=sys.stderr)
            note(before, run(how.tree.resolve(), bench, how.passed.split()))
            note(now, run(HERE, bench, how.passed.split()))
        show(bench, before, now)


if __name__ == "__main__":
    main()
