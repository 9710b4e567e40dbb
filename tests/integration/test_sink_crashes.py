"""Writers of topics, cut off at every step, and run again: each row is there exactly once."""

import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.types import BinaryType, StructType, TimestampType
from tests.integration.spark_topics import Lake
from tests.support.clusters import shared_storage
from tests.support.servers import S3Server
from tests.support.sink_topics import SCHEMA, TOPIC, SinkLake, batches, once, values

from stratalog.clock import SystemClock
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.plane import ControlPlane
from stratalog.control.scans.errors import SinkBehindError, SinkRefusedError
from stratalog.control.topics.model import Topic
from stratalog.control.writers.errors import WriterEndedError
from stratalog.objects.store import ObjectStore
from stratalog.opening.errors import (
    MarkerMissingError,
    PrivateStoreError,
    WorkerStoreError,
    WrongStoreError,
)
from stratalog.settings import HOUR_MS, MINUTE_MS, Settings
from stratalog.spark.errors import OptionError, SinkError, SinkRowError
from stratalog.spark.sink import open_stream_writer, open_writer


@pytest.fixture
def lake(tmp_path: Path) -> SinkLake:
    return SinkLake.make(tmp_path)


def doomed(lake: SinkLake, moment: str) -> int:
    command = [sys.executable, "-m", "tests.integration.doomed_sink", str(lake.config), moment]
    return subprocess.run(command, timeout=60, check=False).returncode


@pytest.mark.parametrize(("moment", "there"), [("before", 0), ("after", 100)])
def test_a_write_whose_driver_dies_at_the_commit_is_run_again_and_done_once(
    lake: SinkLake, moment: str, there: int
) -> None:
    assert doomed(lake, moment) == -signal.SIGKILL
    assert sum(lake.high_watermarks()) == there
    lake.write(0, 100, sinkId="doomed")
    assert lake.read() == once(0, 100)


def test_a_task_that_dies_between_its_uploads_leaves_what_nobody_sees(lake: SinkLake) -> None:
    assert doomed(lake, "uploading") == -signal.SIGKILL
    assert len(lake.objects()) in (1, 2)
    assert sum(lake.high_watermarks()) == 0
    lake.write(0, 100, sinkId="doomed")
    assert lake.read() == once(0, 100)
    assert lake.is_sound()


def test_nothing_is_seen_before_the_commit(lake: SinkLake) -> None:
    writer = lake.writer()
    message = writer.write(iter(batches(0, 10)))
    assert len(lake.objects()) == 1
    assert sum(lake.high_watermarks()) == 0
    writer.commit([message])
    assert sum(lake.high_watermarks()) == 10


def test_an_attempt_that_lost_leaves_garbage_only(lake: SinkLake) -> None:
    """As after a speculative twin, or an executor that died after its upload."""
    writer = lake.writer(sinkId="s")
    writer.write(iter(batches(0, 50)))
    writer.commit([writer.write(iter(batches(0, 50))), writer.write(iter(batches(50, 60)))])
    assert lake.read() == once(0, 60)
    assert lake.sweep() == 1
    assert lake.is_sound()


def test_a_repeat_long_after_the_blocks_were_merged_and_deleted_changes_nothing(
    lake: SinkLake,
) -> None:
    lake.write(0, 100, sinkId="s", batchId="4")
    assert lake.merge_all() == 1
    assert lake.objects() == []
    lake.write(0, 100, sinkId="s", batchId="4")
    assert lake.read() == once(0, 100)
    assert lake.sweep() == 1
    assert lake.objects() == []
    assert lake.is_sound()


@pytest.mark.parametrize("sink", [{}, {"sinkId": "s"}])
def test_a_commit_that_took_effect_is_a_repeat_although_its_writer_was_ended(
    lake: SinkLake, sink: dict[str, str]
) -> None:
    writer = lake.writer(**sink)
    message = writer.write(iter(batches(0, 10)))
    for _ in range(2):
        writer.commit([message])
    assert lake.read() == once(0, 10)


