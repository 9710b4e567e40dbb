"""The program of the child process that works for a broker: see `child_process.py`.

The first line of standard input is the settings. Each line after it names kinds of work, and is
answered by one line of standard output. When standard input ends, or SIGTERM comes, the process
ends in the middle of its work.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeAlias

from stratalog.clock import SYSTEM_CLOCK
from stratalog.control.pipeline.model import UnitKind
from stratalog.errors import StratalogError
from stratalog.logs import configure_logs
from stratalog.memory import collect_garbage_rarely
from stratalog.pipeline.driver import Driver
from stratalog.pipeline.hosting.child_process import unpack_settings
from stratalog.pipeline.hosting.signals import run_until_terminated
from stratalog.pipeline.hosting.spark_conf import Place, SparkOptions, place_of
from stratalog.pipeline.hosting.spark_jobs import SparkJobs
from stratalog.pipeline.open import opened_driver
from stratalog.pipeline.workplace import workplace_of
from stratalog.settings import Settings

log = logging.getLogger(__name__)

_LONGEST_LINE_BYTES = 1024 * 1024

_Answer: TypeAlias = Callable[[Mapping[str, object]], None]


def main() -> None:
    collect_garbage_rarely()
    # Other output must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(report: Mapping[str, object]) -> None:
        print(json.dumps(report), file=answers, flush=True)

    try:
        run_until_terminated(_serve(answer))
    except StratalogError as error:
        log.error("%s", error)
        sys.exit(1)


async def _serve(answer: _Answer) -> None:
    reader = asyncio.StreamReader(limit=_LONGEST_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    first = await reader.readline()
    if not first:
        return
    settings = unpack_settings(first)
    # The broker's standard error is ours, too.
    configure_logs(settings.log, process="pipeline process")
    orders: asyncio.Queue[str] = asyncio.Queue()
    working = asyncio.create_task(_work(settings, orders, answer))
    listening = asyncio.create_task(_listen(reader, orders))
    try:
        await asyncio.wait([working, listening], return_when=asyncio.FIRST_COMPLETED)
    finally:
        listening.cancel()
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


async def _listen(reader: asyncio.StreamReader, orders: "asyncio.Queue[str]") -> None:
    while line := await reader.readline():
        orders.put_nowait(line.decode())


async def _work(settings: Settings, orders: "asyncio.Queue[str]", answer: _Answer) -> None:
    # On a cluster, the pipeline is not in the broker's way.
    gently = place_of(settings.tiering.master) is Place.LOCAL
    options = SparkOptions(
        master=settings.tiering.master, app_name="stratalog pipeline", yields=gently
    )
    spark = SparkJobs(
        options,
        workplace_of(settings, gently=gently),
        clock=SYSTEM_CLOCK,
        executor_wait_ms=settings.tiering.executor_wait_ms,
    )
    try:
        # Without cleaning, which the broker's janitor does.
        async with opened_driver(settings, spark.open) as driver:
            while True:
                order = await orders.get()
                answer(await _run(driver, order))
    finally:
        await spark.close()


async def _run(driver: Driver, order: str) -> Mapping[str, object]:
    try:
        report = await driver.run([UnitKind(word) for word in order.split()])
    except StratalogError as error:
        return {"error": str(error)}
    return report.to_json()


if __name__ == "__main__":
    main()
