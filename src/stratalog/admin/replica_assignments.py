"""Replicas that a request assigns to brokers by hand.

They are checked as in Kafka, so that mistakes come to light, and then forgotten: the object store
replicates, and the leader of a partition follows from the brokers that are alive.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from stratalog.admin.errors import PartitionAssignmentError
from stratalog.errors import CallError


class AssignedPartition(NamedTuple):
    partition: int
    broker_ids: Sequence[int]


def check_new_topic(
    assigned: Sequence[AssignedPartition],
    *,
    registered: Collection[int],
    partition_count: int,
    replication_factor: int,
) -> None:
    """The assignment alone says how many partitions and replicas there are."""
    if replication_factor != -1:
        raise CallError("replicas are assigned by hand, so the replication factor must be -1")
    if partition_count != -1:
        raise CallError("replicas are assigned by hand, so the number of partitions must be -1")
    if sorted(one.partition for one in assigned) != list(range(len(assigned))):
        raise PartitionAssignmentError(
            "replicas must be assigned to each partition once, and partitions count from 0"
        )
    _check_replicas([one.broker_ids for one in assigned], registered)


def check_new_partitions(
    assigned: Sequence[Sequence[int]], *, registered: Collection[int], new_partitions: int
) -> None:
    """The number of replicas is not held against the topic's, which is always given as 1."""
    if len(assigned) != new_partitions:
        raise PartitionAssignmentError(
            f"replicas are assigned to {len(assigned)} partitions, and {new_partitions} are new"
        )
    _check_replicas(assigned, registered)


def _check_replicas(assigned: Sequence[Sequence[int]], registered: Collection[int]) -> None:
    for broker_ids in assigned:
        if not broker_ids:
            raise PartitionAssignmentError("a partition is assigned to no broker")
        if len(set(broker_ids)) < len(broker_ids):
            raise PartitionAssignmentError(f"a broker is named twice in {list(broker_ids)}")
        unknown = set(broker_ids) - set(registered)
        if unknown:
            raise PartitionAssignmentError(f"there is no broker {min(unknown)}")
        if len(broker_ids) != len(assigned[0]):
            raise PartitionAssignmentError(
                f"one partition has {len(assigned[0])} replicas, another {len(broker_ids)}"
            )
