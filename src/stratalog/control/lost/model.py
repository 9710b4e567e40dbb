"""Offsets whose records are known to be lost, and their table."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.control.sql.table import Selection, Table
from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeToNote:
    """Offsets of a partition whose records are lost."""

    topic_id: TopicId
    partition: PartitionIndex
    first_offset: Offset
    end_offset: Offset
    """The first offset behind the range."""
    reason: str
    noted_by: str
    """The principal that said so, or the command that found out."""
    objects: Sequence[str] = ()
    """The keys of the objects that should have held the records, as far as they are known."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic_id, self.partition)

    @property
    def name(self) -> str:
        return f"offsets {self.first_offset} to {self.end_offset - 1} of partition {self.partition}"

    @property
    def objects_json(self) -> str:
        return json.dumps(list(self.objects))


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange(RangeToNote):
    """A row of `lost_ranges`."""

    noted_ms: int


def _read_objects(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


LOST_RANGES = Table(
    "lost_ranges",
    topic_id="uuid",
    partition="integer",
    first_offset="bigint",
    end_offset="bigint",
    reason="text",
    noted_by="text",
    noted_ms="bigint",
    objects="text",
)
LOST_RANGE = Selection(
    LostRange, LOST_RANGES, objects=LOST_RANGES["objects"].decoded(_read_objects)
)
