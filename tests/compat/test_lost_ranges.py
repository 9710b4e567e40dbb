"""A range that is marked as lost, for the four clients: they go on behind it, also at the end."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from kio.schema.errors import ErrorCode
from tests.integration.asking import EARLIEST, LATEST, list_offset
from tests.support.clients.client import Client
from tests.support.clients.confluent_client import ConfluentClient, confluent_consumer
from tests.support.clients.message import numbered, values
from tests.support.clusters import BASE, Cluster, create, folder_storage, fresh_topic, one_broker
from tests.support.wire import connected
from typer.testing import CliRunner

from stratalog.cli.main import app
from stratalog.settings import BlockSettings


@dataclass(frozen=True)
class Place:
    cluster: Cluster
    folder: Path

    def stored(self) -> set[Path]:
        return {path for path in (self.folder / "objects" / "blocks").rglob("*") if path.is_file()}

    def mark_lost(self, topic: str, first: int, end: int, *options: str) -> str:
        arguments = ("mark-lost", topic, "0", str(first), str(end), "--reason", "a test")
        return self.run(*arguments, *options)

    def run(self, *arguments: str) -> str:
        place = ("--data", str(self.folder))
        result = CliRunner(env={"NO_COLOR": "1"}).invoke(app, ("topic", *arguments, *place))
        assert result.exit_code == 0, result.output
        return result.output


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("lost")
    settings = replace(
        BASE, storage=folder_storage(folder), block=BlockSettings(window_ms=5, cache_bytes=0)
    )
    with one_broker(folder, base=settings) as cluster:
        yield Place(cluster, folder)


def _lose_the_second(place: Place, batches: int) -> str:
    """Write batches of ten records, each in a block of its own, and lose the second block."""
    topic = create(place.cluster, fresh_topic("lost"))
    for number in range(batches):
        before = place.stored()
        sent = numbered(10, f"v{number}-")
        ConfluentClient().write(place.cluster.bootstrap, topic, sent, idempotent=True)
        if number == 1:
            for path in place.stored() - before:
                path.unlink()
    return topic


def test_a_client_reads_on_behind_a_lost_range(place: Place, client: Client) -> None:
    topic = _lose_the_second(place, batches=3)
    assert "can be read" in place.mark_lost(topic, 10, 20, "--dry-run")
    assert "Marked 10 offsets" in place.mark_lost(topic, 10, 20, "--yes")
    read = client.read(place.cluster.bootstrap, topic, count=20)
    assert [each.offset for each in read] == [*range(10), *range(20, 30)]
    # From inside of the range, too.
    [first] = client.read(place.cluster.bootstrap, topic, count=1, start=15)
    assert first.offset == 20
    assert "a test" in place.run("lost-ranges", topic)


def test_a_client_waits_behind_a_lost_range_at_the_end(place: Place, client: Client) -> None:
    topic = _lose_the_second(place, batches=2)
    place.mark_lost(topic, 10, 20, "--yes")
    with connected(place.cluster.addresses[0]) as wire:
        assert list_offset(wire, topic, LATEST) == (ErrorCode.none, 20)
        assert list_offset(wire, topic, EARLIEST) == (ErrorCode.none, 0)
    ConfluentClient().write(place.cluster.bootstrap, topic, numbered(5, "later"))
    read = client.read(place.cluster.bootstrap, topic, count=15)
    assert [each.offset for each in read] == [*range(10), *range(20, 25)]
    assert values(read[10:]) == values(numbered(5, "later"))


def test_a_consumer_that_stands_inside_a_lost_range_at_the_end_hears_of_no_error(
    place: Place,
) -> None:
    """librdkafka takes an answer without any record for one that was cut off, and asks for more."""
    topic = _lose_the_second(place, batches=2)
    place.mark_lost(topic, 10, 20, "--yes")
    with closing(confluent_consumer(place.cluster.bootstrap)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 12)])
        assert consumer.poll(1.0) is None
        ConfluentClient().write(place.cluster.bootstrap, topic, numbered(1, "later"))
        message = consumer.poll(30.0)
        assert message is not None
        assert message.error() is None
        assert message.offset() == 20
