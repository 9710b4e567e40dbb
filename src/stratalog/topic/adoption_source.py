"""The topic of another cluster that is to be adopted, as its metadata describes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from stratalog.errors import TopicConfigError
from stratalog.ids import (
    NO_EPOCH,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicId,
    kafka_base64,
)
from stratalog.segment.metadata_fold import FoldedPartition, FoldedTopics
from stratalog.topic.errors import NotInMetadataError
from stratalog.topic_configs import check_configs


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """A partition of the source. The offsets come from a live source, and are None without one."""

    partition: PartitionIndex
    metadata: FoldedPartition | None = None
    log_start: Offset | None = None
    log_end: Offset | None = None
    leader_epoch: LeaderEpoch = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    name: str
    topic_id: TopicId
    partitions: Sequence[SourcePartition]
    """All of them, by index from 0."""
    configs: Mapping[str, str] = field(default_factory=dict)


def topic_in_metadata(
    metadata: FoldedTopics, name: str, topic_id: TopicId | None = None
) -> tuple[TopicId, dict[PartitionIndex, FoldedPartition]]:
    """Find the topic of this name that is not deleted: its id and its partitions.

    Kafka deletes topics partition by partition, so one marked partition dooms the others.
    """
    named = [
        one
        for one in metadata.partitions.values()
        if one.partition.topic == name and topic_id in (None, one.partition.topic_id)
    ]
    doomed = {one.partition.topic_id for one in named if one.delete_state is not None}
    ids = {one.partition.topic_id for one in named} - doomed
    if not ids:
        raise NotInMetadataError(
            _deleted(name, named) if named else _unknown(metadata, name, topic_id)
        )
    if len(ids) > 1:
        listed = ", ".join(sorted(map(kafka_base64, ids)))
        raise NotInMetadataError(
            f"the metadata knows several topics called {name}, with the ids {listed}: say which one"
            " with --topic-id"
        )
    [found] = ids
    chosen = [one for one in named if one.partition.topic_id == found]
    return found, {one.partition.partition: one for one in chosen}


def _deleted(name: str, named: Sequence[FoldedPartition]) -> str:
    alive = {one.partition.topic_id for one in named if one.delete_state is None}
    if not alive:
        return f"according to the metadata, topic {name} was deleted"
    marked = [
        one for one in named if one.partition.topic_id in alive and one.delete_state is not None
    ]
    listed = ", ".join(str(one.partition.partition) for one in marked)
    return (
        f"according to the metadata, topic {name} is being deleted: it has begun on these of its"
        f" partitions: {listed}"
    )


def _unknown(metadata: FoldedTopics, name: str, topic_id: TopicId | None) -> str:
    if topic_id is not None:
        return f"the metadata knows no topic {name} with the id {kafka_base64(topic_id)}"
    names = sorted({one.partition.topic for one in metadata.partitions.values()})
    close = get_close_matches(name, names, n=1)
    hint = f': did you mean "{close[0]}"?' if close else ", nor one of a name like that"
    return f"the metadata knows no topic {name}{hint}"


def usable_configs(configs: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the configs that have a meaning here, and the reasons why others were left out."""
    usable: dict[str, str] = {}
    left_out: list[str] = []
    for name, value in configs.items():
        try:
            usable |= check_configs({name: value})
        except TopicConfigError as error:
            left_out.append(str(error))
    return usable, left_out
