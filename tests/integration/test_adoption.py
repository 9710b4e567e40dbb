"""Adopting a topic of Kafka: the plugin's own objects, the command, and real clients afterwards."""

import asyncio
import json
import subprocess
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from kio.schema.errors import ErrorCode
from tests.compat.aiokafka_client import AiokafkaClient
from tests.compat.client import Client
from tests.compat.clusters import BASE, folder_storage, running_cluster
from tests.compat.confluent_client import ConfluentClient
from tests.compat.message import Message
from tests.compat.wire import connected
from tests.golden_topic import (
    ADDED,
    END,
    FIRST,
    GOLDEN_RECORDS,
    KEY_SETTING,
    OPEN_PRODUCER,
    PARTITION,
    lay_out,
    lay_out_overlapping,
    metadata_values,
    write_dump,
)
from tests.servers import S3Server
from tests.unit.segment.layout_golden import (
    KEY_BASE,
    MODES,
    PLAIN,
    PREFIX,
    PRIVATE_PEM,
    TOPIC,
    TOPIC_ID,
    Mode,
)
from typer.testing import CliRunner, Result

from stratalog.batch.build import build_batch
from stratalog.batch.records import Record
from stratalog.cli.main import app
from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import SegmentState
from stratalog.ids import PartitionIndex, ProducerId, TopicPartition, kafka_base64
from stratalog.janitor.deletion import purge_topics
from stratalog.janitor.segments import delete_doomed
from stratalog.objects.open import open_store
from stratalog.segment.keys import SUFFIXES
from stratalog.segment.remote_log_metadata import (
    METADATA_TOPIC,
    SegmentAdded,
    SegmentUpdated,
    decode_record,
    encode_record,
    metadata_partition,
)
from stratalog.segment.stores import SegmentStores
from stratalog.settings import RemoteSettings, Settings

T = TypeVar("T")

CLIENTS: list[Client] = [ConfluentClient(), AiokafkaClient()]
KEYED = RemoteSettings(private_keys={"key1": str(PRIVATE_PEM)})


