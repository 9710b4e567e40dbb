"""A checked record batch between its producer and the tier that it is appended to."""

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from stratalog.batch.header import BatchHeader, TimestampType
from stratalog.ids import PartitionIndex, TopicId, TopicPartition


class EntryBatch(NamedTuple):
    """One valid record batch that enters the log of a partition. A tuple, because making the other
    kind takes four times as long, and a broker makes one for every batch."""

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


PartitionKey: TypeAlias = tuple[TopicId, PartitionIndex]
"""Equal to the `TopicPartition`, and made in a third of its time."""

partition_of: Callable[[EntryBatch], PartitionKey] = attrgetter("topic_id", "partition")
