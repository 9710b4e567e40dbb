"""The batches of a byte range of an object, read a window at a time."""

from collections.abc import AsyncIterator

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.frames import iter_batches
from stratalog.batch.header import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, parse_header
from stratalog.objects.store import ObjectStore, Range

_WINDOW_BYTES = 4 * 1024 * 1024
_LENGTH_END = LOG_OVERHEAD_BYTES
_LENGTH_START = LOG_OVERHEAD_BYTES - 4


async def read_batches(
    store: ObjectStore, key: str, start: int, end: int, *, window_bytes: int = _WINDOW_BYTES
) -> AsyncIterator[tuple[int, BatchHeader, memoryview]]:
    """Yield each batch's position in the object, its header and its bytes, without a CRC check.

    Raises `BatchDamagedError`, with a position in the object, where the framing ends.
    """
    position = start
    wanted = window_bytes
    while position < end:
        window_end = min(end, position + wanted)
        (buffer,) = await store.get_ranges(key, [Range(position, window_end)])
        data = memoryview(buffer)
        whole = _whole_batches_end(data) if window_end < end else len(data)
        if whole == 0:
            # One batch is longer than the window.
            wanted = max(_first_size(data), 2 * wanted)
            continue
        try:
            for at, header in iter_batches(data[:whole]):
                yield position + at, header, data[at : at + header.size_bytes]
        except BatchDamagedError as error:
            raise BatchDamagedError(position + error.position, error.reason) from error
        position += whole
        wanted = window_bytes


def _whole_batches_end(data: memoryview) -> int:
    """Return the end of the last whole batch, by the length fields alone.

    Bytes with a length that cannot be right count as whole, so that `iter_batches` reports them.
    """
    position = 0
    while len(data) - position >= HEADER_BYTES:
        size = _first_size(data[position:])
        if size < HEADER_BYTES:
            return len(data)
        if position + size > len(data):
            return position
        position += size
    return position


def _first_size(data: memoryview) -> int:
    if len(data) < HEADER_BYTES:
        return HEADER_BYTES
    length = int.from_bytes(data[_LENGTH_START:_LENGTH_END], signed=True)
    return LOG_OVERHEAD_BYTES + length


def parse_whole_batch(data: memoryview) -> BatchHeader:
    """Parse the header of a batch that must fill these bytes."""
    header = parse_header(data)
    if header.size_bytes != len(data):
        raise BatchDamagedError(
            LOG_OVERHEAD_BYTES - 4, f"the batch has {header.size_bytes} bytes, not {len(data)}"
        )
    return header
