"""A block in the making: batches collected, then sealed into the bytes of one object. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, islice
from types import MappingProxyType

from stratalog.batch.entry import EntryBatch, PartitionKey, partition_of
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
from stratalog.ids import BrokerId, ObjectId, ProducerId

Told = Mapping[PartitionKey, Sequence[EarlierAnswer]]
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
    partitions = list(map(partition_of, block.batches))
    arrival = sorted(range(len(partitions)), key=partitions.__getitem__)
    batches = [block.batches[place] for place in arrival]
    *positions, data_bytes = accumulate((len(batch.data) for batch in batches), initial=0)
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
        size_bytes=data_bytes + len(footer),
        broker_id=broker_id,
        batches=list(map(_to_commit, batches, positions)),
    )
    return SealedBlock(
        commit=commit, batches=batches, arrival=arrival, footer=footer, writer=writer, told=told
    )


def _to_commit(batch: EntryBatch, position: int) -> BatchToCommit:
    # In the order of the fields: with their names it takes twice as long.
    header = batch.header
    return BatchToCommit(
        batch.topic_id,
        batch.partition,
        position,
        len(batch.data),
        header.last_offset_delta,
        header.max_timestamp,
        batch.timestamp_type,
        ProducerId(header.producer_id),
        header.producer_epoch,
        header.base_sequence,
    )


def _footer_partitions(
    batches: Sequence[EntryBatch], positions: Sequence[int], told: Told
) -> list[FooterPartition]:
    entries = map(_footer_batch, batches, positions)
    # A run of batches takes as many of the entries.
    return [
        FooterPartition(
            run[0].topic_id,
            run[0].topic_name,
            run[0].partition,
            list(islice(entries, len(run))),
            tuple(told.get(key, ())),
        )
        for key, run in runs(batches)
    ]


def _footer_batch(batch: EntryBatch, position: int) -> FooterBatch:
    header = batch.header
    return FooterBatch(position, len(batch.data), header.records_count, header.max_timestamp)


def runs(batches: Iterable[EntryBatch]) -> Iterator[tuple[PartitionKey, list[EntryBatch]]]:
    """Group batches in byte order by their partitions."""
    return ((key, list(run)) for key, run in groupby(batches, partition_of))