@pytest.mark.parametrize("sink", [{}, {"sinkId": "s"}])
def test_a_write_that_was_given_up_is_committed_by_the_writer_of_the_next_try_only(
    lake: SinkLake, sink: dict[str, str]
) -> None:
    """Spark plans each try with a new writer. The ended one cannot come back."""
    first = lake.stream_writer(**sink)
    message = first.write(iter(batches(0, 10)))
    first.abort([message], 4)
    with pytest.raises(WriterEndedError):
        first.commit([message], 4)
    assert sum(lake.high_watermarks()) == 0
    again = lake.stream_writer(**sink)
    again.commit([again.write(iter(batches(0, 10)))], 4)
    assert lake.read() == once(0, 10)


def test_each_batch_of_a_sink_is_written_once_and_none_after_a_later_one(lake: SinkLake) -> None:
    for _ in range(2):
        lake.write(0, 10, sinkId="s", batchId="1")
    lake.write(10, 20, sinkId="s", batchId="2")
    with pytest.raises(SinkBehindError, match="'s' has taken batch 2 already, and this is batch 1"):
        lake.write(0, 10, sinkId="s", batchId="1")
    assert lake.read() == once(0, 20)


def test_sinks_do_not_know_of_each_other(lake: SinkLake) -> None:
    lake.write(0, 10, sinkId="one")
    lake.write(10, 20, sinkId="other")
    assert lake.read() == once(0, 20)


def test_without_a_sink_id_a_write_that_is_run_twice_is_written_twice(lake: SinkLake) -> None:
    lake.write(0, 10)
    lake.write(0, 10)
    assert lake.read() == Counter(2 * values(0, 10))


def test_a_batch_without_rows_is_noted_as_well(lake: SinkLake) -> None:
    lake.write(0, 0, sinkId="s", batchId="7")
    with pytest.raises(SinkBehindError):
        lake.write(0, 1, sinkId="s", batchId="6")


def test_uploads_outlive_the_sweeper_while_the_lease_lives(lake: SinkLake) -> None:
    writer = lake.writer()
    message = writer.write(iter(batches(0, 10)))
    assert lake.sweep() == 0
    writer.commit([message])
    assert lake.leases() is None
    assert lake.read() == once(0, 10)


def test_a_write_whose_uploads_were_swept_is_refused_as_a_whole(lake: SinkLake) -> None:
    writer = lake.stream_writer(sinkId="s")
    message = writer.write(iter(batches(0, 10)))
    assert lake.leases() is None
    assert lake.sweep() == 1
    with pytest.raises(BarredObjectError, match="write the batch again"):
        writer.commit([message], 0)
    writer.abort([message], 0)
    assert sum(lake.high_watermarks()) == 0
    again = lake.stream_writer(sinkId="s")
    again.commit([again.write(iter(batches(0, 10)))], 0)
    assert lake.read() == once(0, 10)


def test_a_stream_takes_leases_if_it_is_told_to_and_gives_them_back(lake: SinkLake) -> None:
    """Spark makes one writer for the tasks, and another for the commit."""
    writing = lake.stream_writer(leaseMs="1h")
    message = writing.write(iter(batches(0, 10)))
    assert lake.leases() is not None
    lake.stream_writer(leaseMs="1h").commit([message], 0)
    assert lake.leases() is None
    message = lake.stream_writer(leaseMs="1h").write(iter(batches(0, 10)))
    lake.stream_writer(leaseMs="1h").abort([message, None], 1)
    assert lake.leases() is None


def test_an_aborted_write_leaves_no_lease_and_nothing_to_see(lake: SinkLake) -> None:
    writer = lake.writer()
    message = writer.write(iter(batches(0, 10)))
    writer.abort([message, None])
    assert lake.leases() is None
    assert sum(lake.high_watermarks()) == 0
    assert lake.sweep() == 1


def test_a_write_that_is_refused_takes_no_lease(lake: SinkLake) -> None:
    with pytest.raises(SinkError, match=r"there is no topic 'other' in .*: create it first"):
        lake.writer(topic="other")
    with pytest.raises(OptionError, match="appended to"):
        open_writer(lake.options(), SCHEMA, overwrite=True)
    assert lake.leases() is None


