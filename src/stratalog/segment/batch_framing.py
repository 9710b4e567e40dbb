"""Buffers of whole batches, which may be changed, out of bytes that were cut anywhere."""

import struct
from collections.abc import Iterable, Iterator

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.header import HEADER_BYTES, LOG_OVERHEAD_BYTES, BytesLike

MAX_BATCH_BYTES = 128 * 1024 * 1024
"""More than the largest request that brokers take by default (100 MiB). A greater length is damage,
and waiting for so many bytes would only use up memory."""

_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8


class BatchFraming:
    """Carries the beginning of a batch over to the next part.

    It holds one batch at most. A writable part is handed on without a copy; a read-only part is
    copied.
    """

    def __init__(self, *, max_batch_bytes: int = MAX_BATCH_BYTES) -> None:
        self._max_batch_bytes = max_batch_bytes
        self._partial = bytearray()
        self._position = 0

    def push(self, part: BytesLike) -> Iterator[memoryview]:
        """Yield the batches that end within this part, in one buffer or two."""
        view = memoryview(part)
        start = 0
        while self._partial and start < len(view):
            taken = view[start : start + self._missing_bytes()]
            self._partial += taken
            start += len(taken)
            if self._missing_bytes() == 0:
                yield self._take_partial()
        end = self._whole_end(view, start)
        self._position += end - start
        self._partial += view[end:]
        if end > start:
            whole = view[start:end]
            yield memoryview(bytearray(whole)) if whole.readonly else whole

    def finish(self) -> None:
        """Raise if the last batch has not ended."""
        if self._partial:
            missing_bytes = self._missing_bytes()
            reason = f"the bytes end at least {missing_bytes} short of a batch"
            end = self._position + len(self._partial)
            raise BatchDamagedError(end, reason, self._position)

    def _missing_bytes(self) -> int:
        """Return the bytes that are missing to the length of the partial batch, or to its end."""
        have = len(self._partial)
        if have < LOG_OVERHEAD_BYTES:
            return LOG_OVERHEAD_BYTES - have
        size_bytes = int(_LENGTH.unpack_from(self._partial, _LENGTH_POSITION)[0])
        size_bytes += LOG_OVERHEAD_BYTES
        if not HEADER_BYTES <= size_bytes <= self._max_batch_bytes:
            raise self._absurd(size_bytes, self._position)
        return size_bytes - have

    def _take_partial(self) -> memoryview:
        whole, self._partial = self._partial, bytearray()
        self._position += len(whole)
        return memoryview(whole)

    def _whole_end(self, view: memoryview, position: int) -> int:
        """Return the end of the last whole batch in this view."""
        start, last = position, len(view) - LOG_OVERHEAD_BYTES
        unpack, most = _LENGTH.unpack_from, self._max_batch_bytes
        while position <= last:
            size_bytes = unpack(view, position + _LENGTH_POSITION)[0] + LOG_OVERHEAD_BYTES
            if not HEADER_BYTES <= size_bytes <= most:
                raise self._absurd(size_bytes, self._position + position - start)
            if position + size_bytes > len(view):
                break
            position += size_bytes
        return position

    def _absurd(self, size_bytes: int, batch_start: int) -> BatchDamagedError:
        reason = f"a batch of {size_bytes} bytes; possible are {HEADER_BYTES}"
        reason += f" to {self._max_batch_bytes}"
        return BatchDamagedError(batch_start + _LENGTH_POSITION, reason, batch_start)


def whole_batches(
    parts: Iterable[BytesLike], *, max_batch_bytes: int = MAX_BATCH_BYTES
) -> Iterator[memoryview]:
    """Yield buffers of whole batches out of parts that were cut anywhere."""
    framing = BatchFraming(max_batch_bytes=max_batch_bytes)
    for part in parts:
        yield from framing.push(part)
    framing.finish()
