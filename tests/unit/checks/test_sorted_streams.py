from collections.abc import AsyncIterator
from uuid import UUID

from stratalog.checks.sorted_streams import SortedStream, lowest_id
from stratalog.ids import ObjectId


def object_id(number: int) -> ObjectId:
    return ObjectId(UUID(int=number))


async def stream(*numbers: int) -> AsyncIterator[tuple[ObjectId, str]]:
    for number in numbers:
        yield object_id(number), f"value {number}"


async def test_streams_are_taken_side_by_side() -> None:
    left, right = SortedStream(stream(1, 2, 5)), SortedStream(stream(2, 3))
    taken = []
    while (lowest := await lowest_id(left, right)) is not None:
        taken.append((lowest.int, await left.take(lowest), await right.take(lowest)))
    assert taken == [
        (1, "value 1", None),
        (2, "value 2", "value 2"),
        (3, None, "value 3"),
        (5, "value 5", None),
    ]


async def test_streams_without_values_end_at_once() -> None:
    assert await lowest_id(SortedStream(stream()), SortedStream(stream())) is None
