"""Reading partitions: one sequence of offsets, whatever holds the bytes.

Which tier serves an offset follows from the partition's boundaries alone, and those come from the
same snapshot as the rows. An object that is gone although a row named it was deleted between the
look and the read: the offset is resolved once more before the read fails.
"""

import asyncio
from collections.abc import Iterator, Sequence

from stratalog.batch.frames import iter_batches
from stratalog.batch.records import decode_records
from stratalog.block.reader import BlockReader, RowsRead, RowsWanted
from stratalog.clock import Clock
from stratalog.control.model import Coordinates, FoundBatches, PartitionState, Span, TimeQuery
from stratalog.control.plane import ControlPlane, OffsetOutOfRangeError, UnknownTopicError
from stratalog.errors import DamagedError, StratalogError
from stratalog.ids import Offset, TopicPartition
from stratalog.objects.store import ObjectNotFoundError
from stratalog.topic.budget import Wish, fair_shares
from stratalog.topic.model import PartitionRead, TimedOffset
from stratalog.topic.watch import Watermarks

_ROWS_AT_ONCE = 1000


class RowMissingError(DamagedError):
    """No row holds an offset that the partition's boundaries say is there."""


class TopicReader:
    def __init__(
        self,
        *,
        control: ControlPlane,
        blocks: BlockReader,
        watermarks: Watermarks,
        clock: Clock,
        max_bytes: int,
    ) -> None:
        self._control = control
        self._blocks = blocks
        self._watermarks = watermarks
        self._clock = clock
        self._max_bytes = max_bytes
        self._stopping = False

    def stop(self) -> None:
        """Answer readers that wait for new data with what there is."""
        self._stopping = True
        self._watermarks.wake_all()

    async def read(
        self, spans: Sequence[Span], *, max_bytes: int, min_bytes: int, max_wait_ms: int
    ) -> list[PartitionRead]:
        """Answer as soon as there are `min_bytes`, or something to tell, or the wait is over."""
        budget = min(max_bytes, self._max_bytes)
        deadline = self._clock.monotonic() + max_wait_ms / 1000
        with self._watermarks.watch(span.topic_partition for span in spans) as watch:
            while True:
                watch.rest()
                found = await self._control.find_batches(spans)
                for one in found:
                    if one.state is not None:
                        self._watermarks.seen(one.state.topic_partition, one.state.high_watermark)
                left_s = deadline - self._clock.monotonic()
                if left_s <= 0 or self._stopping or _enough(spans, found, min_bytes):
                    break
                await watch.grown(left_s)
        answers = await self._read_found(spans, found, budget)
        return await self._again_if_gone(spans, answers, budget)

    async def _read_found(
        self, spans: Sequence[Span], found: Sequence[FoundBatches], budget: int
    ) -> list[PartitionRead]:
        shares = fair_shares([_wish(*pair) for pair in zip(spans, found, strict=True)], budget)
        wanted = [
            RowsWanted(
                offset=span.offset,
                max_bytes=min(share, span.max_bytes),
                rows=_rows_within(one.rows, share),
            )
            for span, one, share in zip(spans, found, shares, strict=True)
        ]
        rows = await self._blocks.read(wanted)
        return [_partition_read(*three) for three in zip(spans, found, rows, strict=True)]

    async def _again_if_gone(
        self, spans: Sequence[Span], answers: list[PartitionRead], budget: int
    ) -> list[PartitionRead]:
        gone = [
            place
            for place, answer in enumerate(answers)
            if isinstance(answer.error, ObjectNotFoundError)
        ]
        if gone:
            again = [spans[place] for place in gone]
            found = await self._control.find_batches(again)
            for place, answer in zip(
                gone, await self._read_found(again, found, budget), strict=True
            ):
                answers[place] = answer
        return answers

    async def earliest(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, TimedOffset]:
        states = await self._control.partitions(wanted)
        return {key: _untimed(state, state.log_start) for key, state in states.items()}

    async def earliest_local(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, TimedOffset]:
        """The first offset that is not in the remote tier alone."""
        states = await self._control.partitions(wanted)
        return {
            key: _untimed(state, max(state.log_start, state.block_start))
            for key, state in states.items()
        }

    async def latest_tiered(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, TimedOffset | None]:
        """The last offset in the remote tier; None for partitions that have nothing there."""
        states = await self._control.partitions(wanted)
        return {
            key: _untimed(state, Offset(state.remote_end - 1))
            if state.remote_end > state.log_start
            else None
            for key, state in states.items()
        }

    async def latest(
        self, wanted: Sequence[TopicPartition], *, committed: bool = False
    ) -> dict[TopicPartition, TimedOffset]:
        """The next offset to be written or, of committed transactions only, the last stable."""
        states = await self._control.partitions(wanted)
        return {
            key: _untimed(state, state.last_stable if committed else state.high_watermark)
            for key, state in states.items()
        }

    async def newest(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, TimedOffset | None]:
        """The first record with the greatest timestamp, of those partitions that have any."""
        rows = await self._control.find_newest(wanted)
        found = await asyncio.gather(*map(self._newest_from_row, rows))
        return dict(zip(wanted, found, strict=True))

    async def _newest_from_row(self, row: Coordinates | None) -> TimedOffset | None:
        """Usually the row holds the record. It does not if the record was deleted and the row
        stays for what comes after: it is the partition's first row then, and the newest record is
        in what is left of it or in a later row."""
        if row is None:
            return None
        found = await self._first_in_row(row, row.max_timestamp)
        if found is not None:
            return found
        later = await self._newest_row_after(row)
        best = await self._newest_in_row(row)
        if later is None or (best is not None and best.timestamp >= later.max_timestamp):
            return best
        return await self._first_in_row(later, later.max_timestamp)

    async def _newest_row_after(self, row: Coordinates) -> Coordinates | None:
        newest: Coordinates | None = None
        after: Offset | None = row.last_offset
        while after is not None:
            rows = await self._control.all_coordinates(
                TopicPartition(row.topic_id, row.partition), after=after, limit=_ROWS_AT_ONCE
            )
            for one in rows:
                if newest is None or one.max_timestamp > newest.max_timestamp:
                    newest = one
            after = rows[-1].last_offset if len(rows) == _ROWS_AT_ONCE else None
        return newest

    async def at_time(self, queries: Sequence[TimeQuery]) -> list[TimedOffset | None]:
        """For each query the first record that is not older than asked."""
        rows = await self._control.find_by_time(queries)
        times = [query.timestamp for query in queries]
        return list(await asyncio.gather(*map(self._first_from_row, rows, times)))

    async def _first_from_row(self, row: Coordinates | None, timestamp: int) -> TimedOffset | None:
        """Usually the row holds the record. It does not if the record was deleted and the row
        stays for what comes after; then a later row may."""
        while row is not None:
            found = await self._first_in_row(row, timestamp)
            if found is not None:
                return found
            later = await self._control.all_coordinates(
                TopicPartition(row.topic_id, row.partition),
                after=row.last_offset,
                limit=_ROWS_AT_ONCE,
            )
            row = next((one for one in later if one.max_timestamp >= timestamp), None) or (
                later[-1] if later else None
            )
        return None

    async def _first_in_row(self, row: Coordinates, timestamp: int) -> TimedOffset | None:
        read, log_start = await self._read_row(row)
        return await asyncio.to_thread(_first_record, read, timestamp, log_start)

    async def _newest_in_row(self, row: Coordinates) -> TimedOffset | None:
        read, log_start = await self._read_row(row)
        return await asyncio.to_thread(_newest_record, read, log_start)

    async def _read_row(self, row: Coordinates) -> tuple[RowsRead, Offset]:
        """The row's batches, and where the partition starts."""
        want = RowsWanted(offset=row.base_offset, max_bytes=row.byte_size, rows=[row])
        read = (await self._blocks.read([want]))[0]
        if read.error is not None:
            raise read.error
        return read, await self._log_start(row)

    async def _log_start(self, row: Coordinates) -> Offset:
        partition = TopicPartition(row.topic_id, row.partition)
        states = await self._control.partitions([partition])
        if partition not in states:
            raise UnknownTopicError("the topic was deleted")
        return states[partition].log_start


