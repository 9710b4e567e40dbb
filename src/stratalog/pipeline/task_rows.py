"""Tasks as the rows of a Spark plan, what executors do with a row, and their answers as rows.

A row is a number and packed bytes, and so is an answer. The workplace, which may hold
credentials, is no part of a row: it is packed into the function that Spark ships.
"""

import gc
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias

import pyarrow as pa
import zstandard

from stratalog.control.model import Coordinates
from stratalog.pipeline.tasks import Task, TaskDone, Workplace

RunTask: TypeAlias = Callable[[Task, Workplace], TaskDone]
RowFunction: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

ROW_SCHEMA = "number int, body binary"


def plan_table(tasks: Sequence[Task]) -> pa.Table:
    return pa.Table.from_batches(
        [_batch(range(len(tasks)), [pack(task) for task in tasks])], schema=_arrow_schema()
    )


def row_function(run_task: RunTask, workplace: Workplace) -> RowFunction:
    """What runs on the executors, for `mapInArrow`. Stratalog itself is not in it: they need it."""
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
    """The answers by the number of their task."""
    return {row["number"]: unpack(bytes(row["body"])) for row in rows}


def pack(value: object) -> bytes:
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
    # Of rows a task has thousands, and a dataclass takes its time to be packed by itself.
    pickler.dispatch_table = {Coordinates: _reduced}
    pickler.dump(value)
    return zstandard.compress(buffer.getbuffer())


def unpack(body: bytes) -> Any:
    return pickle.loads(zstandard.decompress(body))


_FIELDS = tuple(field.name for field in fields(Coordinates))
_values_of = attrgetter(*_FIELDS)


def _row_of(*values: Any) -> Coordinates:
    return Coordinates(**dict(zip(_FIELDS, values, strict=True)))


def _reduced(row: Coordinates) -> tuple[Callable[..., Coordinates], tuple[Any, ...]]:
    return _row_of, _values_of(row)


@cache
def settle_worker() -> None:
    """Spark collects garbage after every task. Once per worker, what is there by now (mostly
    imports) is taken out of that: measured, it halves the cost of a small task."""
    gc.collect()
    gc.freeze()


def _batch(numbers: Iterable[int], bodies: Iterable[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers, pa.int32()), pa.array(bodies, pa.binary())], schema=_arrow_schema()
    )


@cache
def _arrow_schema() -> pa.Schema:
    return pa.schema([("number", pa.int32()), ("body", pa.binary())])
