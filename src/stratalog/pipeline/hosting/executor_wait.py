"""The limit on the time that the jobs of a run wait for executors. Pure.

A cluster without a free core takes a job all the same, and lets it wait without a limit. A job that
waits while tasks of another job run will have its turn. Spark gives no executors only if it works
on none of the jobs.
"""

from collections.abc import Mapping
from typing import NamedTuple

from stratalog.pipeline.hosting.job_progress import TaskCounts


class JobLook(NamedTuple):
    tasks: int
    counts: TaskCounts | None
    """None if Spark does not say."""

    @property
    def waits(self) -> bool:
        """True if some of its tasks have yet to start, and none runs."""
        counts = self.counts
        return counts is not None and not counts.running and counts.done < self.tasks


class ExecutorWait:
    def __init__(self, *, longest_s: float, now_s: float) -> None:
        self._longest_s = longest_s
        self._since_s = now_s
        self._before: Mapping[str, JobLook] = {}

    def is_over(self, jobs: Mapping[str, JobLook], now_s: float) -> bool:
        """Tell whether no task of the jobs has run, or ended, for too long."""
        if jobs != self._before or not jobs or not all(job.waits for job in jobs.values()):
            self._since_s = now_s
        self._before = jobs
        return now_s - self._since_s >= self._longest_s
