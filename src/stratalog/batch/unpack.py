"""Decompression of many batches, one after the other.

The results equal `codec.decompress`. Zstandard's working memory is allocated once instead of for
every batch, where it is most of the cost of a batch of 16 KiB.
"""

import threading

import zstandard

from stratalog.batch.codec import decompressed
from stratalog.batch.header import BytesLike, Codec

_FIRST_GUESS_BYTES = 64 * 1024
_GUESSED_RATIO = 8


class Unpacker:
    """For one thread at a time."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._zstd = zstandard.ZstdDecompressor()

    def unpack(self, codec: Codec, data: BytesLike) -> BytesLike:
        return self.unpack_at(0, codec, data, self._max_bytes)

    def unpack_at(self, position: int, codec: Codec, data: BytesLike, max_bytes: int) -> BytesLike:
        """`position` is where the data begin in the caller's buffer, for errors."""
        body = self._unpack_zstd(data, max_bytes) if codec is Codec.ZSTD else None
        if body is not None:
            return body
        return decompressed(codec, data, max_bytes=max_bytes, position=position)

    def _unpack_zstd(self, data: BytesLike, max_bytes: int) -> bytes | None:
        """None if it is more than one plain frame, or grows more than usual, or is damaged.

        The stated size is asked, but only for how much memory to take: most clients leave it out,
        and then a good guess is needed.
        """
        try:
            stated_bytes = zstandard.frame_content_size(data)
            if stated_bytes == 0 or stated_bytes > max_bytes:
                return None
            guess_bytes = max(_FIRST_GUESS_BYTES, _GUESSED_RATIO * len(data))
            size_bytes = min(guess_bytes, max_bytes)
            return self._zstd.decompress(data, size_bytes, allow_extra_data=False)
        except zstandard.ZstdError:
            return None


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.unpacker = Unpacker(0)


_of_thread = _OfThread()


def unpack_at(position: int, codec: Codec, data: BytesLike, max_bytes: int) -> BytesLike:
    """Decompress with the unpacker of the calling thread."""
    return _of_thread.unpacker.unpack_at(position, codec, data, max_bytes)
