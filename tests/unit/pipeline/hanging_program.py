"""A program of the pipeline whose Spark does nothing: `hanging_program <which> <arguments>`.

It says so on stderr when it has got its first job.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from stratalog.cli import main as cli
from stratalog.ids import WriterTag
from stratalog.pipeline.hosting import child_main, submit
from stratalog.pipeline.hosting.spark_jobs import SparkJobs
from stratalog.pipeline.jobs import Begin, Bin, BinOutcome

WORKING = b"working\n"


class HangingJobs:
    async def run(self, bins: Sequence[Bin], begin: Begin) -> AsyncGenerator[BinOutcome, None]:
        await begin(bins[0])
        print(WORKING.decode(), end="", file=sys.stderr, flush=True)
        await asyncio.Event().wait()
        for _ in ():
            yield _

    def distrust(self) -> None:
        raise AssertionError("nothing has failed")


@asynccontextmanager
async def hanging(
    _: SparkJobs, cluster_id: UUID | None, writer: WriterTag | None
) -> AsyncIterator[HangingJobs]:
    yield HangingJobs()


if __name__ == "__main__":
    setattr(SparkJobs, "open", hanging)  # noqa: B010
    which = sys.argv.pop(1)
    if which == "submit":
        sys.exit(submit.main())
    cli.run() if which == "cli" else child_main.main()
