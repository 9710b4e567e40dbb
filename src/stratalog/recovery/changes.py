"""The rows of the control plane that a plan asks for."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from stratalog.batch.header import BatchHeader, TimestampType
from stratalog.control.log.commit_plan import MAX_ROW_BYTES
from stratalog.control.log.model import Coordinates, PartitionState
from stratalog.control.log.sequences import KEPT_BATCHES, ProducerState, pack_batch
from stratalog.control.recoveries.model import RecoveredPartition
from stratalog.control.segments.model import EpochStart
from stratalog.ids import LeaderEpoch, Offset, ProducerId, TopicPartition
from stratalog.recovery.block_offsets import BlockBatch
from stratalog.recovery.evidence import Source, Stretch
from stratalog.recovery.findings import SplitRange
from stratalog.recovery.headers import HeaderReader
from stratalog.recovery.layout import PartitionPlan
from stratalog.recovery.survey import FoundSegmentObjects


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewBatch:
    """A batch, or the first of a range, with its header."""

    coordinates: Coordinates
    header: BatchHeader
    is_whole: bool
    """True if it is one batch, so that the header tells of all its records."""


async def recovered_partition(
    plan: PartitionPlan,
    state: PartitionState | None,
    known: Sequence[Coordinates],
    headers: HeaderReader,
) -> RecoveredPartition:
    fresh = [
        await _new_batch(row, plan.evidence.key, state, headers)
        for row in plan.rows
        if row.source not in (Source.KNOWN, Source.LOST)
    ]
    kept = {row.item for row in plan.rows if row.source in (Source.KNOWN, Source.LOST)}
    segments = [_found(segment.item) for segment in plan.segments]
    rows = list(_in_order_of_time(_coalesced(fresh), known))
    epochs = sorted({epoch for one in segments for epoch in one.segment.leader_epochs})
    last_ms = max((row.committed_ms for row in rows), default=0)
    return RecoveredPartition(
        key=plan.evidence.key,
        log_start=Offset(plan.log_start),
        remote_end=Offset(plan.remote_end),
        block_start=Offset(plan.block_start),
        high_watermark=Offset(plan.taken_end),
        leader_epoch=_last_epoch(state, epochs, rows),
        last_commit_ms=max(last_ms, 0 if state is None else state.last_commit_ms),
        epochs=[*epochs, *_row_epochs(rows)],
        segments=[(one.segment, one.uploaded) for one in segments],
        removed_rows=[row for row in known if row not in kept],
        new_rows=rows,
        forget_producers=_was_not_read(plan, fresh),
        producers=_producers(fresh),
    )


def _was_not_read(plan: PartitionPlan, fresh: Sequence[_NewBatch]) -> bool:
    new_from = plan.evidence.high_watermark
    if any(segment.end > new_from for segment in plan.segments):
        return True
    return any(not one.is_whole and one.coordinates.end_offset > new_from for one in fresh)


def _found(item: object) -> FoundSegmentObjects:
    assert isinstance(item, FoundSegmentObjects)
    return item


async def _new_batch(
    stretch: Stretch, key: TopicPartition, state: PartitionState | None, headers: HeaderReader
) -> _NewBatch:
    if isinstance(stretch.item, SplitRange):
        return await _split_row(stretch, stretch.item, key, headers)
    assert isinstance(stretch.item, BlockBatch)
    return await _block_row(stretch, stretch.item, key, state, headers)


async def _split_row(
    stretch: Stretch, item: SplitRange, key: TopicPartition, headers: HeaderReader
) -> _NewBatch:
    entry, footer = item.entry, item.found.footer
    await headers.read(footer.block_id, item.found.info.key, [entry.byte_offset])
    header = headers.at(footer.block_id, entry.byte_offset)
    coordinates = Coordinates(
        *key,
        Offset(stretch.base),
        Offset(stretch.end - 1),
        footer.block_id,
        item.found.info.key,
        entry.byte_offset,
        entry.byte_size,
        -1 if entry.max_timestamp is None else entry.max_timestamp,
        header.timestamp_type,
        footer.created_ms,
        LeaderEpoch(header.leader_epoch),
        True,
    )
    return _NewBatch(coordinates=coordinates, header=header, is_whole=entry.batch_count == 1)


async def _block_row(
    stretch: Stretch,
    item: BlockBatch,
    key: TopicPartition,
    state: PartitionState | None,
    headers: HeaderReader,
) -> _NewBatch:
    part, batch = item
    await headers.read(part.object_id, part.object_key, [each.byte_offset for each in part.batches])
    header = headers.at(part.object_id, batch.byte_offset)
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    coordinates = Coordinates(
        *key,
        Offset(stretch.base),
        Offset(stretch.end - 1),
        part.object_id,
        part.object_key,
        batch.byte_offset,
        batch.byte_size,
        part.created_ms if is_append_time else batch.max_timestamp,
        header.timestamp_type,
        part.created_ms,
        LeaderEpoch(0 if state is None else state.leader_epoch),
        False,
    )
    return _NewBatch(coordinates=coordinates, header=header, is_whole=True)


def _coalesced(fresh: Iterable[_NewBatch]) -> Iterator[Coordinates]:
    """Join the batches of blocks that adjoin, as a commit does."""
    row: Coordinates | None = None
    for each in fresh:
        batch = each.coordinates
        if row is not None and _adjoins(row, batch):
            row = row._replace(
                byte_size=row.byte_size + batch.byte_size,
                last_offset=batch.last_offset,
                max_timestamp=max(row.max_timestamp, batch.max_timestamp),
            )
            continue
        if row is not None:
            yield row
        row = batch
    if row is not None:
        yield row


def _adjoins(row: Coordinates, batch: Coordinates) -> bool:
    return (
        not row.stamped
        and row.object_id == batch.object_id
        and row.byte_offset + row.byte_size == batch.byte_offset
        and row.end_offset == batch.base_offset
        and row.timestamp_type is batch.timestamp_type
        and row.byte_size + batch.byte_size <= MAX_ROW_BYTES
    )


def _in_order_of_time(
    rows: Iterable[Coordinates], known: Sequence[Coordinates]
) -> Iterator[Coordinates]:
    """Let commit times grow with the offsets, as the pipeline and retention expect.

    The true time of a commit is not known. A block was committed after it was sealed, so that
    rows become too young at the worst, and are kept for longer.
    """
    latest_ms = 0
    earlier = iter(known)
    before = next(earlier, None)
    for row in rows:
        while before is not None and before.last_offset < row.base_offset:
            latest_ms = max(latest_ms, before.committed_ms)
            before = next(earlier, None)
        # Rows of the control plane that follow have a time that must not be exceeded.
        most_ms = row.committed_ms if before is None else min(row.committed_ms, before.committed_ms)
        latest_ms = max(latest_ms, most_ms)
        yield row._replace(committed_ms=latest_ms)


def _last_epoch(
    state: PartitionState | None, epochs: Sequence[EpochStart], rows: Sequence[Coordinates]
) -> LeaderEpoch:
    found = [epoch.epoch for epoch in epochs] + [row.leader_epoch for row in rows]
    return LeaderEpoch(max([0 if state is None else state.leader_epoch, *found]))


def _row_epochs(rows: Sequence[Coordinates]) -> list[EpochStart]:
    ordered = sorted(rows, key=lambda row: row.base_offset)
    return [
        EpochStart(epoch, next(group).base_offset)
        for epoch, group in groupby(ordered, key=lambda row: row.leader_epoch)
    ]


def _producers(fresh: Sequence[_NewBatch]) -> dict[ProducerId, ProducerState]:
    """The last sequences of the producers whose batches were read."""
    found: dict[int, list[tuple[int, bytes]]] = {}
    for each in fresh:
        header = each.header
        if not each.is_whole or header.producer_id < 0 or header.base_sequence < 0:
            continue
        packed = pack_batch(
            last_sequence=header.base_sequence + header.last_offset_delta & (1 << 31) - 1,
            last_offset_delta=header.last_offset_delta,
            base_offset=each.coordinates.base_offset,
            append_time_ms=each.coordinates.committed_ms,
        )
        found.setdefault(header.producer_id, []).append((header.producer_epoch, packed))
    return {ProducerId(producer): _state(batches) for producer, batches in found.items()}


def _state(batches: Sequence[tuple[int, bytes]]) -> ProducerState:
    epoch = batches[-1][0]
    recent = [packed for own, packed in map(itemgetter(0, 1), batches) if own == epoch]
    return ProducerState(epoch, b"".join(recent[-KEPT_BATCHES:]))