def _wish(span: Span, found: FoundBatches) -> Wish:
    if not found.rows:
        return Wish(0, 0)
    first = found.rows[0].byte_size
    return Wish(first, max(first, min(sum(row.byte_size for row in found.rows), span.max_bytes)))


def _enough(spans: Sequence[Span], found: Sequence[FoundBatches], min_bytes: int) -> bool:
    """Whether an answer now would be worth sending: enough bytes, or an error."""
    if any(_problem(span, one) is not None for span, one in zip(spans, found, strict=True)):
        return True
    return sum(row.byte_size for one in found for row in one.rows) >= min_bytes


def _problem(span: Span, found: FoundBatches) -> StratalogError | None:
    state = found.state
    if state is None:
        return UnknownTopicError("the topic or partition does not exist")
    if not state.log_start <= span.offset <= state.high_watermark:
        return OffsetOutOfRangeError(
            f"offset {span.offset} is outside [{state.log_start}, {state.high_watermark}]"
        )
    if span.offset == state.high_watermark:
        return None
    if not found.rows or not found.rows[0].base_offset <= span.offset:
        return RowMissingError(
            f"no row holds offset {span.offset} of partition {span.partition} of topic "
            f"{span.topic_id}; run `stratalog fsck`"
        )
    return None


def _rows_within(rows: Sequence[Coordinates], share: int) -> list[Coordinates]:
    """The rows that begin inside the share. The last one is cut when it has been read.

    They end where a row is missing: the reader then asks for that offset, and is told of the
    damage instead of being led across it.
    """
    chosen: list[Coordinates] = []
    for row in rows:
        if share <= 0 or (chosen and row.base_offset != chosen[-1].last_offset + 1):
            break
        chosen.append(row)
        share -= row.byte_size
    return chosen


def _partition_read(span: Span, found: FoundBatches, rows: RowsRead) -> PartitionRead:
    error = _problem(span, found) or (rows.error if not rows.parts else None)
    if found.state is None:
        return PartitionRead(error=error)
    return PartitionRead(
        error=error,
        high_watermark=found.state.high_watermark,
        last_stable=found.state.last_stable,
        log_start=found.state.log_start,
        parts=() if error else rows.parts,
    )


def _untimed(state: PartitionState, offset: Offset) -> TimedOffset:
    return TimedOffset(offset=offset, timestamp=-1, leader_epoch=state.leader_epoch)


def _first_record(read: RowsRead, timestamp: int, log_start: Offset) -> TimedOffset | None:
    return next((one for one in _timed(read, timestamp, log_start)), None)


def _newest_record(read: RowsRead, log_start: Offset) -> TimedOffset | None:
    return max(_timed(read, -1, log_start), key=lambda one: one.timestamp, default=None)


def _timed(read: RowsRead, timestamp: int, log_start: Offset) -> Iterator[TimedOffset]:
    """The records that are not older than asked and not deleted, by offset."""
    data = b"".join(read.parts)
    for position, header in iter_batches(data):
        if header.max_timestamp < timestamp or header.last_offset < log_start:
            continue
        for record in decode_records(data, position):
            if record.timestamp >= timestamp and record.offset >= log_start:
                yield TimedOffset(
                    offset=Offset(record.offset),
                    timestamp=record.timestamp,
                    leader_epoch=header.leader_epoch,
                )
