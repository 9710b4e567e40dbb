from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.block.entries import OTHER_TOPIC, TOPIC, entry

from stratalog.block.block import OpenBlock, SealedBlock, seal
from stratalog.block.footer import decode_footer
from stratalog.ids import BrokerId, ObjectId, uuid7

BLOCK_ID = ObjectId(uuid7(1_700_000_000_000, lambda size: bytes(size)))


def sealed(block: OpenBlock) -> SealedBlock:
    return seal(block, object_id=BLOCK_ID, broker_id=BrokerId(3), created_ms=123)


def test_a_sealed_block_is_sorted_by_partition_and_keeps_each_partitions_order() -> None:
    block = OpenBlock()
    block.add([entry(1, value=b"first"), entry(0, topic_id=OTHER_TOPIC)])
    block.add([entry(0), entry(1, value=b"second")])
    result = sealed(block)
    assert [batch.topic_partition for batch in result.batches] == [
        (TOPIC, 0),
        (TOPIC, 1),
        (TOPIC, 1),
        (OTHER_TOPIC, 0),
    ]
    assert result.arrival == [2, 0, 3, 1]


def test_requests_get_the_places_of_their_batches() -> None:
    block = OpenBlock()
    assert block.add([entry(), entry()]) == range(2)
    assert block.add([entry()]) == range(2, 3)
    assert block.size_bytes == 3 * len(entry().data)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_coordinates_and_footer_point_at_the_batches_in_the_bytes(partitions: list[int]) -> None:
    block = OpenBlock()
    for index, partition in enumerate(partitions):
        block.add([entry(partition, value=b"%d" % index, records=index % 3 + 1)])
    result = sealed(block)
    data = b"".join(result.parts)
    assert len(data) == result.commit.size_bytes
    for batch, place in zip(result.batches, result.commit.batches, strict=True):
        assert data[place.byte_offset : place.byte_offset + place.byte_size] == batch.data
    footer = decode_footer(result.footer)
    assert footer.block_id == BLOCK_ID
    described = [
        (part.topic_id, part.partition, batch.byte_offset, batch.byte_size, batch.record_count)
        for part in footer.partitions
        for batch in part.batches
    ]
    assert described == [
        (place.topic_id, place.partition, place.byte_offset, place.byte_size, count)
        for place, count in zip(
            result.commit.batches,
            (batch.header.records_count for batch in result.batches),
            strict=True,
        )
    ]


def test_the_key_tells_the_hour_of_the_blocks_id() -> None:
    block = OpenBlock()
    block.add([entry()])
    assert sealed(block).commit.key == f"blocks/2023/11/14/22/{UUID(int=BLOCK_ID.int)}"
