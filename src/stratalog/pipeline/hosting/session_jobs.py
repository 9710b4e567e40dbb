"""Naming, watching and cancelling the jobs of a session, for both kinds of Spark session.

A job is known by a tag, a text without commas that people may see.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, cast

from pyspark.sql import SparkSession

from stratalog.pipeline.hosting.job_progress import TaskCounts


class Jobs(Protocol):
    """All methods may be called from any thread, and may block for a round trip."""

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        """Let the calls of this thread to Spark belong to that job within the block."""

    def cancel(self, tag: str) -> None:
        """Stop the job if it runs. A job that has not begun yet is not stopped."""

    def counts(self, tag: str) -> TaskCounts | None:
        """Return the job's progress, or None if Spark has not reported any."""


class ClassicJobs:
    """The jobs of a session with a JVM on this side: job groups, and Spark's own status tracker."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        self._context.setJobGroup(tag, tag, interruptOnCancel=True)
        yield

    def cancel(self, tag: str) -> None:
        self._context.cancelJobGroup(tag)

    def counts(self, tag: str) -> TaskCounts:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(tag)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        return TaskCounts(
            done=sum(stage.numCompletedTasks for stage in stages if stage),
            running=sum(stage.numActiveTasks for stage in stages if stage),
        )


class ConnectJobs:
    """The jobs of a Spark Connect session: operation tags, and the server's progress messages."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._here = threading.local()
        self._counts: dict[str, TaskCounts] = {}
        spark.registerProgressHandler(cast(Any, self._note_progress))

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        self._spark.addTag(tag)
        self._here.tag = tag
        try:
            yield
        finally:
            self._here.tag = None
            self._spark.removeTag(tag)
            self._counts.pop(tag, None)

    def cancel(self, tag: str) -> None:
        self._spark.interruptTag(tag)

    def counts(self, tag: str) -> TaskCounts | None:
        return self._counts.get(tag)

    def _note_progress(
        self, stages: Iterable[Any] | None, inflight_tasks: int, **_rest: object
    ) -> None:
        """Note progress. Spark calls this in the thread that waits for the job, which names it."""
        tag = getattr(self._here, "tag", None)
        if tag is not None and stages is not None:
            finished = sum(stage.num_completed_tasks for stage in stages)
            self._counts[tag] = TaskCounts(done=finished, running=inflight_tasks)
