"""Topics as streams: the contents of a checkpoint, and their use after a restart."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.integration.spark_topics import Lake, ReadRow, consumed, fill, offsets_of, rows_of
from tests.support.clusters import (
    BASE,
    Cluster,
    create,
    folder_storage,
    fresh_topic,
    one_broker,
    running_cluster,
    shared_storage,
)
from tests.support.segment_keys import KEYED, PRIVATE, PUBLIC
from tests.support.servers import PostgresServer, S3Server
from tests.support.spark import SharedSpark, activate

from stratalog.control.plane import ControlPlane
from stratalog.objects.store import ObjectStore
from stratalog.pipeline.hosting.session import OpenSpark
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.key_ring import KeyRing

pytestmark = pytest.mark.timeout(300)

START_SECONDS = 200.0


@dataclass(frozen=True)
class Place:
    cluster: Cluster
    lake: Lake

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def topic(self, name: str = "stream", *, count: int = 0, partitions: int = 1) -> str:
        topic = create(self.cluster, fresh_topic(name), partitions=partitions)
        if count:
            fill(self.bootstrap, topic, count)
        return topic

    def add_partitions(self, topic: str, total: int) -> None:
        admin = self._admin()
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)

    def delete_records(self, topic: str, before: int) -> None:
        admin = self._admin()
        [done] = admin.delete_records([TopicPartition(topic, 0, before)]).values()
        done.result(30)

    def delete_topic(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(30)

    def noted(self, topic: str, *offsets: int) -> dict[str, Any]:
        """As a checkpoint has them, partition by partition."""

        async def ask(control: ControlPlane, _: ObjectStore) -> UUID:
            [found] = await control.topics.named([topic])
            return found.id

        numbered = {str(partition): offset for partition, offset in enumerate(offsets)}
        return {"@ids": {topic: str(self.lake.run(ask))}, topic: numbered}

    def _admin(self) -> AdminClient:
        """The caller must keep it until the answer has come, because its requests end with it."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("streams")
    settings = replace(BASE, storage=folder_storage(folder))
    with one_broker(folder, base=settings) as cluster:
        yield Place(cluster, Lake.of(settings, folder))


@dataclass
class Run:
    """Run a query once, over all records that existed when it began."""

    batches: dict[int, list[ReadRow]] = field(default_factory=dict)
    progress: list[dict[str, Any]] = field(default_factory=list)

    @property
    def rows(self) -> list[ReadRow]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    def offsets(self, end: str = "endOffset") -> list[Any]:
        """Of the batches that had rows, as the progress report tells them."""
        sources = [report["sources"][0] for report in self.progress if report["numInputRows"]]
        return [_parsed(source[end]) for source in sources]


def _parsed(offset: Any) -> Any:
    return json.loads(offset) if isinstance(offset, str) else offset


@dataclass(frozen=True)
class Query:
    spark: SparkSession
    config: Path
    checkpoint: Path
    options: dict[str, str]

    def run(self, meanwhile: Callable[[int], None] = lambda batch: None, **options: str) -> Run:
        run = Run()

        def take(frame: DataFrame, batch: int) -> None:
            run.batches[batch] = rows_of(frame)
            meanwhile(batch)

        stream = self.spark.readStream.format("stratalog").option("config", str(self.config))
        query = (
            stream.options(**{"startingOffsets": "earliest", **self.options, **options})
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            run.progress = [json.loads(report.json) for report in query.recentProgress]
        return run

    def follow(self, until: Callable[[Run], bool]) -> Run:
        """A query that goes on and on, until it has done enough."""
        run = Run()

        def take(frame: DataFrame, batch: int) -> None:
            run.batches[batch] = rows_of(frame)

        stream = self.spark.readStream.format("stratalog").option("config", str(self.config))
        writer = stream.options(**self.options).load().writeStream.foreachBatch(take)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        try:
            deadline = time.monotonic() + START_SECONDS
            while not until(run):
                assert time.monotonic() < deadline, "the query does not go on"
                query.awaitTermination(1)
        finally:
            query.stop()
        return run

    def offset_log(self) -> list[str]:
        """Return our offsets in the checkpoint, batch by batch."""
        files = (self.checkpoint / "offsets").glob("[0-9]*")
        return [file.read_text().splitlines()[2] for file in sorted(files, key=_number)]

    def forget_ids(self) -> None:
        """As if an earlier version had made the checkpoint."""
        for file in (self.checkpoint / "offsets").glob("[0-9]*"):
            *before, offsets = file.read_text().splitlines()
            document = {key: at for key, at in json.loads(offsets).items() if key != "@ids"}
            file.write_text("\n".join([*before, json.dumps(document)]))
            (file.parent / f".{file.name}.crc").unlink(missing_ok=True)

    def forget_all_but_the_first_plan(self) -> None:
        """As if the process had died in its first batch."""
        logs = [*(self.checkpoint / "commits").iterdir(), *(self.checkpoint / "offsets").iterdir()]
        for file in logs:
            if file.parent.name == "commits" or file.name not in ("0", ".0.crc"):
                file.unlink()

    def forget_last_commit(self) -> int:
        """As if the process had died before it could note that the batch was done."""
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=_number)
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
        return _number(last)


