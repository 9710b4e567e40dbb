"""Evidence from the objects that a survey found, by partition. Pure."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from uuid import UUID

from stratalog.block.footer import EarlierAnswer, FooterPartition, FooterRange
from stratalog.control.log.model import Coordinates
from stratalog.ids import TopicId, TopicPartition, WriterTag, uuid7_time_ms
from stratalog.recovery.evidence import (
    BatchSequence,
    BlockPart,
    FoundSegment,
    PartBatch,
    PartitionEvidence,
    Source,
    Stretch,
)
from stratalog.recovery.ground import Ground
from stratalog.recovery.headers import HeaderReader
from stratalog.recovery.survey import FoundObject, Survey

_TIMED = 7
"""The version of UUIDs that begin with a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRange:
    """A range of a split file, as the item of a stretch."""

    found: FoundObject
    entry: FooterRange


@dataclass(slots=True)
class _Gathered:
    stretches: list[Stretch] = field(default_factory=list)
    segments: list[FoundSegment] = field(default_factory=list)
    parts: list[BlockPart] = field(default_factory=list)
    answers: dict[tuple[Hashable, int], EarlierAnswer] = field(default_factory=dict)


class Findings:
    """All evidence, and the names of topics and the numbers of partitions that it tells of."""

    def __init__(self, ground: Ground, found: Survey) -> None:
        self._ground = ground
        self._found = found
        self._deletions = found.deletions
        self._gathered: dict[TopicPartition, _Gathered] = defaultdict(_Gathered)
        self.names: dict[TopicId, str] = {}
        """From the newest object of each topic, because a topic may have been renamed."""
        self.newest_ms: dict[TopicId, int] = defaultdict(int)
        """The time of the newest object of each topic."""
        self.never_committed: list[FoundObject] = []
        """Blocks whose writer committed later ones, so that these were given up."""
        for each in sorted(found.objects, key=lambda one: one.footer.block_id):
            self._add_object(each)
        for segment in found.segments:
            added = segment.segment
            self._name(added.topic_id, segment.topic_name, added.segment_id)
            self._gathered[added.topic_partition].segments.append(
                FoundSegment(added.base_offset, added.last_offset + 1, segment)
            )

    def partition_counts(self) -> dict[TopicId, int]:
        counts: dict[TopicId, int] = {}
        for key in self._gathered:
            if not self._is_deleted(key.topic_id):
                counts[key.topic_id] = max(counts.get(key.topic_id, 0), key.partition + 1)
        return counts

    def evidence(self) -> list[PartitionEvidence]:
        # A note alone makes no partition: its topic may be gone for good.
        keys = sorted({*self._gathered, *self._ground.states})
        return [self._evidence(key) for key in keys if not self._is_deleted(key.topic_id)]

    def _is_deleted(self, topic_id: UUID) -> bool:
        return topic_id in self._ground.deleted

    def _name(self, topic_id: TopicId, name: str, object_id: UUID) -> None:
        # Segments of early versions have random ids.
        time_ms = uuid7_time_ms(object_id) if object_id.version == _TIMED else 0
        if time_ms >= self.newest_ms[topic_id]:
            self.names[topic_id] = name
            self.newest_ms[topic_id] = time_ms

    def _add_object(self, found: FoundObject) -> None:
        writer = found.footer.writer
        if writer is not None and self._was_given_up(found, writer.tag):
            self.never_committed.append(found)
            return
        for partition in found.footer.partitions:
            self._name(partition.topic_id, partition.topic_name, found.footer.block_id)
            gathered = self._gathered[TopicPartition(partition.topic_id, partition.partition)]
            if found.footer.stamped:
                gathered.stretches += _split_stretches(found, partition)
                continue
            gathered.parts.append(_part(found, partition))
            if writer is not None:
                for each in partition.answers:
                    gathered.answers[writer.tag, each.sequence] = each

    def _was_given_up(self, found: FoundObject, tag: WriterTag) -> bool:
        return uuid7_time_ms(found.footer.block_id) < self._ground.newest_ms.get(tag, 0)

    def _evidence(self, key: TopicPartition) -> PartitionEvidence:
        state, gathered = self._ground.states.get(key), self._gathered[key]
        note = self._deletions.records.get(key)
        deleted_before = 0 if note is None else note.before
        if state is None:
            return PartitionEvidence(
                key=key, log_start=0, remote_end=0, block_start=0, high_watermark=0, is_new=True,
                deleted_before=deleted_before,
                stretches=gathered.stretches, segments=gathered.segments, parts=gathered.parts,
                answers=gathered.answers,
            )  # fmt: skip
        return PartitionEvidence(
            key=key,
            log_start=state.log_start,
            remote_end=state.remote_end,
            block_start=state.block_start,
            high_watermark=state.high_watermark,
            deleted_before=deleted_before,
            stretches=[*self._known_rows(self._ground.rows.get(key, ())), *gathered.stretches],
            segments=gathered.segments,
            parts=gathered.parts,
            answers=gathered.answers,
        )

    def _known_rows(self, rows: Iterable[Coordinates]) -> Iterable[Stretch]:
        for row in rows:
            source = Source.KNOWN if row.object_id in self._found.stored else Source.LOST
            yield Stretch(row.base_offset, row.end_offset, source, row)


def _split_stretches(found: FoundObject, partition: FooterPartition) -> Iterable[Stretch]:
    for entry in partition.batches:
        if isinstance(entry, FooterRange):
            item = SplitRange(found=found, entry=entry)
            yield Stretch(entry.base_offset, entry.last_offset + 1, Source.SPLIT, item)


def _part(found: FoundObject, partition: FooterPartition) -> BlockPart:
    footer = found.footer
    writer = footer.writer
    return BlockPart(
        # A block without a writer tells nothing of the order: it is a writer of its own.
        writer=footer.block_id if writer is None else writer.tag,
        sequence=0 if writer is None else writer.sequence,
        commits=0 if writer is None else writer.commits,
        object_id=footer.block_id,
        object_key=found.info.key,
        size_bytes=found.info.size_bytes,
        created_ms=footer.created_ms,
        batches=[
            PartBatch(
                byte_offset=each.byte_offset,
                byte_size=each.byte_size,
                record_count=each.record_count,
                max_timestamp=-1 if each.max_timestamp is None else each.max_timestamp,
            )
            for each in partition.batches
        ],
    )


async def with_sequences(evidence: PartitionEvidence, headers: HeaderReader) -> PartitionEvidence:
    """Read the producers' sequences, if no footer tells of some blocks of the partition."""
    told = evidence.answers
    if all((part.writer, part.sequence) in told for part in evidence.parts):
        return evidence
    parts = [await _with_sequences(part, headers) for part in evidence.parts]
    return replace(evidence, parts=parts)


async def _with_sequences(part: BlockPart, headers: HeaderReader) -> BlockPart:
    places = [batch.byte_offset for batch in part.batches]
    await headers.read(part.object_id, part.object_key, places)
    return replace(
        part,
        batches=[
            replace(batch, sequence=_sequence(headers, part, batch)) for batch in part.batches
        ],
    )


def _sequence(headers: HeaderReader, part: BlockPart, batch: PartBatch) -> BatchSequence | None:
    header = headers.at(part.object_id, batch.byte_offset)
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    return BatchSequence(header.producer_id, header.producer_epoch, header.base_sequence)
