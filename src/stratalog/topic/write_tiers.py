"""The tiers that partitions are written to, as this broker knows them.

A partition that writes to blocks never leaves them, so that answer is remembered. Every other
answer ends with a migration, which may be another broker's doing, and is asked for each time.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from stratalog.control.log.model import WriteTier
from stratalog.control.plane import ControlPlane
from stratalog.ids import TopicPartition

_MAX_REMEMBERED = 100_000
"""Partitions, oldest first. One costs about a hundred bytes."""


class WriteTiers:
    def __init__(self, control: ControlPlane) -> None:
        self._control = control
        self._blocks: OrderedDict[TopicPartition, None] = OrderedDict()

    async def find(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, WriteTier]:
        """Find the tier of each partition.

        A partition that does not exist counts as one of blocks: the commit decides whether a
        partition exists, in the transaction that would write to it.
        """
        wanted = list(partitions)
        unknown = [partition for partition in wanted if partition not in self._blocks]
        found: dict[TopicPartition, WriteTier] = {}
        if unknown:
            states = await self._control.log.partitions(unknown)
            found = {partition: state.write_tier for partition, state in states.items()}
            self._remember(found)
        return {partition: found.get(partition, WriteTier.BLOCK) for partition in wanted}

    def forget(self, partition: TopicPartition) -> None:
        self._blocks.pop(partition, None)

    def _remember(self, found: Mapping[TopicPartition, WriteTier]) -> None:
        for partition, tier in found.items():
            if tier is WriteTier.BLOCK:
                self._blocks[partition] = None
        while len(self._blocks) > _MAX_REMEMBERED:
            self._blocks.popitem(last=False)
