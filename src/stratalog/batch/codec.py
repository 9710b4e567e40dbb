"""The four compressions of a batch's records, written as Kafka writes them.

Nothing is decompressed past a bound that the caller gives, so that a few bytes cannot fill the
memory, and damage is always a `BatchDamagedError`.
"""

import struct
from collections.abc import Callable

import cramjam
import lz4.frame

from stratalog.batch.errors import (
    BatchDamagedError,
    DecompressedTooLargeError,
    UnbuildableBatchError,
)
from stratalog.batch.header import BytesLike, Codec

LEVELS: dict[Codec, range] = {
    Codec.GZIP: range(1, 10),
    Codec.LZ4: range(1, 18),
    Codec.ZSTD: range(-131072, 23),
}
"""The levels that Kafka's topic settings allow. Snappy has none."""

_DEFAULT_GZIP_LEVEL = 6
_DEFAULT_LZ4_LEVEL = 0
_DEFAULT_ZSTD_LEVEL = 3

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = struct.Struct(">i")

_FIRST_GUESS_BYTES = 64 * 1024
_SNAPPY_MAX_RATIO = 22
"""A snappy copy of 64 bytes takes 3, so a block that claims more than 22-fold growth lies."""


def compress(codec: Codec, data: BytesLike, level: int | None = None) -> bytes:
    """Compress a batch's records."""
    if level is not None and codec in LEVELS and level not in LEVELS[codec]:
        raise UnbuildableBatchError(f"{codec.name.lower()} has no compression level {level}")
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=level or _DEFAULT_GZIP_LEVEL))
    if codec is Codec.SNAPPY:
        return _compress_snappy(data)
    if codec is Codec.LZ4:
        return _compress_lz4(data, level or _DEFAULT_LZ4_LEVEL)
    if codec is Codec.ZSTD:
        level = _DEFAULT_ZSTD_LEVEL if level is None else level
        return bytes(cramjam.zstd.compress(data, level=level))
    return bytes(data)


def decompress(codec: Codec, data: BytesLike, *, max_bytes: int, position: int = 0) -> bytes:
    """Undo `compress`, giving up past `max_bytes`.

    `position` is where `data` begins in the caller's buffer; errors name bytes of that buffer.
    """
    return bytes(decompressed(codec, data, max_bytes=max_bytes, position=position))


def decompressed(codec: Codec, data: BytesLike, *, max_bytes: int, position: int = 0) -> BytesLike:
    """The same without a last copy: data that are not compressed are returned as they are."""
    if codec is Codec.NONE:
        if len(data) > max_bytes:
            raise _too_large(position, max_bytes)
        return data
    return _DECOMPRESSORS[codec](data, max_bytes, position)


def _compress_snappy(data: BytesLike) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: BytesLike, level: int) -> bytes:
    """Independent 64 KiB blocks without checksums: Kafka's own reader takes no linked blocks."""
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return frame


def _decompress_gzip(data: BytesLike, max_bytes: int, position: int) -> BytesLike:
    return _decompress_growing(cramjam.gzip.decompress_into, data, max_bytes, position)


def _decompress_zstd(data: BytesLike, max_bytes: int, position: int) -> BytesLike:
    return _decompress_growing(cramjam.zstd.decompress_into, data, max_bytes, position)


def _decompress_growing(
    decompress_into: Callable[[BytesLike, bytearray], int],
    data: BytesLike,
    max_bytes: int,
    position: int,
) -> BytesLike:
    """Decompress into a buffer that is quadrupled until the data fits or the bound is reached.

    Stated sizes are not asked: gzip keeps only the low 32 bits, zstd may leave it out, and both
    may lie.
    """
    size_bytes = min(max_bytes, max(_FIRST_GUESS_BYTES, 4 * len(data)))
    while True:
        out = bytearray(size_bytes)
        try:
            used_bytes = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if not _is_out_of_room(error):
                raise BatchDamagedError(position, f"not decompressible: {error}") from error
            if size_bytes >= max_bytes:
                raise _too_large(position, max_bytes) from error
            size_bytes = min(max_bytes, 4 * size_bytes)
        else:
            return memoryview(out)[:used_bytes]


