"""A task of a write dies when some of its rows are uploaded, and Spark starts it again."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from tests.support.sink_topics import TOPIC, SinkLake
from tests.support.spark import activate

import stratalog
from stratalog.pipeline.hosting.session import OpenSpark
from stratalog.scan.scan_stores import close_scan_stores
from stratalog.spark.sink_rows import GROUP_BYTES

pytestmark = pytest.mark.timeout(300)

EACH = 20
ROWS = 300
VALUE_BYTES = GROUP_BYTES // (ROWS - 2 * EACH)
"""All rows make a block, and a little more."""
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
WAIT_SECONDS = 60.0

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def dying(uploads: Path) -> Work:
    """Makes large rows of numbers. The first attempt dies as soon as a block is uploaded."""

    def made(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [b"%d" % number for batch in batches for number in batch["id"].to_pylist()]
        for place in range(0, len(numbers), EACH):
            some = numbers[place : place + EACH]
            values = [number.ljust(VALUE_BYTES, b".") for number in some]
            yield pa.RecordBatch.from_pydict({"key": some, "value": values})
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            deadline = time.monotonic() + WAIT_SECONDS
            while not any(path.is_file() for path in uploads.rglob("*")):
                assert time.monotonic() < deadline, "no block is uploaded"
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGKILL)

    return made


@pytest.fixture
def spark(local_spark: OpenSpark) -> Iterator[SparkSession]:
    """Hands a few rows at a time to the sink: all at once would come when all are made."""
    session = local_spark.session
    activate(session)
    session.conf.set(ARROW_ROWS, EACH)
    yield session
    session.conf.unset(ARROW_ROWS)


def test_an_attempt_that_dies_after_an_upload_is_repeated_and_each_row_is_there_once(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = SinkLake.make(tmp_path)
    work = dying(tmp_path / "objects" / "blocks")
    frame = spark.range(0, ROWS, 1, 1).mapInArrow(work, "key binary, value binary")
    options = lake.options(sinkId="attempts")
    frame.write.format("stratalog").options(**options).mode("append").save()
    table = stratalog.read(TOPIC, columns=["key"], settings=lake.settings).read_all()
    close_scan_stores()
    assert sorted(map(int, table["key"].to_pylist())) == list(range(ROWS))
    assert lake.leases() is None
    # Spark tells the sink that its rows have ended, also where they have not. The task has failed.
    assert lake.sweep() in (1, 2)
    assert lake.is_sound()
