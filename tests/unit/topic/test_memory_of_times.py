"""The memory that a search for times takes, for batches of many small records."""

import tracemalloc
from collections.abc import Iterator

import pytest
from tests.unit.batch.edits import edit
from tests.unit.topic.rig import NOW_MS, TopicRig

from stratalog.batch.build import build_batch
from stratalog.batch.header import Codec, parse_header
from stratalog.batch.records import Record
from stratalog.control.log.model import TimeQuery

COUNT = 60_000
MOST_BYTES = 6 * 1024 * 1024
"""The body has half a megabyte. A list of the records would take 10."""


@pytest.fixture(scope="module")
def many() -> bytes:
    """A batch of 60,000 records without key and value, the last one of which is the newest."""
    records = [Record(at, NOW_MS, None, None) for at in range(COUNT)]
    records[-1] = records[-1]._replace(timestamp=NOW_MS + 7)
    return build_batch(records, codec=Codec.ZSTD)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def grown_bytes(before_bytes: int) -> int:
    return tracemalloc.get_traced_memory()[1] - before_bytes


async def test_the_greatest_timestamp_of_many_records_is_found_in_flat_memory(
    rig: TopicRig, many: bytes, traced: None
) -> None:
    untimed = edit(many, max_timestamp=-1)
    before_bytes = tracemalloc.get_traced_memory()[0]
    assert (await rig.append(0, untimed)).error is None
    assert grown_bytes(before_bytes) < MOST_BYTES
    stored = b"".join((await rig.read_one(0, 0)).parts)
    assert parse_header(stored).max_timestamp == NOW_MS + 7


async def test_a_time_among_many_records_is_found_in_flat_memory(
    rig: TopicRig, many: bytes, traced: None
) -> None:
    assert (await rig.append(0, many)).error is None
    query = TimeQuery(topic_id=rig.topic.id, partition=rig.part().partition, timestamp=NOW_MS + 1)
    tracemalloc.reset_peak()
    before_bytes = tracemalloc.get_traced_memory()[0]
    [found] = await rig.offsets.at_time([query])
    newest = (await rig.offsets.newest([rig.part()]))[rig.part()]
    assert grown_bytes(before_bytes) < MOST_BYTES
    assert found is not None
    assert newest is not None
    assert found.offset == newest.offset == COUNT - 1