def test_a_topic_that_is_read_only_is_refused(lake: SinkLake, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "control.db")) as database, database:
        database.execute("UPDATE partitions SET write_tier = 'local' WHERE partition = 1")
    with pytest.raises(SinkError, match="read-only until it is migrated"):
        lake.writer()


def open_at(settings: Settings, folder: Path) -> None:
    config = Lake.of(settings, folder).config
    open_writer({"topic": TOPIC, "config": str(config)}, SCHEMA, overwrite=False)


def test_a_store_of_another_cluster_is_refused(lake: SinkLake, tmp_path: Path) -> None:
    """No broker would read the blocks, and the other cluster's sweeper would delete them."""
    other = tmp_path / "other"
    other.mkdir()
    SinkLake.make(other)
    mixed = replace(lake.settings.storage, control=f"sqlite:{other / 'control.db'}")
    with pytest.raises(WrongStoreError, match="belongs to cluster"):
        open_at(replace(lake.settings, storage=mixed), other)


def test_a_store_without_a_marker_is_refused(lake: SinkLake, tmp_path: Path) -> None:
    """A folder that is not mounted, or a mistyped prefix: rows would be acknowledged and lost."""
    elsewhere = replace(lake.settings.storage, objects=f"file:{tmp_path / 'not mounted'}")
    with pytest.raises(
        MarkerMissingError, match=r"/not mounted has no stratalog.json.*check storage\.objects"
    ):
        open_at(replace(lake.settings, storage=elsewhere), tmp_path)
    assert lake.leases() is None


def test_a_store_in_memory_is_refused(lake: SinkLake, tmp_path: Path) -> None:
    private = replace(lake.settings.storage, objects="memory:")
    with pytest.raises(PrivateStoreError, match="no other process can reach it"):
        open_at(replace(lake.settings, storage=private), tmp_path)


def test_a_task_on_a_machine_without_the_store_is_refused(lake: SinkLake) -> None:
    """A folder that is not mounted there would take the uploads, and no reader would see them."""
    writer = pickle.loads(pickle.dumps(lake.writer()))
    objects = Path(lake.settings.storage.objects.removeprefix("file:"))
    objects.rename(objects.with_name("mounted elsewhere"))
    with pytest.raises(WorkerStoreError, match="is not this cluster's store on"):
        writer.write(iter(batches(0, 10)))
    assert not objects.exists()


def test_a_task_whose_answer_is_lost_fails_the_commit(lake: SinkLake) -> None:
    writer = lake.writer()
    message = writer.write(iter(batches(0, 10)))
    with pytest.raises(SinkError, match="lost the answer"):
        writer.commit([message, None])
    assert sum(lake.high_watermarks()) == 0


@pytest.mark.parametrize("sink", [{}, {"sinkId": "s"}])
def test_a_topic_that_goes_during_the_write_takes_all_of_it_along(
    lake: SinkLake, sink: dict[str, str]
) -> None:
    writer = lake.writer(**sink)
    message = writer.write(iter(batches(0, 10)))

    async def make_anew(control: ControlPlane, _: ObjectStore) -> Topic:
        [found] = await control.topics.named([TOPIC])
        await control.topics.delete(found.id)
        return await control.topics.create(TOPIC, partition_count=2, configs={})

    lake.run(make_anew)
    with pytest.raises(SinkRefusedError, match="does not exist"):
        writer.commit([message])
    assert sum(lake.high_watermarks()) == 0


def test_a_bad_row_is_counted_over_all_that_a_task_gets(lake: SinkLake) -> None:
    many = [*batches(0, 10), *batches(10, 20)]
    noise = pa.array([os.urandom(1100 * 1024)])
    large = pa.RecordBatch.from_arrays([pa.array([b"key"]), noise], ["key", "value"])
    with pytest.raises(SinkRowError, match=r"row 20: its batch for orders-1 has 11264\d\d bytes"):
        lake.writer().write(iter([*many, large]))


