"""Checks the leader epochs that clients send against the epochs of the partitions.

A client with an older epoch must look for the leader again. A client with a newer epoch knows more
than this broker, and should come back later. The broker's cache may let a client pass, and never
turns one away: the control plane is asked first.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import NO_EPOCH, LeaderEpoch, PartitionIndex, TopicPartition


class KnownEpoch(NamedTuple):
    """The leader epoch of a partition as a client knows it."""

    topic: Topic
    partition: PartitionIndex
    epoch: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic.id, self.partition)


def epoch_code(known: int, current: LeaderEpoch) -> ErrorCode:
    if known in (NO_EPOCH, current):
        return ErrorCode.none
    fenced = known < current
    return ErrorCode.fenced_leader_epoch if fenced else ErrorCode.unknown_leader_epoch


def is_doubtful(topic: Topic, partition: PartitionIndex, epoch: int) -> bool:
    """Tell whether the epoch that a client sent has to be checked with the control plane."""
    return epoch not in (NO_EPOCH, topic.leader_epochs.get(partition, 0))


async def wrong_epochs(
    control: ControlPlane, known: Iterable[KnownEpoch]
) -> dict[TopicPartition, ErrorCode]:
    """Return the error codes of the partitions that have another epoch."""
    doubtful = {
        one.topic_partition: one.epoch
        for one in known
        if is_doubtful(one.topic, one.partition, one.epoch)
    }
    states = await control.log.partitions(list(doubtful)) if doubtful else {}
    return {
        key: code
        for key, state in states.items()
        if (code := epoch_code(doubtful[key], state.leader_epoch))
    }
