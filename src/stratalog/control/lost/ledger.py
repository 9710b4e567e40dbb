"""The ledger of lost ranges: which offsets have no records any more, why, and who said so.

A note changes nothing that is read. It is the record of a loss, and `fsck` accepts offsets without
records only where there is one.
"""

from collections.abc import Sequence
from functools import partial

from stratalog.control.log.model import COORDINATES, Coordinates
from stratalog.control.lost.fill import FillOperations
from stratalog.control.lost.model import LOST_RANGE, LostRange, RangeToNote
from stratalog.control.lost.notes import note_lost
from stratalog.control.lost.swap import SwapOperations
from stratalog.ids import ObjectId, TopicId

_SELECT = f"SELECT {LOST_RANGE.columns} FROM lost_ranges"
_ORDER = "ORDER BY topic_id, partition, first_offset, end_offset"
_SERVED = f"""
    SELECT {COORDINATES.columns} FROM batches
    JOIN objects ON objects.object_id = batches.object_id
    JOIN topics ON topics.topic_id = batches.topic_id AND topics.deleted_ms IS NULL
    JOIN partitions ON partitions.topic_id = batches.topic_id
        AND partitions.partition = batches.partition
    WHERE batches.object_id = $1 AND batches.last_offset >= partitions.block_start
    ORDER BY batches.topic_id, batches.partition, batches.last_offset
"""


class LostRangesLedger(FillOperations, SwapOperations):
    async def record(self, ranges: Sequence[RangeToNote]) -> None:
        """Note ranges as lost. May be repeated: the first note of a range stays."""
        await self._database.write(partial(note_lost, ranges=ranges))

    async def rows_in(self, object_id: ObjectId) -> list[Coordinates]:
        """Return the rows that serve records out of an object, by partition and offset."""
        rows = await self._database.read(lambda connection: connection.fetch(_SERVED, object_id))
        return COORDINATES.read_all(rows)

    async def of_topic(self, topic_id: TopicId) -> list[LostRange]:
        """Return the lost ranges of a topic, by partition and offset."""
        rows = await self._database.read(
            lambda connection: connection.fetch(f"{_SELECT} WHERE topic_id = $1 {_ORDER}", topic_id)
        )
        return LOST_RANGE.read_all(rows)
