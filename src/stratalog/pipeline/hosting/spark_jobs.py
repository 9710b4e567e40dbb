"""Spark jobs for a driver: a session that the first job starts, and the next ones share.

A session that has died, or that is distrusted, is replaced by another one.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from stratalog.clock import Clock
from stratalog.ids import WriterTag
from stratalog.pipeline.hosting.job_progress import ProgressListener
from stratalog.pipeline.hosting.spark_conf import SparkOptions
from stratalog.pipeline.workplace import Workplace

if TYPE_CHECKING:
    from stratalog.pipeline.hosting.job_runner import JobRunner
    from stratalog.pipeline.hosting.session import OpenSpark

log = logging.getLogger(__name__)


class SparkJobs:
    def __init__(
        self,
        options: SparkOptions,
        workplace: Workplace,
        *,
        clock: Clock,
        executor_wait_ms: int,
        listener: ProgressListener | None = None,
    ) -> None:
        self._options = options
        self._workplace = workplace
        self._clock = clock
        self._executor_wait_ms = executor_wait_ms
        self._listener = listener
        self._spark: OpenSpark | None = None

    @property
    def is_open(self) -> bool:
        return self._spark is not None

    @asynccontextmanager
    async def open(
        self, cluster_id: UUID | None = None, writer: WriterTag | None = None
    ) -> "AsyncIterator[JobRunner]":
        """Open a runner of jobs, whose workers refuse stores that are not this cluster's, and
        upload as this writer.

        The session outlives the runner, unless the runner is distrusted.
        """
        # Imported late: Spark alone takes a second, and most looks for work find none.
        from stratalog.pipeline.hosting.job_runner import JobRunner
        from stratalog.pipeline.hosting.run_task import run_task
        from stratalog.pipeline.hosting.session import open_session

        if self._spark is not None and not await asyncio.to_thread(self._spark.is_alive):
            log.warning("Spark has ended, or does not answer: another session is started.")
            await self._drop()
        if self._spark is None:
            self._spark = await asyncio.to_thread(open_session, self._options)
        runner = JobRunner(
            self._spark,
            run_task,
            self._workplace.of_cluster(cluster_id, writer),
            clock=self._clock,
            listener=self._listener,
            executor_wait_ms=self._executor_wait_ms,
        )
        try:
            yield runner
        finally:
            if runner.is_distrusted:
                await self._drop()

    async def close(self) -> None:
        """End the session, if there is one. The next job starts another one."""
        spark, self._spark = self._spark, None
        if spark is not None:
            await asyncio.to_thread(spark.close)

    async def _drop(self) -> None:
        spark, self._spark = self._spark, None
        if spark is not None:
            await asyncio.to_thread(spark.drop)