def _is_out_of_room(error: Exception) -> bool:
    """Cramjam has one class for all failures; this is the text of Rust's `WriteZero`."""
    return "failed to write whole buffer" in str(error)


def _decompress_lz4(data: BytesLike, max_bytes: int, position: int) -> bytes:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    total_bytes = 0
    size_bytes = max(_FIRST_GUESS_BYTES, 4 * len(data))
    pending = data
    while not decompressor.eof:
        # One byte over the bound is asked for, so that exactly `max_bytes` still reaches the end.
        part = _lz4_step(
            decompressor, pending, min(size_bytes, max_bytes + 1 - total_bytes), position
        )
        total_bytes += len(part)
        if total_bytes > max_bytes:
            raise _too_large(position, max_bytes)
        if not decompressor.eof and (decompressor.needs_input or not part):
            raise BatchDamagedError(position + len(data), "the lz4 frame has no end")
        parts.append(part)
        pending = b""
        size_bytes *= 4
    if decompressor.unused_data:
        trailing_bytes = len(decompressor.unused_data)
        raise BatchDamagedError(
            position + len(data) - trailing_bytes, f"{trailing_bytes} bytes follow the lz4 frame"
        )
    return b"".join(parts)


def _lz4_step(
    decompressor: lz4.frame.LZ4FrameDecompressor, pending: BytesLike, size_bytes: int, position: int
) -> bytes:
    try:
        part: bytes = decompressor.decompress(pending, size_bytes)
    except (RuntimeError, ValueError, EOFError) as error:
        raise BatchDamagedError(position, f"not decompressible: {error}") from error
    return part


def _decompress_snappy(data: BytesLike, max_bytes: int, position: int) -> BytesLike:
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes, position)
    parts: list[BytesLike] = []
    cursor = len(_XERIAL_HEADER)
    while cursor < len(view):
        if view[cursor : cursor + 8] == _XERIAL_MAGIC:
            # Appending two streams to one another is allowed, each with its header.
            cursor += len(_XERIAL_HEADER)
            continue
        block_start, block_end = _xerial_block(view, cursor, position)
        part = _decompress_snappy_block(
            view[block_start:block_end], max_bytes, position + block_start
        )
        max_bytes -= len(part)
        parts.append(part)
        cursor = block_end
    return b"".join(parts)


def _xerial_block(view: memoryview, cursor: int, position: int) -> tuple[int, int]:
    block_start = cursor + _INT32.size
    if block_start > len(view):
        raise BatchDamagedError(position + len(view), "the snappy stream ends in a block's length")
    (block_bytes,) = _INT32.unpack_from(view, cursor)
    if block_bytes < 0 or block_start + block_bytes > len(view):
        raise BatchDamagedError(position + cursor, f"no snappy block has {block_bytes} bytes here")
    return block_start, block_start + block_bytes


def _decompress_snappy_block(block: memoryview, max_bytes: int, position: int) -> BytesLike:
    try:
        size_bytes: int = cramjam.snappy.decompress_raw_len(block)
        if size_bytes > _SNAPPY_MAX_RATIO * len(block):
            raise BatchDamagedError(position, f"{len(block)} bytes do not make {size_bytes}")
        if size_bytes > max_bytes:
            raise _too_large(position, max_bytes)
        out = bytearray(size_bytes)
        used_bytes: int = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise BatchDamagedError(position, f"not decompressible: {error}") from error
    return memoryview(out)[:used_bytes]


def _too_large(position: int, max_bytes: int) -> DecompressedTooLargeError:
    return DecompressedTooLargeError(position, f"more than {max_bytes} bytes when decompressed")


_DECOMPRESSORS: dict[Codec, Callable[[BytesLike, int, int], BytesLike]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
