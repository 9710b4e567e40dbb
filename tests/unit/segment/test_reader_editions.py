"""Objects of one segment id in two places, or one after the other: the caches keep them apart."""

from dataclasses import replace

import pytest
from tests.unit.segment.reading import KEYS, MODES, Shelf, read, records
from tests.unit.segment.runs import batch

from stratalog.control.segments.model import Segment
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.settings import RemoteSettings

OLD, NEW = 900, 901
"""The sizes of the values tell the two apart."""


async def shelf_of(mode: str, value_bytes: int) -> tuple[Shelf, Segment]:
    shelf = Shelf()
    return shelf, await shelf.add(
        [batch(1, value_bytes=value_bytes) for _ in range(200)], MODES[mode]
    )


async def read_all(reader: SegmentReader, segment: Segment) -> set[int]:
    """Read on as a consumer does, so that plain logs are read ahead, and return the sizes of all
    values."""
    sizes: set[int] = set()
    offset = 0
    while offset < segment.end_offset:
        answer = await read(reader, [segment], offset, 20_000)
        assert answer.error is None
        found = records(answer)
        sizes.update(len(record.value or b"") for record in found)
        offset = found[-1].offset + 1
    return sizes


@pytest.mark.parametrize("mode", MODES)
async def test_a_segment_that_was_adopted_from_another_store_is_not_read_from_the_cache(
    mode: str,
) -> None:
    (old, was), (new, now) = await shelf_of(mode, OLD), await shelf_of(mode, NEW)
    assert was.segment_id == now.segment_id
    stores = SegmentStores(old.store, {"s3://old": old.store, "s3://new": new.store}.__getitem__)
    reader = SegmentReader(stores=stores, keys=KEYS, settings=RemoteSettings())
    for store_url, segment, size in (("s3://old", was, OLD), ("s3://new", now, NEW)) * 2:
        assert await read_all(reader, replace(segment, store_url=store_url)) == {size}
    await reader.close()


@pytest.mark.parametrize("mode", ["zstd", "aes", "both"])
async def test_an_upload_under_the_same_key_is_not_read_from_the_cache(mode: str) -> None:
    """As after a restore: the row has another manifest, and the object other bytes."""
    (shelf, was), (other, now) = await shelf_of(mode, OLD), await shelf_of(mode, NEW)
    reader = shelf.reader()
    assert await read_all(reader, was) == {OLD}
    assert now.key_base == was.key_base
    for suffix in (".log", ".indexes"):
        key = was.key_base + suffix
        await shelf.store.put(key, [(await other.store.get(key)).data])
    assert await read_all(reader, now) == {NEW}
    await reader.close()
