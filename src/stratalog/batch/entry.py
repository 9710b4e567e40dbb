"""A checked record batch between its producer and the tier that it is appended to."""

from dataclasses import dataclass

from stratalog.batch.header import BatchHeader, TimestampType
from stratalog.ids import PartitionIndex, TopicId, TopicPartition


@dataclass(slots=True, kw_only=True)
class EntryBatch:
    """One valid record batch that enters the log of a partition. Never changed: it is not frozen
    because a frozen one takes three times as long to make, and a small request is hardly more."""

    topic_id: TopicId
    topic_name: str
    partition: PartitionIndex
    timestamp_type: TimestampType
    """The topic's. The producer may have written the other one."""
    header: BatchHeader
    data: memoryview

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic_id, self.partition)
