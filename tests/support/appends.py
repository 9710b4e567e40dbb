"""Waits for appends, as the connections of producers do."""

import asyncio

from stratalog.topic.append import PendingAppend
from stratalog.topic.model import PartitionWritten


async def durable(pending: PendingAppend) -> list[PartitionWritten]:
    """The answers of an append, when its writes are durable or refused."""
    await asyncio.wait([pending.done])
    return pending.answers()
