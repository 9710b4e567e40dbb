"""Sources of topics to adopt: a running Kafka cluster, or a dump of its metadata topic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stratalog.cli.errors import BadOptionError
from stratalog.cli.topic import parse_pairs
from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition

if TYPE_CHECKING:
    from stratalog.topic.adoption_source import SourceTopic

_KEPT_FOR_EVER = {"retention.ms": "-1"}
"""A dump does not tell how long the topic keeps its records. The default would be a week."""

_MANY_DIGITS = 100
"""No number that means something has as many, zeros in front of it included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSource:
    topic: "SourceTopic"
    notes: Sequence[str] = ()
    """Remarks for the person at the terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSource:
    """A topic of a running Kafka cluster."""

    name: str
    bootstrap: str
    options: Mapping[str, str]
    configs: Mapping[str, str]
    """Set on the adopted topic, over the configs that it has in Kafka."""

    def find(self) -> FoundSource:
        from stratalog.cli.foreign_cluster import ForeignCluster
        from stratalog.segment.metadata_fold import fold_records
        from stratalog.segment.remote_log_metadata import metadata_partition
        from stratalog.topic.adoption_source import SourcePartition, SourceTopic, usable_configs

        cluster = ForeignCluster(self.bootstrap, self.options)
        live = cluster.topic(self.name)
        count = cluster.metadata_partition_count()
        keys = [TopicPartition(live.topic_id, index) for index in live.offsets]
        values = cluster.metadata_values({metadata_partition(key, count) for key in keys})
        folded = fold_records(values)
        known, left_out = usable_configs({**live.configs, **self.configs})
        source = SourceTopic(
            name=self.name,
            topic_id=live.topic_id,
            partitions=[
                SourcePartition(
                    partition=key.partition,
                    metadata=folded.partitions.get(key),
                    **live.offsets[key.partition]._asdict(),
                )
                for key in keys
            ],
            configs=known,
        )
        notes = [f"left out: {reason}" for reason in left_out]
        return FoundSource(topic=source, notes=notes + self._retention_notes(live.configs))

    def _retention_notes(self, configs: Mapping[str, str]) -> list[str]:
        if all(configs.get(limit, "-1") == "-1" for limit in ("retention.ms", "retention.bytes")):
            return []
        return [
            f"{self.bootstrap} goes on deleting segments of {self.name} that expire there: set"
            " retention.ms and retention.bytes to -1 in that cluster, or stop it"
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSource:
    """A topic as a dump of `__remote_log_metadata` describes it."""

    name: str
    dump: Path
    configs: Mapping[str, str]
    topic_id: TopicId | None = None
    """Needed if the dump has several topics of the name."""
    partition_count: int | None = None
    log_starts: Mapping[PartitionIndex, Offset] = field(default_factory=dict)

    def find(self) -> FoundSource:
        from stratalog.cli.metadata_dump import read_dump
        from stratalog.segment.metadata_fold import fold_records
        from stratalog.topic.adoption_source import SourcePartition, SourceTopic, topic_in_metadata
        from stratalog.topic_configs import check_configs

        folded = fold_records(read_dump(self.dump))
        found, partitions = topic_in_metadata(folded, self.name, self.topic_id)
        seen = max([*partitions, *self.log_starts]) + 1
        self._check_count(seen)
        source = SourceTopic(
            name=self.name,
            topic_id=found,
            partitions=[
                SourcePartition(
                    partition=index,
                    metadata=partitions.get(index),
                    log_start=self.log_starts.get(index),
                )
                for index in map(PartitionIndex, range(self.partition_count or seen))
            ],
            configs=check_configs({**_KEPT_FOR_EVER, **self.configs}),
        )
        return FoundSource(topic=source, notes=self._notes(seen))

    def _notes(self, seen: int) -> list[str]:
        notes = []
        if self.partition_count is None:
            notes.append(
                f"{self.name} has {seen} partitions, as far as the dump shows: if there are more,"
                " give their number with --partitions"
            )
        if "retention.ms" not in self.configs:
            notes.append(
                "the dump does not tell how long records are kept, so they are kept for ever:"
                f" change it with `stratalog topic alter {self.name} --set retention.ms=...`"
            )
        return notes

    def _check_count(self, seen: int) -> None:
        from stratalog.control.topics.model import MAX_PARTITIONS

        given = self.partition_count
        named = f"the dump, or --log-start, names partition {seen - 1} of {self.name}"
        if given is not None and given < seen:
            raise BadOptionError(f"--partitions {given} is too few: {named}")
        # Checked before a value is made for each partition: a damaged dump can name billions.
        if max(given or 0, seen) > MAX_PARTITIONS:
            reason = f"--partitions {given}" if given else named
            raise BadOptionError(f"{reason}: a topic has up to {MAX_PARTITIONS} partitions")


def parse_starts(texts: Sequence[str] | None) -> dict[PartitionIndex, Offset]:
    from stratalog.control.topics.model import ADOPTED_OFFSETS_END, MAX_PARTITIONS

    starts = {}
    for partition, offset in parse_pairs(texts, "--log-start"):
        given = f'--log-start "{partition}={offset}"'
        if not (partition.isdecimal() and offset.isdecimal()):
            raise BadOptionError(f"{given}: write it as 3=5000")
        if not _is_up_to(partition, MAX_PARTITIONS - 1):
            raise BadOptionError(f"{given}: a topic has up to {MAX_PARTITIONS} partitions")
        if not _is_up_to(offset, ADOPTED_OFFSETS_END):
            raise BadOptionError(f"{given}: no partition begins beyond {ADOPTED_OFFSETS_END}")
        starts[PartitionIndex(int(partition))] = Offset(int(offset))
    return starts


def _is_up_to(digits: str, most: int) -> bool:
    # Python itself refuses to read numbers of thousands of digits.
    return len(digits) < _MANY_DIGITS and int(digits) <= most


def parse_topic_id(text: str | None) -> TopicId | None:
    from stratalog.segment.keys import parse_uuid_text

    if text is None:
        return None
    found = parse_uuid_text(text)
    if found is None:
        raise BadOptionError(f'--topic-id "{text}" is not an id as Kafka prints it')
    return TopicId(found)
