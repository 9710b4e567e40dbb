"""What the control plane's operations have in common."""

from collections.abc import Iterable

from stratalog.control.database import Database, Rows, shape
from stratalog.ids import Entropy, TopicPartition

PARTITION = shape(topic_id="uuid", partition="integer")


class Operations:
    """Base of the parts of `SqlControlPlane`, which are cut by noun."""

    def __init__(self, database: Database, entropy: Entropy) -> None:
        self._database = database
        self._entropy = entropy


def partition_rows(partitions: Iterable[TopicPartition]) -> Rows:
    return Rows(PARTITION, list(partitions))
