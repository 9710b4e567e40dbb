"""Reading a byte range of an object batch by batch, a window at a time."""

from collections.abc import AsyncIterator

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.frames import iter_batches
from stratalog.batch.header import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, parse_header
from stratalog.objects.store import ObjectStore, Range

_WINDOW_BYTES = 4 * 1024 * 1024
_LENGTH_END = LOG_OVERHEAD_BYTES
_LENGTH_START = LOG_OVERHEAD_BYTES - 4


async def walk_batches(
    store: ObjectStore, key: str, start: int, end: int, *, window_bytes: int = _WINDOW_BYTES
) -> AsyncIterator[tuple[int, BatchHeader, memoryview]]:
    """Each batch's place in the object, its header and its bytes. The CRC is not checked.

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
    """Where the last whole batch ends, by the length fields alone; damage counts as whole.

    A length that cannot be right is left for `iter_batches` to name.
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


def parse_whole(data: memoryview) -> BatchHeader:
    """The header of a batch that must fill these bytes."""
    header = parse_header(data)
    if header.size_bytes != len(data):
        raise BatchDamagedError(
            LOG_OVERHEAD_BYTES - 4, f"the batch has {header.size_bytes} bytes, not {len(data)}"
        )
    return header
