"""Replicas assigned by hand: checked as Kafka does, and then of no consequence.

The object store replicates and any broker serves any partition, so there is nothing to place.
Scripts that place replicas work nevertheless, as those do that ask for a replication factor.
"""

from collections.abc import Collection, Sequence

from stratalog.kafka.errors import PartitionAssignmentError


def check_assignments(
    assignments: Sequence[Sequence[int]], *, partition_count: int, brokers: Collection[int]
) -> None:
    """Raise what stands against giving each of so many partitions to these brokers."""
    if len(assignments) != partition_count:
        raise PartitionAssignmentError(
            f"{partition_count} partitions cannot be given {len(assignments)} assignments"
        )
    if len({len(assigned) for assigned in assignments}) > 1:
        raise PartitionAssignmentError("every partition must have the same number of replicas")
    for assigned in assignments:
        _check_replicas(assigned, brokers)


def _check_replicas(assigned: Sequence[int], brokers: Collection[int]) -> None:
    if not assigned:
        raise PartitionAssignmentError("an assignment names no broker")
    if len(set(assigned)) < len(assigned):
        raise PartitionAssignmentError(f"an assignment names a broker twice: {list(assigned)}")
    unknown = sorted(set(assigned) - set(brokers))
    if unknown:
        raise PartitionAssignmentError(f"there is no broker {unknown[0]} to assign")
