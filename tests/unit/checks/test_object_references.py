from collections.abc import Iterator

import pytest
from tests.unit.checks.snapshots import OBJECT, TOPIC, row

from stratalog.checks.object_references import ObjectReference, ObjectReferences
from stratalog.ids import ObjectId, Offset, PartitionIndex, TopicPartition, uuid7

LATER = ObjectId(uuid7(1_800_000_000_000, lambda size: bytes(size)))


@pytest.fixture
def references() -> Iterator[ObjectReferences]:
    references = ObjectReferences()
    yield references
    references.close()


async def test_the_row_that_reaches_furthest_into_each_object_is_kept(
    references: ObjectReferences,
) -> None:
    references.add([row(0, 9)._replace(object_id=LATER, byte_offset=50)])
    references.add([row(10, 19), row(20, 29)._replace(byte_offset=1), row(30, 39)])
    partition = TopicPartition(TOPIC, PartitionIndex(0))
    assert [reference async for reference in references.sorted()] == [
        (
            OBJECT,
            ObjectReference(
                object_id=OBJECT, byte_end=1001, partition=partition, base_offset=Offset(20)
            ),
        ),
        (
            LATER,
            ObjectReference(
                object_id=LATER, byte_end=1050, partition=partition, base_offset=Offset(0)
            ),
        ),
    ]
