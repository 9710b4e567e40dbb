"""Stratalog beside Apache Kafka itself, with the clients that people have.

    python -m bench.kafka --rows java-default,idempotent --rounds 5

Both servers run on this machine with their defaults: one node, one folder, Stratalog with SQLite.
The jars of Kafka come from Maven Central, once; Java 17 and Maven have to be there. A row starts
fresh servers, warms them up, and measures them in turns; the ratio is that of the medians.
A run during which other processes used the machine is repeated, and a row with such a run left in
it is marked with ~. Progress goes to stderr, the table to stdout.

How to read the table
  ratio          Stratalog's figure by Kafka's: above 1 is faster, in the row `idle` it is dearer
  range          the lowest and the highest ratio of a round
  flushed Kafka  the same for a topic with flush.messages=1: on disk when it is acknowledged
  mock           the same for librdkafka's mock cluster, which stores nothing: the client's ceiling
  server's time  processor time of Stratalog's process and of Kafka's for each unit of the row

rows
"""

import argparse
from pathlib import Path

from bench.kafka import table
from bench.kafka.maven import classpath
from bench.kafka.rounds import STRATALOG, How, measure, say
from bench.kafka.rows import ROWS, Row
from bench.kafka.servers import HERE


def _rows(names: str) -> list[Row]:
    known = {row.name: row for row in ROWS}
    for name in names.split(","):
        if name not in known:
            raise argparse.ArgumentTypeError(f"there is no row {name!r}; rows: {', '.join(known)}")
    return [known[name] for name in names.split(",")]


def _tree(text: str) -> Path:
    tree = Path(text).resolve()
    if not (tree / "src" / "stratalog").is_dir():
        raise argparse.ArgumentTypeError(f"{tree} is no source tree of Stratalog")
    return tree


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {row.name:15} {row.load}" for row in ROWS)
    parser = argparse.ArgumentParser(
        prog="python -m bench.kafka",
        description=f"{__doc__}{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=_rows, default=list(ROWS), help="names; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=4, help="of a run, about; Java needs half more"
    )
    parser.add_argument(
        "--stratalog",
        type=_tree,
        metavar="TREE",
        help="a checkout of another commit, measured as a further side",
    )
    parser.add_argument(
        "--noise", type=float, default=0.05, help="share of the machine that others may use"
    )
    parser.add_argument("--repeats", type=int, default=2, help="of a run that was disturbed")
    parser.add_argument(
        "--patience", type=float, default=30, help="seconds to wait for a quiet machine, each row"
    )
    return parser


def main() -> None:
    options = _parser().parse_args()
    trees = {STRATALOG: HERE}
    if options.stratalog is not None:
        trees[f"tree {options.stratalog.name}"] = options.stratalog
    others = list(trees)[1:]
    how = How(
        rounds=options.rounds,
        seconds=options.seconds,
        noise=options.noise,
        repeats=options.repeats,
        patience_seconds=options.patience,
        trees=trees,
    )
    classpath()
    lines = []
    for row in options.rows:
        say(f"{row.name}: {row.load}")
        lines.append(table.line(row, measure(row, how), how.noise, others))
        say(f"  {lines[-1]}")
    print("\n".join([table.header(others), *lines]))


if __name__ == "__main__":
    main()