TIMED = StructType().add("value", BinaryType()).add("timestamp", TimestampType())


def timed(*times_ms: int) -> pa.RecordBatch:
    micros = pa.array([1000 * time_ms for time_ms in times_ms], pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_pydict({"value": [b"x"] * len(times_ms), "timestamp": micros})


def timed_writer(lake: SinkLake, **options: str) -> DataSourceStreamArrowWriter:
    return open_stream_writer(lake.options(**options), TIMED, overwrite=False)


def take_records_of(lake: SinkLake, age_ms: int) -> None:
    """From now on the topic refuses older records."""

    async def change(control: ControlPlane, _: ObjectStore) -> None:
        [topic] = await control.topics.named([TOPIC])
        configs = {"message.timestamp.before.max.ms": str(age_ms)}
        await control.topics.set_configs(topic.id, configs)

    lake.run(change)


def test_rows_that_are_too_old_by_now_are_refused_unless_they_were_written(lake: SinkLake) -> None:
    old_ms = SystemClock().now_ms() - HOUR_MS
    writer = timed_writer(lake, sinkId="s")
    writer.commit([writer.write(iter([timed(old_ms)]))], 1)
    take_records_of(lake, MINUTE_MS)
    again = timed_writer(lake, sinkId="s")
    again.commit([again.write(iter([timed(old_ms)]))], 1)
    late = timed_writer(lake, sinkId="s")
    message = late.write(iter([timed(old_ms + HOUR_MS), timed(old_ms + HOUR_MS, old_ms)]))
    with pytest.raises(SinkRowError, match=rf"row 2: timestamp {old_ms} ms is outside"):
        late.commit([message], 2)
    late.abort([message], 2)
    assert sum(lake.high_watermarks()) == 1
    timely = timed_writer(lake, sinkId="s")
    timely.commit([timely.write(iter([timed(old_ms + HOUR_MS)]))], 2)
    assert sum(lake.high_watermarks()) == 2


def test_without_a_sink_id_rows_that_are_too_old_are_refused_at_once(lake: SinkLake) -> None:
    take_records_of(lake, MINUTE_MS)
    old_ms = SystemClock().now_ms() - HOUR_MS
    with pytest.raises(SinkRowError, match=rf"row 0: timestamp {old_ms} ms is outside"):
        timed_writer(lake).write(iter([timed(old_ms)]))
    assert lake.objects() == []


def test_a_streams_batch_that_has_grown_since_it_was_written_is_a_repeat(lake: SinkLake) -> None:
    """It was joined with a table that has one row more by now."""
    for batch, end in ((6, 90), (7, 100), (7, 101)):
        writer = lake.stream_writer(sinkId="s")
        writer.commit([writer.write(iter(batches(0, end)))], batch)
    assert sum(lake.high_watermarks()) == 190


def test_secrets_of_the_store_travel_in_the_writer_and_those_of_the_database_nowhere(
    tmp_path: Path, postgres_dsn: str, s3_server: S3Server
) -> None:
    storage = shared_storage(postgres_dsn, s3_server)
    lake = SinkLake.make(tmp_path, storage)
    writer = lake.writer(sinkId="s")
    message = writer.write(iter(batches(0, 10)))
    secret = storage.object_options["secret_access_key"]
    assert secret.encode() in pickle.dumps(writer)
    assert secret not in repr(vars(writer))
    assert secret.encode() not in pickle.dumps(message)
    for pickled in (pickle.dumps(writer), pickle.dumps(message)):
        assert postgres_dsn.encode() not in pickled
    writer.commit([message])
    assert sum(lake.high_watermarks()) == 10
    assert lake.is_sound()


def test_writers_come_back_from_executors_as_they_went(lake: SinkLake) -> None:
    writer = pickle.loads(pickle.dumps(lake.writer(sinkId="s")))
    messages = [pickle.loads(pickle.dumps(writer.write(iter(batches(0, 10)))))]
    pickle.loads(pickle.dumps(writer)).commit(messages)
    assert lake.read() == once(0, 10)