def _number(file: Path) -> int:
    return int(file.name)


@pytest.fixture
def query(local_spark: OpenSpark, place: Place, tmp_path: Path) -> Callable[..., Query]:
    def made(topic: str | None = None, **options: str) -> Query:
        given = {"topic": topic, **options} if topic is not None else options
        return Query(local_spark.session, place.lake.config, tmp_path / "checkpoint", given)

    return made


Queries = Callable[..., Query]


def test_a_stream_takes_limited_batches_in_proportion_to_the_lag(
    query: Queries, place: Place
) -> None:
    topic = place.topic(partitions=2, count=90)
    fill(place.bootstrap, topic, 30, partition=1)
    asked = query(topic, maxOffsetsPerTrigger="40")
    during: list[int] = []
    run = asked.run(lambda _: during.append(leases(place)))
    assert during == [1, 1, 1], "a batch ends the leases of those before it"
    await_no_lease(place)
    assert [len(rows) for _, rows in sorted(run.batches.items())] == [40, 40, 40]
    first = {"@start": place.noted(topic, 0, 0), **place.noted(topic, 30, 10)}
    assert run.offsets() == [first, place.noted(topic, 60, 20), place.noted(topic, 90, 30)]
    assert run.offsets("latestOffset") == [{topic: {"0": 90, "1": 30}}] * 3
    assert asked.offset_log()[0] == json.dumps(first)
    wanted = [
        *consumed(place.bootstrap, topic, 90, 0),
        *consumed(place.bootstrap, topic, 30, 1),
    ]
    assert sorted(run.rows, key=lambda row: row[:3]) == wanted


def test_a_batch_that_is_repeated_has_the_same_rows_from_another_tier(
    query: Queries, place: Place
) -> None:
    topic = place.topic(count=60)
    asked = query(topic, maxOffsetsPerTrigger="25")
    first = asked.run()
    repeated = asked.forget_last_commit()
    fill(place.bootstrap, topic, 10, first=60)
    place.lake.convert(topic)
    second = asked.run()
    assert second.batches[repeated] == first.batches[repeated]
    assert offsets_of(second.rows) == list(range(50, 70))
    assert second.offsets("startOffset") == [place.noted(topic, 50), place.noted(topic, 60)]


def test_a_query_begins_once_at_the_end_of_a_topic_that_grows(query: Queries, place: Place) -> None:
    topic = place.topic(count=20)
    asked = query(topic)
    written, over = 20, threading.Event()

    def write() -> None:
        nonlocal written
        while not over.wait(0.02):
            fill(place.bootstrap, topic, 5, first=written)
            written += 5

    writing = threading.Thread(target=write)
    writing.start()
    try:
        run = asked.follow(lambda run: len(run.rows) >= 50)
    finally:
        over.set()
        writing.join()
    first = offsets_of(run.rows)[0]
    assert first >= 20
    assert offsets_of(run.rows) == list(range(first, first + len(run.rows)))
    began = json.loads(asked.offset_log()[0])["@start"][topic]["0"]
    assert began <= first

    asked.forget_all_but_the_first_plan()
    again = asked.run(startingOffsets="latest")
    assert again.batches[0] == run.batches[0]
    assert offsets_of(again.rows) == list(range(began, written))


