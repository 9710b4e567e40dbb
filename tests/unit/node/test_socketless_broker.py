"""A broker without sockets, put together from the same parts: the shape that a simulation needs."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.support.appends import durable

from stratalog.batch.build import build_batch
from stratalog.batch.records import Record, iter_records
from stratalog.clock import SystemClock
from stratalog.control.log.model import Span
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.ids import Offset, PartitionIndex
from stratalog.kafka.server.server import Address
from stratalog.node.background import start_janitor
from stratalog.node.ground import Ground
from stratalog.node.membership import join_cluster
from stratalog.node.parts import Parts
from stratalog.node.reading import Reading, start_reading
from stratalog.node.storage import open_storage
from stratalog.node.writing import start_writing
from stratalog.objects.open import open_store
from stratalog.opening.cluster_settings import ClusterSettings
from stratalog.settings import BlockSettings, JanitorSettings, Settings
from stratalog.topic.append import TopicAppender
from stratalog.topic.catalog import TopicCatalog
from stratalog.topic.model import PartitionWrite

PARTITION = PartitionIndex(0)
NOW_MS = SystemClock().now_ms()


@dataclass
class SocketlessBroker:
    parts: Parts
    catalog: TopicCatalog
    appender: TopicAppender
    reading: Reading

    @classmethod
    async def start(cls, control: ControlPlane) -> "SocketlessBroker":
        settings = Settings(
            block=BlockSettings(window_ms=0), janitor=JanitorSettings(interval_ms=0)
        )
        clock = SystemClock()
        ground = Ground(settings=settings, clock=clock, entropy=Random(0).randbytes)
        parts = Parts()
        objects = open_store("memory:", clock=clock)
        cluster = await open_storage(parts, ground, control=control, objects=objects)
        catalog = TopicCatalog(control=control, clock=clock)
        reading = await start_reading(parts, ground, cluster)
        membership = await join_cluster(parts, ground, control, Address("broker-1", 9092))
        appender = await start_writing(
            parts,
            ground,
            cluster,
            catalog=catalog,
            fresh_blocks=reading.fresh_blocks,
            broker_id=lambda: membership.broker_id,
            on_commit=reading.watermarks.advanced,
        )
        await start_janitor(
            parts, ground, cluster, ClusterSettings(cluster.control, ground.settings)
        )
        return cls(parts, catalog, appender, reading)


async def test_a_broker_without_sockets_serves_the_records_that_it_took(tmp_path: Path) -> None:
    control = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    broker = await SocketlessBroker.start(control)
    topic = await broker.catalog.create("events", partition_count=1, configs={})
    batch = build_batch([Record(0, NOW_MS, None, b"hello")])
    write = PartitionWrite(topic=topic, partition=PARTITION, data=memoryview(bytearray(batch)))
    (written,) = await durable(await broker.appender.append([write]))
    assert written.error is None
    span = Span(topic_id=topic.id, partition=PARTITION, offset=Offset(0), max_bytes=1 << 20)
    reader = broker.reading.reader
    (read,) = await reader.read([span], max_bytes=1 << 20, min_bytes=1, max_wait_ms=0)
    assert [record.value for record in iter_records(b"".join(read.parts))] == [b"hello"]
    await broker.parts.stop()


async def test_a_broker_without_sockets_is_listed_under_the_address_that_it_was_given(
    tmp_path: Path,
) -> None:
    url = f"sqlite:{tmp_path / 'control.db'}"
    broker = await SocketlessBroker.start(await open_control_plane(url))
    onlooker = await open_control_plane(url)
    (listed,) = await onlooker.brokers.all()
    assert (listed.host, listed.port) == ("broker-1", 9092)
    await broker.parts.stop()
    assert await onlooker.brokers.all() == []
    await onlooker.close()
