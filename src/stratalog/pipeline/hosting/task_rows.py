"""Tasks as the rows of a Spark plan, the function that executors call with a row, and its answers.

A row is a number and a pickled task, which names its kind. An answer is a row, too. The workplace,
which may hold credentials, is no part of a row: it is packed into the function that Spark ships.
"""

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import pyarrow as pa
import zstandard

from stratalog.pipeline.plan.tasks import Task, TaskDone
from stratalog.pipeline.workplace import Workplace

RunTask: TypeAlias = Callable[[Task, Workplace], TaskDone]
RowFunction: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

ROW_SCHEMA = "number int, body binary"


def plan_table(tasks: Sequence[Task]) -> pa.Table:
    return pa.Table.from_batches(
        [_batch(range(len(tasks)), [pack(task) for task in tasks])], schema=_arrow_schema()
    )


def row_function(run_task: RunTask, workplace: Workplace) -> RowFunction:
    """Return the function for `mapInArrow`. Executors must have Stratalog, which is not shipped."""
    packed_workplace = pack(workplace)

    def run_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_worker()
        place: Workplace = unpack(packed_workplace)
        for batch in batches:
            for row in batch.to_pylist():
                done = run_task(unpack(row["body"]), place)
                yield _batch([row["number"]], [pack(done)])

    return run_rows


def answers(rows: Iterable[Mapping[str, Any]]) -> dict[int, TaskDone]:
    """Return the answers by the number of their task."""
    return {row["number"]: unpack(bytes(row["body"])) for row in rows}


def pack(value: object) -> bytes:
    return zstandard.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def unpack(body: bytes) -> Any:
    return pickle.loads(zstandard.decompress(body))


@cache
def settle_worker() -> None:
    """Take the objects that exist by now, mostly imports, out of the garbage collection for good.

    Spark collects garbage after every task. Measured, this halves the cost of a small task.
    """
    gc.collect()
    gc.freeze()


def _batch(numbers: Iterable[int], bodies: Iterable[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers, pa.int32()), pa.array(bodies, pa.binary())], schema=_arrow_schema()
    )


@cache
def _arrow_schema() -> pa.Schema:
    return pa.schema([("number", pa.int32()), ("body", pa.binary())])
