"""How long the jobs of a run may wait for executors. Pure.

A cluster without a free core takes a job all the same, and lets it wait for as long as it may be.
One job that waits while tasks of another run has its turn still to come. Only if Spark works on
none of them does it give nothing.
"""

from collections.abc import Mapping
from typing import NamedTuple

from stratalog.pipeline.hosting.job_progress import TaskCounts


class JobLook(NamedTuple):
    tasks: int
    counts: TaskCounts | None
    """None if Spark does not tell."""

    @property
    def waits(self) -> bool:
        """Whether some of its tasks have to start, and none runs."""
        counts = self.counts
        return counts is not None and not counts.running and counts.done < self.tasks


class ExecutorWait:
    def __init__(self, *, longest_s: float, now_s: float) -> None:
        self._longest_s = longest_s
        self._since_s = now_s
        self._before: Mapping[str, JobLook] = {}

    def is_over(self, jobs: Mapping[str, JobLook], now_s: float) -> bool:
        """Whether none of the jobs has had a task that ran, or ended, for too long."""
        if jobs != self._before or not jobs or not all(job.waits for job in jobs.values()):
            self._since_s = now_s
        self._before = jobs
        return now_s - self._since_s >= self._longest_s