def test_data_moves_down_while_a_query_runs(query: Queries, place: Place) -> None:
    topic = place.topic(count=80)
    asked = query(topic, maxOffsetsPerTrigger="20", minPartitions="3")

    def move(batch: int) -> None:
        place.lake.convert(topic, up_to=20 * (batch + 1) + 10)
        fill(place.bootstrap, topic, 10, first=80 + 10 * batch)

    run = asked.run(move)
    assert run.rows == consumed(place.bootstrap, topic, 80)
    assert run.offsets("latestOffset")[-1][topic]["0"] > 80


def test_new_topics_and_partitions_are_read_from_their_beginning(
    query: Queries, place: Place
) -> None:
    mark = uuid4().hex[:8]
    first = place.topic(f"{mark}-a", count=10)
    asked = query(subscribePattern=f"{mark}-.*", startingOffsets="latest")
    assert asked.run().rows == []
    place.add_partitions(first, 2)
    fill(place.bootstrap, first, 10, partition=1)
    second = place.topic(f"{mark}-b", count=10)
    found = sorted(row[:3] for row in asked.run().rows)
    assert found == [(t, p, n) for t, p in ((first, 1), (second, 0)) for n in range(10)]


def test_what_was_deleted_stops_a_query_unless_told_otherwise(query: Queries, place: Place) -> None:
    topic, gone = place.topic(count=30), place.topic("gone", count=10)
    asked = query(subscribe=f"{topic},{gone}", maxOffsetsPerTrigger="10")
    asked.run()
    fill(place.bootstrap, topic, 30, first=30)
    place.delete_records(topic, 45)
    with pytest.raises(StreamingQueryException) as caught:
        asked.run()
    assert "begins at 45, and 30 was to be read next" in str(caught.value)
    assert '"failOnDataLoss" to false' in str(caught.value)
    place.delete_topic(gone)
    rows = asked.run(failOnDataLoss="false").rows
    assert [(row.topic, row.offset) for row in rows] == [(topic, n) for n in range(45, 60)]


def test_a_topic_that_was_made_anew_is_another_one(query: Queries, place: Place) -> None:
    topic = place.topic(count=20)
    asked = query(topic)
    assert len(asked.run().rows) == 20
    place.delete_topic(topic)
    create(place.cluster, topic)
    fill(place.bootstrap, topic, 30)
    with pytest.raises(StreamingQueryException) as caught:
        asked.run()
    assert f"topic '{topic}' was deleted and created again" in str(caught.value)
    assert '"failOnDataLoss" to false' in str(caught.value)
    rows = asked.run(failOnDataLoss="false").rows
    assert rows == consumed(place.bootstrap, topic, 30)
    assert asked.run().batches == {}
    assert json.loads(asked.offset_log()[-1]) == place.noted(topic, 30)


def test_a_checkpoint_without_ids_goes_on_and_makes_no_batches_of_nothing(
    query: Queries, place: Place
) -> None:
    topic = place.topic(count=20)
    asked = query(topic)
    asked.run()
    asked.forget_ids()
    known = asked.offset_log()
    assert asked.run().batches == {}
    assert asked.offset_log() == known
    fill(place.bootstrap, topic, 10, first=20)
    assert offsets_of(asked.run().rows) == list(range(20, 30))
    assert json.loads(asked.offset_log()[-1]) == place.noted(topic, 30)


def test_a_misspelt_topic_is_told_at_the_start(query: Queries) -> None:
    with pytest.raises(StreamingQueryException, match="there is no topic 'nonsense'"):
        query("nonsense").run()


def test_settings_that_are_not_there_are_told_and_nothing_else(query: Queries) -> None:
    with pytest.raises(StreamingQueryException) as caught:
        query("orders").run(config="/no/such.toml")
    assert "/no/such.toml: there is no such settings file" in str(caught.value)
    assert "UnboundLocalError" not in str(caught.value)


def await_no_lease(place: Place) -> None:
    """A query ends a moment before its reader gets to know."""
    deadline_s = time.monotonic() + 30
    while leases(place):
        assert time.monotonic() < deadline_s, "a query that ended keeps its last lease"
        time.sleep(0.05)


def leases(place: Place) -> int:
    file = place.lake.settings.storage.control.removeprefix("sqlite:")
    with closing(sqlite3.connect(file)) as database:
        [[count]] = database.execute("select count(*) from leases")
    return int(count)


