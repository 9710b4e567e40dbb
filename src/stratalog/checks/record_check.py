"""The check that the records of a batch can be decoded. Framing and CRC say nothing about them."""

from collections import deque

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.header import BatchHeader
from stratalog.batch.records import iter_body
from stratalog.segment.thread_offload import offload


async def record_fault(header: BatchHeader, batch: memoryview) -> str | None:
    """Tell why the records cannot be decoded. None if they can."""
    return await offload(len(batch), _fault, header, batch)


def _fault(header: BatchHeader, batch: memoryview) -> str | None:
    try:
        deque(iter_body(batch, 0, header), maxlen=0)
    except BatchDamagedError as error:
        return f"its records cannot be decoded: {error.reason}"
    return None
