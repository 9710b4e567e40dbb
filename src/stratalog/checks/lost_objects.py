"""An object of blocks or split files that is lost: all ranges of offsets whose rows lie in it.

Each range is marked in a transaction of its own (`lost_ranges.py`). A crash between two of them
leaves the rest of the object's rows as they were, and the next plan has these alone.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from stratalog.block.keys import parse_block_key, parse_split_key
from stratalog.checks.errors import LostRangeError
from stratalog.checks.lost_ranges import LossPlan, plan_loss
from stratalog.control.log.model import Coordinates
from stratalog.control.plane import ControlPlane
from stratalog.ids import Offset, TopicPartition
from stratalog.objects.store import ObjectStore

_PARALLEL_PLANS = 8
"""A block may have rows of thousands of partitions."""


class LostPart(NamedTuple):
    topic_name: str
    plan: LossPlan


async def plan_object_loss(control: ControlPlane, store: ObjectStore, key: str) -> list[LostPart]:
    """Look at all rows of an object, and at its bytes if there are any."""
    object_id = parse_block_key(key) or parse_split_key(key)
    if object_id is None:
        raise LostRangeError(f"{key} is not the key of a block or a split file")
    rows = await control.lost.rows_in(object_id)
    if not rows:
        raise LostRangeError(f"no records are served out of {key}: nothing is to be marked")
    names = {topic.id: topic.name for topic in await control.topics.all()}
    planning = asyncio.Semaphore(_PARALLEL_PLANS)

    async def plan(partition: TopicPartition, first: Offset, end: Offset) -> LostPart:
        async with planning:
            found = await plan_loss(control, store, partition, first, end)
        # The topic may have been deleted between the two looks.
        return LostPart(names.get(partition.topic_id, str(partition.topic_id)), found)

    return list(await asyncio.gather(*(plan(*each) for each in _ranges(rows))))


def _ranges(rows: Iterable[Coordinates]) -> list[tuple[TopicPartition, Offset, Offset]]:
    """Return the ranges of adjoining rows."""
    ranges: list[tuple[TopicPartition, Offset, Offset]] = []
    for row in rows:
        key = TopicPartition(row.topic_id, row.partition)
        if ranges and ranges[-1][0] == key and ranges[-1][2] == row.base_offset:
            first = ranges.pop()[1]
        else:
            first = row.base_offset
        ranges.append((key, first, Offset(row.last_offset + 1)))
    return ranges
