"""The program that `spark-submit` runs: one run of the pipeline in the session that it gives.

spark-submit --archives env.tar.gz#env submit.py --config stratalog.toml --until-idle

`stratalog pipeline run` does the same with a session of its own.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from stratalog.clock import SYSTEM_CLOCK
from stratalog.control.pipeline.model import UnitKind
from stratalog.errors import StratalogError
from stratalog.opening.location import LOCATION_NAMES, ClusterLocation
from stratalog.pipeline.hosting.signals import run_until_terminated
from stratalog.pipeline.hosting.spark_conf import SparkOptions
from stratalog.pipeline.hosting.spark_jobs import SparkJobs
from stratalog.pipeline.open import opened_driver
from stratalog.pipeline.report import Report
from stratalog.pipeline.workplace import workplace_of
from stratalog.settings import Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 if anything failed. SIGTERM ends the program with another one."""
    given = _parser().parse_args(arguments)
    try:
        settings = _location(given).settings(given.set)
        report = run_until_terminated(_run(settings, given))
    except StratalogError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(report.lines()))
    return 1 if report.failed else 0


async def _run(settings: Settings, given: argparse.Namespace) -> Report:
    spark = SparkJobs(
        SparkOptions(master=None),
        workplace_of(settings),
        clock=SYSTEM_CLOCK,
        executor_wait_ms=settings.tiering.executor_wait_ms,
    )
    kinds = [UnitKind(given.only)] if given.only else list(UnitKind)
    try:
        async with opened_driver(settings, spark.open, clean=True) as driver:
            runs = driver.run_until_idle if given.until_idle else driver.run
            return await runs(kinds, given.topic or None)
    finally:
        await spark.close()


def _location(given: argparse.Namespace) -> ClusterLocation:
    return ClusterLocation(**{name: getattr(given, name) for name in LOCATION_NAMES})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Convert aged records of Stratalog, once.")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder of the cluster")
    parser.add_argument("--objects", metavar="URL", help="the object store")
    parser.add_argument("--control", metavar="URL", help="the control plane")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--topic", action="append", metavar="TOPIC", help="only this topic")
    parser.add_argument("--only", choices=[kind.value for kind in UnitKind])
    parser.add_argument("--until-idle", action="store_true", help="run until nothing is left")
    return parser


if __name__ == "__main__":
    sys.exit(main())
