"""Rows that segments have replaced, removed for several partitions at once.

A block holds rows of many partitions, which become segments at the same time. One transaction
removes the rows of all of them, and then looks once whether the block has any row left.
"""

import asyncio
from functools import partial

from stratalog.control.log.trims import remove_rows_below_starts
from stratalog.control.sql.database import Database
from stratalog.ids import TopicPartition

_CHUNK_ROWS = 2000


class ReplacedRows:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._partitions: set[TopicPartition] = set()
        self._removing = asyncio.Lock()

    async def remove(self, partition: TopicPartition) -> None:
        """Remove the rows of the partition, and of others that came during the last removal."""
        self._partitions.add(partition)
        async with self._removing:
            if partition not in self._partitions:
                return
            partitions, self._partitions = sorted(self._partitions), set()
            removed = _CHUNK_ROWS
            while removed == _CHUNK_ROWS:
                removed = await self._database.write(
                    partial(remove_rows_below_starts, partitions=partitions, max_rows=_CHUNK_ROWS)
                )
