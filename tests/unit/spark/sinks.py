"""Plans of sinks for tests, without a control plane."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import pyarrow as pa
from tests.support.writers import TAG

from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import Codec
from stratalog.batch.records import Record, decode_records
from stratalog.ids import TopicId
from stratalog.opening.stores import StoreAddresses
from stratalog.opening.workers import WorkerAccess
from stratalog.spark.sink_model import SinkPlan, SinkTopic
from stratalog.topic.configs import effective

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def topic(name: str, partition_count: int = 1, **configs: str) -> SinkTopic:
    """Configs are named with underscores for dots."""
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    return SinkTopic(
        id=TopicId(UUID(int=sum(name.encode()))),
        name=name,
        partition_count=partition_count,
        config=effective({}, dotted),
    )


def plan(
    *topics: SinkTopic, each: bool = False, codec: Codec | None = None, url: str = "memory:"
) -> SinkPlan:
    """`each`: rows say their topics. Otherwise all go to the first."""
    return SinkPlan(
        access=WorkerAccess(stores=StoreAddresses(objects_url=url), writer=TAG),
        topics={one.name: one for one in topics},
        topic=None if each else topics[0].name,
        codec=codec,
        lease_id=None,
    )


def rows(**columns: Sequence[object] | pa.Array) -> pa.RecordBatch:
    kinds: Mapping[str, pa.DataType] = {
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS,
        "topic": pa.string(),
        "partition": pa.int32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    arrays = {name: pa.array(values, kinds[name]) for name, values in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def records_of(entries: Sequence[EntryBatch]) -> dict[tuple[str, int], list[Record]]:
    read: dict[tuple[str, int], list[Record]] = {}
    for entry in entries:
        read.setdefault((entry.topic_name, entry.partition), []).extend(decode_records(entry.data))
    return read
