"""A Spark session that runs its plans in the calling thread, and a listener that records."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from tests.unit.pipeline.spark_tasks import words_of

from stratalog.pipeline.hosting.job_progress import TaskCounts
from stratalog.pipeline.jobs import Bin
from stratalog.pipeline.plan.tasks import Effort, Task, TaskDone
from stratalog.pipeline.workplace import Workplace


class FakeRow(dict[str, Any]):
    def asDict(self) -> dict[str, Any]:  # noqa: N802
        return self


class FakeSpark:
    """A session whose plans run in the calling thread, and its jobs."""

    def __init__(self, lose: Sequence[int] = ()) -> None:
        self.cancelled = threading.Event()
        self.tags: list[str] = []
        self.lose = lose

    def createDataFrame(self, table: pa.Table) -> "FakeSpark":  # noqa: N802
        frame = FakeSpark(self.lose)
        frame.batches = table.to_batches()
        return frame

    batches: Sequence[pa.RecordBatch] = ()
    function: Callable[..., Any]

    def mapInArrow(self, function: Callable[..., Any], schema: str) -> "FakeSpark":  # noqa: N802
        self.function = function
        return self

    def collect(self) -> list[FakeRow]:
        rows = [FakeRow(row) for out in self.function(self.batches) for row in out.to_pylist()]
        return [row for row in reversed(rows) if row["number"] not in self.lose]

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        self.tags.append(tag)
        yield

    def cancel(self, tag: str) -> None:
        assert tag in self.tags
        self.cancelled.set()

    def counts(self, tag: str) -> TaskCounts | None:
        return TaskCounts(done=0, running=1)


class Recorder:
    def __init__(self) -> None:
        self.calls: list[object] = []
        self.moved = asyncio.Event()

    def bin_started(self, work: Bin) -> None:
        self.calls.append("started")

    def bin_moved(self, work: Bin, counts: TaskCounts) -> None:
        self.calls.append(counts)
        self.moved.set()

    def bin_ended(self, work: Bin, *, failed: bool) -> None:
        self.calls.append("failed" if failed else "ended")


def echo(given: Task, workplace: Workplace) -> TaskDone:
    (number,) = words_of(given)
    return TaskDone(effort=Effort(requests=number))
