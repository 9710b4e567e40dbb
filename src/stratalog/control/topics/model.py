import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stratalog.control.earlier_values import EarlierValue, read_earlier
from stratalog.control.log.model import WriteTier
from stratalog.control.segments.model import EpochStart, SegmentToAdd, SegmentUploaded
from stratalog.control.sql.table import Expression, Selection, Table
from stratalog.ids import (
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
)

MAX_PARTITIONS = 10_000
"""Of one topic. More is more likely a slip than a plan, and every one of them costs rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    id: TopicId
    name: str
    partition_count: int
    configs: Mapping[str, str]
    """Only the configs that were set on the topic. The reader adds the defaults."""
    created_ms: int
    earlier_retention: Mapping[str, Sequence[EarlierValue]] = field(default_factory=dict)
    """The values that the configs of retention had before, by name."""
    leader_epochs: Mapping[PartitionIndex, LeaderEpoch] = field(default_factory=dict)
    """Of the partitions whose epoch is not 0."""
    write_tiers: Mapping[PartitionIndex, WriteTier] = field(default_factory=dict)
    """Of the partitions that do not write to blocks."""

    def write_tier(self, partition: PartitionIndex) -> WriteTier:
        return self.write_tiers.get(partition, WriteTier.BLOCK)


RETENTION_CONFIGS = ("retention.ms", "retention.bytes")


def _read_histories(text: str) -> Mapping[str, Sequence[EarlierValue]]:
    return {name: read_earlier(pairs) for name, pairs in (json.loads(text) or {}).items()}


TOPICS = Table(
    "topics",
    topic_id="uuid",
    name="text",
    configs="text",
    partition_count="integer",
    created_ms="bigint",
    deleted_ms="bigint null",
    purge_ms="bigint null",
    earlier_retention="text null",
)
TOPIC = Selection(
    Topic,
    TOPICS,
    id=TOPICS["topic_id"],
    configs=TOPICS["configs"].decoded(json.loads),
    earlier_retention=Expression(
        "COALESCE(topics.earlier_retention, 'null')", "text", _read_histories
    ),
    absent=("leader_epochs", "write_tiers"),
)
"""Without leader epochs and write tiers, which belong to the partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    """A topic that was deleted, and whose rows and segments are still there, at least in part."""

    id: TopicId
    name: str
    partition_count: int
    deleted_ms: int
    purge_ms: int | None
    """When its removal began or was ordered. From then on it cannot be undeleted."""
    offsets: int
    """Offsets between the starts and the ends of its partitions: about the number of records."""
    size_bytes: int


DELETED_TOPIC = Selection(
    DeletedTopic,
    TOPICS,
    id=TOPICS["topic_id"],
    # Null only in topics that are not deleted.
    deleted_ms=Expression("topics.deleted_ms", "bigint"),
    offsets=Expression(
        "(SELECT COALESCE(SUM(heads.high_watermark - partitions.log_start), 0) FROM heads"
        " JOIN partitions ON partitions.topic_id = heads.topic_id"
        " AND partitions.partition = heads.partition WHERE heads.topic_id = topics.topic_id)",
        "bigint",
        int,
    ),
    size_bytes=Expression(
        "(SELECT COALESCE(SUM(heads.size_bytes), 0) FROM heads"
        " WHERE heads.topic_id = topics.topic_id)",
        "bigint",
        int,
    ),
)


ADOPTED_OFFSETS_END = 1 << 62
"""Half of the offsets that there are in Kafka. The others are left for records written here."""


ADOPTED_EPOCHS_END = 1 << 30
"""Likewise for leader epochs: epochs of this cluster begin above the adopted ones."""


ADOPTED_PRODUCERS_END = 1 << 62
"""Likewise for the numbers of producers."""


class AdoptedProducer(NamedTuple):
    """A producer's last batch, from the newest producer snapshot."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedSegment:
    segment: SegmentToAdd
    uploaded: SegmentUploaded


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionToAdopt:
    """A partition whose segments make one sequence without a gap, each ending after the one before.

    Without segments it is empty, and `log_start` is also where its records will begin.
    """

    partition: PartitionIndex
    log_start: Offset
    segments: Sequence[AdoptedSegment]
    epochs: Sequence[EpochStart]
    """The whole lineage, from the newest leader-epoch checkpoint."""
    producers: Sequence[AdoptedProducer]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToAdopt:
    topic_id: TopicId
    name: str
    configs: Mapping[str, str]
    partitions: Sequence[PartitionToAdopt]
    """All of them, by index from 0."""
