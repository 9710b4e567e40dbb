"""Reading and writing an adopted topic with real clients."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from tests.integration.adoption.adopting_cluster import (
    CLIENTS,
    AdoptingCluster,
    described,
    import_arguments,
    read_all,
)
from tests.support.clients.aiokafka_client import AiokafkaClient
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.message import Message
from tests.support.clusters import BASE, folder_storage, running_cluster
from tests.support.golden_topic import (
    END,
    FIRST,
    GOLDEN_RECORDS,
    OPEN_PRODUCER,
    PARTITION,
    lay_out,
    lay_out_overlapping,
    metadata_values,
    write_dump,
)
from tests.support.servers import S3Server
from tests.support.wire import connected
from tests.unit.segment.layout_golden import (
    KEY_BASE,
    MODES,
    PLAIN,
    TOPIC,
    TOPIC_ID,
    Mode,
)
from typer.testing import CliRunner

from stratalog.batch.build import build_batch
from stratalog.batch.records import Record
from stratalog.cli.main import app
from stratalog.clock import SystemClock
from stratalog.ids import PartitionIndex, ProducerId, TopicPartition
from stratalog.objects.open import open_store
from stratalog.segment.keys import SUFFIXES


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_clients_read_what_kafka_wrote_in_every_mode(
    place: AdoptingCluster, tmp_path: Path, dump: Path, mode: Mode
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
    place: AdoptingCluster, tmp_path: Path
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


def test_writes_go_on_behind_what_was_adopted(
    place: AdoptingCluster, dump: Path, tiered: Path
) -> None:
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
    place: AdoptingCluster, dump: Path, tiered: Path
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
    place: AdoptingCluster, dump: Path, tiered: Path
) -> None:
    result = place.try_(*import_arguments(dump, tiered))
    assert "so they are kept for ever" in result.stderr
    found = json.loads(place("topic", "describe", TOPIC, "--json"))
    assert found["configs"] == {"retention.ms": "-1"}
