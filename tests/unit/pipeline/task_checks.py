"""Checks of the objects that merge and split tasks write."""

from itertools import pairwise

from tests.unit.pipeline.world import (
    World,
)

from stratalog.batch.frames import check_crc, iter_batches
from stratalog.block.keys import parse_split_key
from stratalog.control.log.commit_plan import MAX_ROW_BYTES
from stratalog.control.log.model import Coordinates
from stratalog.pipeline.kinds.merge_model import LogMade
from stratalog.pipeline.kinds.merge_task import source_run
from stratalog.pipeline.kinds.split_model import SplitMade
from stratalog.pipeline.plan.tasks import TaskDone
from stratalog.segment.build import SegmentBuilder
from stratalog.segment.keys import parse_segment_key


async def check_logs(world: World, done: TaskDone) -> None:
    """Every log holds exactly the stamped batches of its rows, and its indexes are theirs."""
    for log in done.made:
        rows = [
            row
            for row in world.rows[partition_of(log)]
            if log.built.base_offset <= row.base_offset <= log.built.last_offset
        ]
        expected = await world.log_of(rows)
        assert await world.log_in_store(log.key_base) == expected
        builder = SegmentBuilder(log.built.base_offset, index_interval_bytes=200)
        position = 0
        for row in rows:
            data = bytearray(expected[position : position + row.byte_size])
            builder.add(data, source_run(*[row._replace(stamped=True)] * 2))
            position += row.byte_size
        assert builder.finish() == log.built


def partition_of(log: LogMade) -> int:
    key = parse_segment_key(log.key_base + ".log", "segments/")
    assert key is not None
    return key.partition


async def bytes_of(world: World, rows: list[Coordinates]) -> bytes:
    (key,) = {row.object_key for row in rows}
    data = bytes((await world.store.get(key)).data)
    return b"".join(data[row.byte_offset : row.byte_offset + row.byte_size] for row in rows)


async def check_split(world: World, done: TaskDone) -> SplitMade:
    """The new rows hold the stamped batches of the old ones, and tell the truth about them."""
    made: SplitMade
    (made,) = done.made
    assert parse_split_key(made.key) == made.object_id
    stored = bytes((await world.store.get(made.key)).data)
    assert made.size_bytes == len(stored)
    position = 0
    for part in made.parts:
        rows = [*part.new_rows]
        assert rows[0].byte_offset == position
        assert await bytes_of(world, rows) == await world.log_of(part.old_rows)
        assert rows[0].base_offset == part.old_rows[0].base_offset
        assert rows[-1].last_offset == part.old_rows[-1].last_offset
        for before, row in pairwise(rows):
            assert row.byte_offset == before.byte_offset + before.byte_size
            assert row.base_offset == before.last_offset + 1
            assert row.committed_ms >= before.committed_ms
        for row in rows:
            check_row(row, part.old_rows, stored)
        position = rows[-1].byte_offset + rows[-1].byte_size
    return made


def check_row(row: Coordinates, old_rows: object, stored: bytes) -> None:
    assert isinstance(old_rows, list)
    sources = [
        old
        for old in old_rows
        if old.last_offset >= row.base_offset and old.base_offset <= row.last_offset
    ]
    assert row.stamped
    assert row.committed_ms == max(old.committed_ms for old in sources)
    assert row.oldest_ms == min(old.oldest_commit_ms for old in sources)
    assert {(row.leader_epoch, row.timestamp_type)} == {
        (old.leader_epoch, old.timestamp_type) for old in sources
    }
    data = stored[row.byte_offset : row.byte_offset + row.byte_size]
    headers = [header for _, header in iter_batches(data)]
    for position, header in iter_batches(data):
        check_crc(data, position, header)
    assert row.byte_size <= MAX_ROW_BYTES or len(headers) == 1
    assert headers[0].base_offset == row.base_offset
    assert headers[-1].last_offset == row.last_offset
    assert {header.leader_epoch for header in headers} == {row.leader_epoch}
    assert row.max_timestamp == max(header.max_timestamp for header in headers)
