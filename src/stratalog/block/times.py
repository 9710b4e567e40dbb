"""Records of the block tier by their time."""

import asyncio
from collections.abc import Iterator

from stratalog.batch.frames import check_crc, iter_batches
from stratalog.batch.records import iter_times
from stratalog.block.batch_index import BatchIndex, joined
from stratalog.block.reader import BlockReader
from stratalog.control.log.model import Coordinates
from stratalog.ids import LeaderEpoch, Offset
from stratalog.pieces import PiecesWanted, TimedRecord


class BlockTimes:
    """Implements `TierTimes`."""

    def __init__(self, *, blocks: BlockReader, index: BatchIndex) -> None:
        self._blocks = blocks
        self._index = index

    async def first_at_time(
        self, row: Coordinates, timestamp: int, log_start: Offset
    ) -> TimedRecord | None:
        batches = [row] if self._blocks.is_fresh(row) else await self._index.batches(row)
        candidates = [
            batch
            for batch in batches
            if batch.max_timestamp >= timestamp and batch.last_offset >= log_start
        ]
        # The first candidate usually holds the record. It does not if the record was deleted, or if
        # the producer claimed a time that no record has: then all others are read at once.
        for part in (candidates[:1], candidates[1:]):
            if part:
                data = await self._read(joined(part))
                found = await asyncio.to_thread(_first, data, timestamp, log_start)
                if found is not None:
                    return found
        return None

    async def newest(self, row: Coordinates, log_start: Offset) -> TimedRecord | None:
        return await asyncio.to_thread(_newest, await self._read(row), log_start)

    async def _read(self, row: Coordinates) -> bytes:
        want = PiecesWanted(offset=row.base_offset, max_bytes=row.byte_size, pieces=[row])
        read = (await self._blocks.read([want]))[0]
        if read.error is not None:
            raise read.error
        return b"".join(read.parts)


def _first(data: bytes, timestamp: int, log_start: Offset) -> TimedRecord | None:
    return next(_not_older(data, timestamp, log_start), None)


def _newest(data: bytes, log_start: Offset) -> TimedRecord | None:
    return max(_not_older(data, -1, log_start), key=lambda one: one.timestamp, default=None)


def _not_older(data: bytes, timestamp: int, log_start: Offset) -> Iterator[TimedRecord]:
    """Yield the records that are neither older than asked nor deleted, by offset."""
    for position, header in iter_batches(data):
        if header.max_timestamp < timestamp or header.last_offset < log_start:
            continue
        check_crc(data, position, header)
        for offset, time in iter_times(data, position, header):
            if time >= timestamp and offset >= log_start:
                yield TimedRecord(Offset(offset), time, LeaderEpoch(header.leader_epoch))
