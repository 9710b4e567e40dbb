"""Topics whose records lie in segments and in blocks, and reads of them."""

from tests.unit.topic.rig import TopicRig, batch

from stratalog.ids import Offset, ProducerId
from stratalog.segment.model import AbortedTransaction
from stratalog.topic.model import PartitionRead

FOR_EVER_MS = 600_000
FIRST = AbortedTransaction(ProducerId(7), Offset(0), Offset(1), Offset(2))


async def fill(rig: TopicRig, partition: int, *values: bytes) -> None:
    """One row, of one batch, per value."""
    for value in values:
        await rig.append(partition, batch(value))


async def read_from(rig: TopicRig, offset: int, *, max_bytes: int = 1 << 20) -> PartitionRead:
    [answer] = await rig.read(rig.span(0, offset), max_bytes=max_bytes)
    return answer