KILLED = """
import sys
from pathlib import Path
from stratalog.spark import open_session

config, topic, checkpoint, out = sys.argv[1:]
spark = open_session("local[2]")

def take(frame, batch):
    rows = "".join(f"{row.offset} {bytes(row.value or b'').hex()}\\n" for row in frame.collect())
    part = Path(out, f"{batch}.part")
    part.write_text(rows)
    part.rename(Path(out, str(batch)))

stream = spark.readStream.format("stratalog").option("config", config).option("topic", topic)
stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "10").load() \\
    .select("offset", "value").writeStream.foreachBatch(take) \\
    .option("checkpointLocation", checkpoint).start().awaitTermination()
"""


def test_a_query_whose_process_was_killed_loses_and_repeats_nothing(
    query: Queries, place: Place, tmp_path: Path
) -> None:
    topic = place.topic(count=200)
    asked = query(topic, maxOffsetsPerTrigger="50")
    out = tmp_path / "out"
    out.mkdir()
    arguments = [place.lake.config, topic, asked.checkpoint, out]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, *map(str, arguments)], start_new_session=True
    )
    try:
        wait_for(out / "2", process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    rest = asked.run()
    before = {
        int(file.name): file.read_text() for file in out.glob("[0-9]*") if file.stem == file.name
    }
    after = {
        batch: "".join(f"{row.offset} {(row.value or b'').hex()}\n" for row in rows)
        for batch, rows in rest.batches.items()
    }
    assert all(before[batch] == after[batch] for batch in before.keys() & after.keys())
    everything = before | after
    lines = "".join(everything[batch] for batch in sorted(everything)).splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(200))


def wait_for(file: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not file.exists():
        assert process.poll() is None, "the query ended by itself"
        assert time.monotonic() < deadline, f"{file.name} does not come"
        time.sleep(0.05)


def test_secrets_are_in_no_plan_no_log_no_checkpoint_and_no_error(
    local_spark: OpenSpark,
    shared_spark: SharedSpark,
    postgres_server: PostgresServer,
    s3_server: S3Server,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    dsn = postgres_server.create_database()
    # The server trusts every client, and an unused password is still a secret.
    secret_dsn = dsn.replace("@", ":hush-hush@", 1)
    settings = replace(BASE, storage=shared_storage(secret_dsn, s3_server), remote=KEYED)
    lake = Lake.of(settings, tmp_path)
    with running_cluster([settings]) as cluster:
        create(cluster, "orders")
        create(cluster, "copies")
        fill(cluster.bootstrap, "orders", 30)
    keys = KeyRing.load({"k": PUBLIC}, {"k": PRIVATE}, "k")
    lake.convert("orders", up_to=20, encoding=Encoding(encrypt=True), keys=keys)
    spark = local_spark.session
    asked = Query(spark, lake.config, tmp_path / "checkpoint", {"topic": "orders"})
    assert offsets_of(asked.run().rows) == list(range(30))
    reader = spark.read.format("stratalog").option("config", str(lake.config))
    frame = reader.option("topic", "orders").load()
    assert frame.count() == 30
    frame.explain(True)
    told = [capfd.readouterr().out]
    activate(spark)
    writer = frame.select("key", "value").write.format("stratalog").mode("append")
    writer = writer.options(config=str(lake.config), topic="copies", sinkId="copies")
    writer.save()
    lake.run(delete_objects)
    asked.forget_last_commit()
    missing = reader.option("topic", "x").load().collect
    for broken in (frame.collect, asked.run, missing, writer.option("batchId", "1").save):
        with pytest.raises(PySparkException) as caught:
            broken()
        told.append(str(caught.value))
    assert local_spark.log_file is not None
    files = [
        local_spark.log_file,
        *(path for path in asked.checkpoint.rglob("*") if path.is_file()),
        *(path for path in shared_spark.events.rglob("*") if path.is_file()),
    ]
    told += [file.read_bytes().decode(errors="replace") for file in files]
    events = [file.read_text() for file in shared_spark.events.rglob("*") if file.is_file()]
    assert any("stratalog" in text for text in events), "the events tell of our plans"
    secrets = [s3_server.secret_key, "hush-hush", *PRIVATE.read_text().splitlines()[1:-1]]
    for secret in secrets:
        assert not [text for text in told if secret in text]
    postgres_server.drop_database(dsn)


async def delete_objects(control: ControlPlane, store: ObjectStore) -> None:
    keys = [entry.key async for entry in store.list("")]
    await store.delete(keys)