@dataclass(frozen=True)
class Place:
    """A cluster in a folder, with a broker that runs, and the commands of its operator."""

    folder: Path
    settings: Settings
    bootstrap: str

    def try_(self, *arguments: str, answer: str = "") -> Result:
        runner = CliRunner(env={"NO_COLOR": "1", "STRATALOG_BOOTSTRAP": self.bootstrap})
        options = ["--data", str(self.folder), "--set", KEY_SETTING]
        return runner.invoke(app, [*arguments, *options], input=answer)

    def __call__(self, *arguments: str) -> str:
        result = self.try_(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def wire(self, *arguments: str) -> str:
        """A command that asks the broker alone."""
        runner = CliRunner(env={"NO_COLOR": "1", "STRATALOG_BOOTSTRAP": self.bootstrap})
        result = runner.invoke(app, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def run(self, work: Callable[[ControlPlane], Awaitable[T]]) -> T:
        async def opened() -> T:
            control = await open_control_plane(self.settings.storage.control)
            try:
                return await work(control)
            finally:
                await control.close()

        return asyncio.run(opened())


@contextmanager
def running(folder: Path, **changes: Any) -> Iterator[Place]:
    settings = replace(BASE, storage=folder_storage(folder), remote=KEYED, **changes)
    with running_cluster([settings]) as cluster:
        yield Place(folder, settings, cluster.bootstrap)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with running(tmp_path / "cluster") as place:
        yield place


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "dump.jsonl", metadata_values())


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    """Where the plugin has left its objects, neither compressed nor encrypted."""
    lay_out(tmp_path / "tiered", PLAIN)
    return tmp_path / "tiered"


def import_arguments(dump: Path, objects: str | Path, *more: str) -> list[str]:
    where = objects if isinstance(objects, str) else f"file:{objects}"
    return [
        *("segments", "import", TOPIC, "--dump", str(dump), "--sealed"),
        *("--kafka-objects", where, "--key-prefix", PREFIX, "--accept-open-transactions", *more),
    ]


def read_all(client: Client, bootstrap: str, topic: str = TOPIC) -> list[tuple[Any, ...]]:
    read = client.read(
        bootstrap, topic, count=len(GOLDEN_RECORDS), partition=PARTITION, start=FIRST
    )
    return [(one.offset, one.timestamp_ms, one.key, one.value) for one in read]


def described(place: Place) -> dict[str, Any]:
    return partitions(place)[PARTITION]


def partitions(place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(place("topic", "describe", TOPIC, "--json"))[
        "partitions"
    ]
    return found


# What is adopted.


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_clients_read_what_kafka_wrote_in_every_mode(
    place: Place, tmp_path: Path, dump: Path, mode: Mode
) -> None:
    lay_out(tmp_path / "tiered", mode)
    said = place(*import_arguments(dump, tmp_path / "tiered"))
    assert "Adopted topic1 (lZ6vvmajTWKDBUTV6SQAtQ): 8 partitions, 1 segment, 756,200 bytes" in said
    for client in CLIENTS:
        assert read_all(client, place.bootstrap) == GOLDEN_RECORDS
    [inside] = AiokafkaClient().read(
        place.bootstrap, TOPIC, count=1, partition=PARTITION, start=7777
    )
    assert (inside.offset, inside.value) == (7777, GOLDEN_RECORDS[2777][3])


def test_objects_in_s3_are_read_where_they_lie(
    tmp_path: Path, dump: Path, s3_server: S3Server, s3_url: str
) -> None:
    lay_out(tmp_path / "tiered", PLAIN)
    asyncio.run(copy_to(s3_url, s3_server, tmp_path / "tiered"))
    storage = replace(
        folder_storage(tmp_path),
        objects=s3_server.fresh_url(),
        object_options=dict(s3_server.options),
    )
    settings = tmp_path / "stratalog.toml"
    options = "\n".join(f'{name} = "{value}"' for name, value in s3_server.options.items())
    settings.write_text(
        f'[storage]\nobjects = "{storage.objects}"\ncontrol = "{storage.control}"\n'
        f"[storage.object_options]\n{options}\n"
    )
    with running_cluster([replace(BASE, storage=storage)]) as cluster:
        arguments = [*import_arguments(dump, s3_url), "--config", str(settings)]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        assert read_all(ConfluentClient(), cluster.bootstrap) == GOLDEN_RECORDS


async def copy_to(url: str, server: S3Server, folder: Path) -> None:
    store = open_store(url, server.options, clock=SystemClock())
    for suffix in SUFFIXES:
        await store.put(KEY_BASE + suffix, [(folder / (KEY_BASE + suffix)).read_bytes()])
    await store.close()


def test_segments_that_begin_inside_their_predecessor_are_read_once(
    place: Place, tmp_path: Path
) -> None:
    """Two leaders that rolled their logs at different offsets leave such segments behind."""
    folder = tmp_path / "tiered"
    folder.mkdir()
    segments = asyncio.run(lay_out_overlapping(folder, [(0, 150), (100, 260), (255, 400)]))
    assert segments[1].base_offset < segments[0].last_offset < segments[1].last_offset
    dump = write_dump(tmp_path / "dump", metadata_values(*segments))
    place(*import_arguments(dump, folder))
    for client in CLIENTS:
        assert read_all(client, place.bootstrap) == GOLDEN_RECORDS
    for edge in (segments[1].base_offset, segments[0].last_offset, segments[0].last_offset + 1):
        [read] = ConfluentClient().read(
            place.bootstrap, TOPIC, count=1, partition=PARTITION, start=edge
        )
        assert (read.offset, read.value) == (edge, GOLDEN_RECORDS[edge - FIRST][3])


def test_writes_go_on_behind_what_was_adopted(place: Place, dump: Path, tiered: Path) -> None:
    place(*import_arguments(dump, tiered))
    more = [Message(b"new %d" % number) for number in range(10)]
    for client in CLIENTS:
        before = described(place)["high_watermark"]
        written = client.write(place.bootstrap, TOPIC, more, partition=PARTITION, idempotent=True)
        assert written == list(range(before, before + 10))
    read = ConfluentClient().read(
        place.bootstrap, TOPIC, count=120, partition=PARTITION, start=END - 100
    )
    assert [one.offset for one in read] == list(range(END - 100, END + 20))
    partition = described(place)
    assert partition["state"] == "hybrid"
    assert (partition["log_start"], partition["tiered_end"]) == (FIRST, END)
    assert (partition["block_start"], partition["high_watermark"]) == (END, END + 20)

    key = TopicPartition(TOPIC_ID, PartitionIndex(PARTITION))
    epochs = place.run(lambda control: control.log.epochs(key))
    assert epochs == [(0, 0), (3, FIRST), (4, END)]
    # A partition without records begins where it did, and takes them too.
    assert ConfluentClient().write(place.bootstrap, TOPIC, more, partition=0) == list(range(10))


def test_an_idempotent_producer_of_the_snapshot_continues_its_sequence(
    place: Place, dump: Path, tiered: Path
) -> None:
    place(*import_arguments(dump, tiered))

    def batch(sequence: int, count: int, epoch: int = 1) -> bytes:
        records = [Record(offset=i, timestamp=0, key=None, value=b"x") for i in range(count)]
        return build_batch(
            records,
            producer_id=ProducerId(OPEN_PRODUCER),
            producer_epoch=epoch,
            base_sequence=sequence,
        )

    with connected(place.bootstrap) as wire:
        # Sequences 5 to 9 are at the offsets 116 to 120, says the snapshot.
        answers = [
            wire.produce(TOPIC, batch(*one), partition=PARTITION)
            for one in ((5, 5), (10, 2), (12, 1), (14, 1), (13, 1, 0))
        ]
    assert [(one.error_code, one.base_offset) for one in answers[:3]] == [
        (ErrorCode.none, 116),
        (ErrorCode.none, END),
        (ErrorCode.none, END + 2),
    ]
    assert [one.error_code for one in answers[3:]] == [
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.invalid_producer_epoch,
    ]


def test_old_records_stay_although_the_default_retention_is_a_week(
    place: Place, dump: Path, tiered: Path
) -> None:
    result = place.try_(*import_arguments(dump, tiered))
    assert "so they are kept for ever" in result.stderr
    found = json.loads(place("topic", "describe", TOPIC, "--json"))
    assert found["configs"] == {"retention.ms": "-1"}


def test_what_a_dump_does_not_tell_can_be_told(place: Place, dump: Path, tiered: Path) -> None:
    told = ["--partitions", "12", "--log-start", "7=6001", "--log-start", "9=77"]
    place(*import_arguments(dump, tiered, *told, "--topic-config", "retention.ms=-1"))
    found = partitions(place)
    assert [one["log_start"] for one in found] == [*[0] * 7, 6001, 0, 77, 0, 0]
    [first] = ConfluentClient().read(
        place.bootstrap, TOPIC, count=1, partition=PARTITION, start=6001
    )
    assert (first.offset, first.value) == (6001, GOLDEN_RECORDS[1001][3])
    with connected(place.bootstrap) as wire:
        assert wire.fetch(TOPIC, PARTITION, 6000)[0] is ErrorCode.offset_out_of_range


def test_too_few_partitions_are_refused(place: Place, dump: Path, tiered: Path) -> None:
    result = place.try_(*import_arguments(dump, tiered, "--partitions", "7"))
    assert result.exit_code == 1
    assert "names partition 7 of topic1" in result.stderr


def test_tiers_are_not_shown_of_another_cluster(place: Place, tmp_path: Path) -> None:
    with running(tmp_path / "other") as other:
        place.wire("topic", "create", "t")
        result = other.try_("topic", "describe", "t", "--bootstrap", place.bootstrap)
    assert result.exit_code == 1
    assert "name the right broker with --bootstrap" in result.stderr


# In steps.


def test_a_topic_that_is_read_only_is_opened_for_writes_later(
    place: Place, dump: Path, tiered: Path
) -> None:
    said = place(*import_arguments(dump, tiered, "--read-only"))
    assert "`stratalog topic migrate topic1` opens it for writes" in said
    assert described(place)["state"] == "tiered-only"
    assert read_all(ConfluentClient(), place.bootstrap) == GOLDEN_RECORDS
    batch = build_batch([Record(offset=0, timestamp=0, key=None, value=b"x")])
    with connected(place.bootstrap) as wire:
        refused = wire.produce(TOPIC, batch, partition=PARTITION)
        assert refused.error_code is not ErrorCode.none
    again = place.try_(*import_arguments(dump, tiered))
    assert again.exit_code == 1
    assert "was adopted already, and can be read but not written" in again.stderr
    assert "stratalog topic migrate topic1" in again.stderr
    assert "takes writes: new records" in place("topic", "migrate", TOPIC)
    assert "takes writes already" in place("topic", "migrate", TOPIC)
    assert described(place)["state"] == "hybrid"
    assert ConfluentClient().write(
        place.bootstrap, TOPIC, [Message(b"x")], partition=PARTITION
    ) == [END]
    assert place.try_("topic", "migrate", TOPIC, "--abort").exit_code == 1
    assert (
        "takes writes: nothing is left to do" in place.try_(*import_arguments(dump, tiered)).stderr
    )


def test_an_import_that_was_cut_off_says_how_to_go_on(
    place: Place, dump: Path, tiered: Path
) -> None:
    place(*import_arguments(dump, tiered, "--read-only"))
    place.run(lambda control: control.topics.begin_migration(TOPIC_ID))
    result = place.try_(*import_arguments(dump, tiered))
    assert "its migration has begun: finish it with `stratalog topic migrate" in result.stderr
    assert described(place)["state"] == "migrating"
    place("topic", "migrate", TOPIC, "--abort")
    assert described(place)["state"] == "tiered-only"
    place.run(lambda control: control.topics.begin_migration(TOPIC_ID))
    place("topic", "migrate", TOPIC)
    assert described(place)["state"] == "hybrid"


def test_a_dry_run_shows_everything_and_changes_nothing(
    place: Place, dump: Path, tiered: Path
) -> None:
    arguments = import_arguments(dump, tiered, "--dry-run")
    shown = json.loads(place(*arguments, "--json"))
    assert shown["adopted"] is False
    assert shown["partitions"][PARTITION] == {
        "partition": PARTITION,
        "segments": 1,
        "bytes": 756_200,
        "stored_bytes": 756_200 + 2_593 + 762,
        "log_start": FIRST,
        "end": END,
        "leader_epoch": 3,
        "producers": 2,
        "lost_records": 0,
    }
    said = place(*arguments)
    assert "Would adopt topic1" in said
    assert "would be refused" in said, "a transaction is open"
    assert TOPIC not in place.wire("topic", "list")


# What is refused.


def test_open_transactions_are_refused_with_their_producers(
    place: Place, dump: Path, tiered: Path
) -> None:
    arguments = import_arguments(dump, tiered)
    arguments.remove("--accept-open-transactions")
    result = place.try_(*arguments)
    assert result.exit_code == 1
    assert "partition 7: 4000." in result.stderr
    assert "4001" not in result.stderr


def test_a_start_behind_the_last_tiered_offset_is_refused(
    place: Place, dump: Path, tiered: Path
) -> None:
    arguments = import_arguments(dump, tiered, "--log-start", "7=50000")
    result = place.try_(*arguments)
    assert result.exit_code == 1
    assert f"tiered is {END - 1}. Correct --log-start" in " ".join(result.stderr.split())
    shown = json.loads(place(*arguments, "--lose-untiered", "--json"))
    assert shown["partitions"][PARTITION]["lost_records"] == 50_000 - END
    assert described(place)["high_watermark"] == 50_000


def test_a_dump_needs_the_word_that_its_topic_is_sealed(
    place: Place, dump: Path, tiered: Path
) -> None:
    arguments = import_arguments(dump, tiered)
    arguments.remove("--sealed")
    result = place.try_(*arguments)
    assert result.exit_code == 1
    assert "--sealed" in result.stderr


def test_a_name_that_is_taken_is_refused(place: Place, dump: Path, tiered: Path) -> None:
    place.run(lambda control: control.topics.create(TOPIC, partition_count=1, configs={}))
    result = place.try_(*import_arguments(dump, tiered))
    assert result.exit_code == 1
    assert "another topic called topic1" in result.stderr


def test_objects_where_the_cluster_sweeps_are_refused(place: Place, dump: Path) -> None:
    own = place.folder / "objects"
    lay_out(own, PLAIN, prefix="segments/")
    arguments = [
        *("segments", "import", TOPIC, "--dump", str(dump), "--sealed"),
        *("--kafka-objects", f"file:{own}", "--key-prefix", "segments/"),
    ]
    result = place.try_(*arguments)
    assert result.exit_code == 1
    assert "where this cluster deletes" in result.stderr


# Ownership.


def objects_left(tiered: Path) -> list[bool]:
    return [(tiered / (KEY_BASE + suffix)).exists() for suffix in SUFFIXES]


def delete_topic_for_good(place: Place) -> None:
    """Delete it, and do what a janitor does in the time that follows."""
    place.wire("topic", "delete", TOPIC, "--yes")

    async def clean(control: ControlPlane) -> None:
        await purge_topics(control, chunk_rows=100)
        own = open_store(place.settings.storage.objects, {}, clock=SystemClock())
        stores = SegmentStores(own, lambda url: open_store(url, {}, clock=SystemClock()))
        await delete_doomed(control.segments, stores, grace_ms=0, chunk_rows=100)
        await stores.close()
        await own.close()

    place.run(clean)


def test_adopted_objects_outlive_the_topic(place: Place, dump: Path, tiered: Path) -> None:
    place(*import_arguments(dump, tiered))
    delete_topic_for_good(place)
    assert objects_left(tiered) == [True] * 3
    # And can be adopted again, because nothing of them is remembered.
    place(*import_arguments(dump, tiered))
    assert read_all(ConfluentClient(), place.bootstrap) == GOLDEN_RECORDS


def test_objects_whose_ownership_was_taken_go_with_the_topic(
    place: Place, dump: Path, tiered: Path
) -> None:
    place(*import_arguments(dump, tiered))
    assert place.try_("segments", "own", TOPIC, answer="n\n").exit_code == 1
    [before] = json.loads(place("segments", "list", TOPIC, "--json"))
    assert place.try_("segments", "own", TOPIC, answer="y\n").exit_code == 0
    [after] = json.loads(place("segments", "list", TOPIC, "--json"))
    assert (before["owned"], after["owned"]) == (False, True)
    assert "Took ownership of 0 segments" in place("segments", "own", TOPIC, "--yes")
    delete_topic_for_good(place)
    assert objects_left(tiered) == [False] * 3


# Out again.


def test_what_was_imported_is_exported_byte_by_byte(
    place: Place, dump: Path, tiered: Path, tmp_path: Path
) -> None:
    place(*import_arguments(dump, tiered))
    place("segments", "export", TOPIC, "--output", str(tmp_path / "out.jsonl"))
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    expected = metadata_partition(TopicPartition(TOPIC_ID, PartitionIndex(PARTITION)))
    assert [record["partition"] for record in records] == [expected] * 2
    exported = [b64decode(record["value_base64"]) for record in records]
    # All but the times at which the two things happened, which are those of this cluster.
    times = [decode_record(value) for value in metadata_values()]
    assert [
        encode_record(replace(decode_record(value), event_ms=then.event_ms))
        for value, then in zip(exported, times, strict=True)
    ] == metadata_values()
    printed = place("segments", "export", TOPIC)
    assert printed == (tmp_path / "out.jsonl").read_text()


def test_an_export_is_marked_and_says_what_to_set_in_kafka(
    place: Place, dump: Path, tiered: Path
) -> None:
    place(*import_arguments(dump, tiered))
    said = place.try_("segments", "export", TOPIC).stderr
    for config in ("remote.log.copy.disable=true", "retention.ms=-1", "retention.bytes=-1"):
        assert config in said
    assert place.run(lambda control: control.segments.shared_topics([TOPIC_ID])) == {TOPIC_ID}


def test_an_offset_is_found_in_its_tier(place: Place, dump: Path, tiered: Path) -> None:
    place(*import_arguments(dump, tiered))
    ConfluentClient().write(place.bootstrap, TOPIC, [Message(b"new")], partition=PARTITION)

    def found(offset: int) -> dict[str, Any]:
        shown = place("segments", "find", TOPIC, str(PARTITION), str(offset), "--json")
        return cast(dict[str, Any], json.loads(shown))

    for offset in (FIRST, END - 1):
        remote = found(offset)
        assert (remote["tier"], remote["first"], remote["last"]) == ("remote", FIRST, END - 1)
        assert (remote["store"], remote["object"]) == (f"file://{tiered}", f"{KEY_BASE}.log")
    block = found(END)
    assert (block["tier"], block["first"], block["last"]) == ("block", END, END)
    assert block["object"].startswith("blocks/")
    assert block["leader_epoch"] > remote["leader_epoch"]
    for offset in (FIRST - 1, END + 1):
        assert found(offset) == {"tier": "none", "log_start": FIRST, "high_watermark": END + 1}
    assert "tier: remote" in place("segments", "find", TOPIC, str(PARTITION), str(FIRST))
    assert "only 0 to 7" in place.try_("segments", "find", TOPIC, "8", "0").stderr


def test_segments_are_listed_with_their_place(place: Place, dump: Path, tiered: Path) -> None:
    place(*import_arguments(dump, tiered))
    [shown] = json.loads(place("segments", "list", TOPIC, "--partition", "7", "--json"))
    assert (shown["first"], shown["last"], shown["bytes"]) == (FIRST, END - 1, 756_200)
    assert (shown["state"], shown["owned"]) == ("copy-finished", False)
    assert (shown["store"], shown["key"]) == (f"file://{tiered}", KEY_BASE)
    assert json.loads(place("segments", "list", TOPIC, "--all", "--json")) == [shown]
    assert json.loads(place("segments", "list", TOPIC, "--partition", "0", "--json")) == []
    assert KEY_BASE in place("segments", "list", TOPIC)
    result = place.try_("segments", "list", TOPIC, "--partition", "8")
    assert "only 0 to 7" in result.stderr


# From a cluster that runs. It is one of ours, with the topic in which Kafka keeps its metadata.


@pytest.fixture
def source(tmp_path: Path, dump: Path, tiered: Path) -> Iterator[Place]:
    with running(tmp_path / "source") as source:
        source(*import_arguments(dump, tiered))
        source.wire("topic", "create", METADATA_TOPIC, "--partitions", "5")
        changes = ["--set", "max.message.bytes=2000000", "--set", "retention.bytes=123456789"]
        source.wire("topic", "alter", TOPIC, *changes)
        partition = metadata_partition(TopicPartition(TOPIC_ID, PartitionIndex(PARTITION)), 5)
        messages = [Message(value) for value in metadata_values()]
        ConfluentClient().write(source.bootstrap, METADATA_TOPIC, messages, partition=partition)
        yield source


def live_arguments(source: Place, tiered: Path, *more: str) -> list[str]:
    return [
        *("segments", "import", TOPIC, "--kafka-bootstrap", source.bootstrap),
        *(
            "--kafka-objects",
            f"file:{tiered}",
            "--key-prefix",
            PREFIX,
            "--accept-open-transactions",
        ),
        *("--kafka-option", "socket.timeout.ms=10000", *more),
    ]


def test_a_topic_is_adopted_from_a_running_cluster(
    place: Place, source: Place, tiered: Path
) -> None:
    result = place.try_(*live_arguments(source, tiered))
    assert result.exit_code == 0, result.output
    assert "8 partitions" in result.stdout
    assert "goes on deleting segments of topic1" in result.stderr
    for client in CLIENTS:
        assert read_all(client, place.bootstrap) == GOLDEN_RECORDS
    configs = json.loads(place("topic", "describe", TOPIC, "--json"))["configs"]
    assert configs == {
        "max.message.bytes": "2000000",
        "retention.bytes": "123456789",
        "retention.ms": "-1",
    }
    # The source's own epoch, which no segment tells of, is 4.
    key = TopicPartition(TOPIC_ID, PartitionIndex(PARTITION))
    assert place.run(lambda control: control.log.epochs(key))[-1] == (5, END)


def test_a_source_with_records_in_no_segment_is_refused(
    place: Place, source: Place, tiered: Path
) -> None:
    new = [Message(b"untiered %d" % number) for number in range(3)]
    ConfluentClient().write(source.bootstrap, TOPIC, new, partition=PARTITION)
    ConfluentClient().write(source.bootstrap, TOPIC, new[:2], partition=2)
    result = place.try_(*live_arguments(source, tiered))
    assert result.exit_code == 1
    assert "lost: 2 of partition 2, 3 of partition 7. Seal the topic" in result.stderr
    shown = json.loads(place(*live_arguments(source, tiered, "--lose-untiered", "--json")))
    assert [one["lost_records"] for one in shown["partitions"]] == [0, 0, 2, 0, 0, 0, 0, 3]
    # Where nothing is adopted, offsets that were in use are not given out again.
    ends = [one["high_watermark"] for one in partitions(place)]
    assert ends == [0, 0, 2, 0, 0, 0, 0, END]


def test_dumps_by_kcat_and_by_consume_are_taken(
    place: Place, source: Place, tiered: Path, tmp_path: Path
) -> None:
    by_kcat, by_consume = tmp_path / "kcat", tmp_path / "consume"
    command = ["kcat", "-C", "-b", source.bootstrap, "-t", METADATA_TOPIC, "-o", "beginning"]
    with by_kcat.open("wb") as file:
        subprocess.run([*command, "-e", "-q", "-f", "%R%s"], stdout=file, check=True, timeout=60)
    by_consume.write_text(source.wire("consume", METADATA_TOPIC, "--json"))
    for dumped in (by_kcat, by_consume):
        shown = json.loads(place(*import_arguments(dumped, tiered, "--dry-run", "--json")))
        assert shown["topic_id"] == kafka_base64(TOPIC_ID)
        assert shown["partitions"][PARTITION]["end"] == END


def test_an_export_into_a_running_cluster_is_what_it_would_have_written(
    place: Place, source: Place, tiered: Path
) -> None:
    place(*live_arguments(source, tiered))
    place("segments", "export", TOPIC, "--kafka-bootstrap", source.bootstrap)
    partition = metadata_partition(TopicPartition(TOPIC_ID, PartitionIndex(PARTITION)), 5)
    read = ConfluentClient().read(source.bootstrap, METADATA_TOPIC, count=4, partition=partition)
    assert all(one.key is None for one in read)
    [started, ended] = [decode_record(one.value) for one in read[2:]]
    assert isinstance(started, SegmentAdded)
    assert replace(started, event_ms=ADDED.event_ms) == ADDED
    assert isinstance(ended, SegmentUpdated)
    assert ended.state is SegmentState.COPY_FINISHED


def test_a_cluster_that_does_not_answer_is_told(place: Place, tiered: Path) -> None:
    arguments = import_arguments(tiered, tiered)[:3]
    more = ["--kafka-bootstrap", "127.0.0.1:1", "--kafka-objects", f"file:{tiered}"]
    result = place.try_(*arguments, *more)
    assert result.exit_code == 1
    assert "no Kafka broker answers at 127.0.0.1:1: check --kafka-bootstrap" in result.stderr
