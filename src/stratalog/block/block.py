"""A block in the making: batches collected, then sealed into the bytes of one object. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType

from stratalog.batch.entry import EntryBatch
from stratalog.block.footer import (
    BlockFooter,
    EarlierAnswer,
    FooterBatch,
    FooterPartition,
    FooterWriter,
    encode_footer,
)
from stratalog.block.keys import block_key
from stratalog.control.log.model import BatchToCommit, BlockToCommit
from stratalog.ids import BrokerId, ObjectId, ProducerId, TopicPartition

Told = Mapping[TopicPartition, Sequence[EarlierAnswer]]
"""Answers of earlier blocks that a block's footer tells."""


@dataclass(slots=True)
class OpenBlock:
    """Batches in the order in which they arrived. A request's batches stay in one block."""

    batches: list[EntryBatch] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, batches: Sequence[EntryBatch]) -> range:
        """Take the batches in and return their positions."""
        first = len(self.batches)
        self.batches.extend(batches)
        self.size_bytes += sum(len(batch.data) for batch in batches)
        return range(first, len(self.batches))


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedBlock:
    commit: BlockToCommit
    batches: Sequence[EntryBatch]
    """In the block's byte order, as `commit.batches` is."""
    arrival: Sequence[int]
    """For each batch in byte order, its place in the order of arrival."""
    footer: bytes
    writer: FooterWriter | None
    told: Told
    """The answers of earlier blocks that the footer tells."""

    @property
    def parts(self) -> list[memoryview | bytes]:
        """The bytes of the object, to be written one after the other."""
        return [*(batch.data for batch in self.batches), self.footer]


def seal(
    block: OpenBlock,
    *,
    object_id: ObjectId,
    broker_id: BrokerId,
    created_ms: int,
    writer: FooterWriter | None = None,
    told: Told = MappingProxyType({}),
) -> SealedBlock:
    """Sort the batches by partition, keeping the order within one, and lay them out."""
    arrival = sorted(
        range(len(block.batches)), key=lambda place: block.batches[place].topic_partition
    )
    batches = [block.batches[place] for place in arrival]
    positions: list[int] = []
    position = 0
    for batch in batches:
        positions.append(position)
        position += len(batch.data)
    footer = encode_footer(
        BlockFooter(
            block_id=object_id,
            broker_id=broker_id,
            created_ms=created_ms,
            partitions=_footer_partitions(batches, positions, told),
            writer=writer,
        )
    )
    commit = BlockToCommit(
        object_id=object_id,
        key=block_key(object_id),
        size_bytes=position + len(footer),
        broker_id=broker_id,
        batches=[_to_commit(*pair) for pair in zip(batches, positions, strict=True)],
    )
    return SealedBlock(
        commit=commit, batches=batches, arrival=arrival, footer=footer, writer=writer, told=told
    )


def _to_commit(batch: EntryBatch, position: int) -> BatchToCommit:
    header = batch.header
    return BatchToCommit(
        topic_id=batch.topic_id,
        partition=batch.partition,
        byte_offset=position,
        byte_size=len(batch.data),
        last_offset_delta=header.last_offset_delta,
        max_timestamp=header.max_timestamp,
        timestamp_type=batch.timestamp_type,
        producer_id=ProducerId(header.producer_id),
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def _footer_partitions(
    batches: Sequence[EntryBatch], positions: Sequence[int], told: Told
) -> list[FooterPartition]:
    pairs = zip(batches, positions, strict=True)
    return [
        FooterPartition(
            topic_id=key.topic_id,
            topic_name=run[0][0].topic_name,
            partition=key.partition,
            batches=[
                FooterBatch(
                    byte_offset=position,
                    byte_size=len(batch.data),
                    record_count=batch.header.records_count,
                    max_timestamp=batch.header.max_timestamp,
                )
                for batch, position in run
            ],
            answers=tuple(told.get(key, ())),
        )
        for key, run in (
            (key, list(group))
            for key, group in groupby(pairs, key=lambda pair: pair[0].topic_partition)
        )
    ]
