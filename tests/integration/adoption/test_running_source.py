"""Adopting a topic from a cluster that runs, and exporting to one."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.adoption.adopting_cluster import (
    CLIENTS,
    AdoptingCluster,
    import_arguments,
    partitions,
    read_all,
    running,
)
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.message import Message
from tests.support.golden_topic import (
    ADDED,
    END,
    GOLDEN_RECORDS,
    PARTITION,
    metadata_values,
)
from tests.unit.segment.layout_golden import (
    PREFIX,
    TOPIC,
    TOPIC_ID,
)

from stratalog.control.segments.model import SegmentState
from stratalog.ids import PartitionIndex, TopicPartition, kafka_base64
from stratalog.segment.remote_log_metadata import (
    METADATA_TOPIC,
    SegmentAdded,
    SegmentUpdated,
    decode_record,
    metadata_partition,
)

# From a cluster that runs. It is one of ours, with the topic in which Kafka keeps its metadata.


@pytest.fixture
def source(tmp_path: Path, dump: Path, tiered: Path) -> Iterator[AdoptingCluster]:
    with running(tmp_path / "source") as source:
        source(*import_arguments(dump, tiered))
        source.wire("topic", "create", METADATA_TOPIC, "--partitions", "5")
        changes = ["--set", "max.message.bytes=2000000", "--set", "retention.bytes=123456789"]
        source.wire("topic", "alter", TOPIC, *changes)
        partition = metadata_partition(TopicPartition(TOPIC_ID, PartitionIndex(PARTITION)), 5)
        messages = [Message(value) for value in metadata_values()]
        ConfluentClient().write(source.bootstrap, METADATA_TOPIC, messages, partition=partition)
        yield source


def live_arguments(source: AdoptingCluster, tiered: Path, *more: str) -> list[str]:
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
    place: AdoptingCluster, source: AdoptingCluster, tiered: Path
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
    place: AdoptingCluster, source: AdoptingCluster, tiered: Path
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
    place: AdoptingCluster, source: AdoptingCluster, tiered: Path, tmp_path: Path
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
    place: AdoptingCluster, source: AdoptingCluster, tiered: Path
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


def test_a_cluster_that_does_not_answer_is_told(place: AdoptingCluster, tiered: Path) -> None:
    arguments = import_arguments(tiered, tiered)[:3]
    more = ["--kafka-bootstrap", "127.0.0.1:1", "--kafka-objects", f"file:{tiered}"]
    result = place.try_(*arguments, *more)
    assert result.exit_code == 1
    assert "no Kafka broker answers at 127.0.0.1:1: check --kafka-bootstrap" in result.stderr
