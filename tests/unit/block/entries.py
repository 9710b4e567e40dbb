"""Batches for the block tier's tests."""

from uuid import UUID

from stratalog.batch.build import build_batch
from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import TimestampType, parse_header
from stratalog.batch.records import Record
from stratalog.ids import PartitionIndex, TopicId

TOPIC = TopicId(UUID(int=0xA))
OTHER_TOPIC = TopicId(UUID(int=0xB))


def entry(
    partition: int = 0,
    *,
    topic_id: TopicId = TOPIC,
    records: int = 1,
    value: bytes = b"value",
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> EntryBatch:
    data = build_batch(
        [
            Record(offset=index, timestamp=1000 + index, key=None, value=value, headers=())
            for index in range(records)
        ]
    )
    return EntryBatch(
        topic_id=topic_id,
        topic_name=f"topic-{topic_id.int}",
        partition=PartitionIndex(partition),
        timestamp_type=timestamp_type,
        header=parse_header(data),
        data=memoryview(bytearray(data)),
    )
