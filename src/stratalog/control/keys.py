from collections.abc import Iterable

from stratalog.control.sql.database import Row, Rows, as_uuid, shape
from stratalog.ids import PartitionIndex, TopicId, TopicPartition

PARTITION = shape(topic_id="uuid", partition="integer")


def partition_rows(partitions: Iterable[TopicPartition]) -> Rows:
    return Rows(PARTITION, list(partitions))


def partition_key(row: Row) -> TopicPartition:
    return TopicPartition(TopicId(as_uuid(row[0])), PartitionIndex(row[1]))
