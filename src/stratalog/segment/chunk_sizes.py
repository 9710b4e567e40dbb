"""The sizes of stored chunks as the plugin packs them: one zstd frame of

    i32 count; one size alone: i32 size; otherwise i32 base, u8 width,
    (count - 1) sizes less the base, each `width` bytes; i32 last size

The base is the smallest of all sizes but the last, which is often shorter than the others and
would cost the rest a wider field. All integers are big-endian. Damage is a ValueError.
"""

import struct
from collections.abc import Sequence

from stratalog.segment.zstd_frame import compress_frame, content_bytes, decompress_frame

MAX_PACKED_BYTES = 10 << 20
"""The plugin's own limit."""

_COUNT = struct.Struct(">i")
_BASE = struct.Struct(">iB")


def pack_sizes(sizes: Sequence[int]) -> bytes:
    return compress_frame(_encode(sizes))


def unpack_sizes(frame: bytes) -> tuple[int, ...]:
    size_bytes = content_bytes(frame)
    if size_bytes > MAX_PACKED_BYTES:
        raise ValueError(f"{size_bytes} bytes of chunk sizes are more than {MAX_PACKED_BYTES}")
    return _decode(decompress_frame(frame, size_bytes))


def _encode(sizes: Sequence[int]) -> bytes:
    if len(sizes) < 2:
        return struct.pack(f">i{len(sizes)}i", len(sizes), *sizes)
    *others, last = sizes
    base = min(others)
    width = max(1, ((max(others) - base).bit_length() + 7) // 8)
    packed = b"".join((size - base).to_bytes(width) for size in others)
    return _COUNT.pack(len(sizes)) + _BASE.pack(base, width) + packed + _COUNT.pack(last)


def _decode(data: bytes) -> tuple[int, ...]:
    try:
        (count,) = _COUNT.unpack_from(data)
        if count < 2:
            return struct.unpack_from(f">{count}i", _exactly(data, 4 + 4 * count), 4)
        base, width = _BASE.unpack_from(data, 4)
    except struct.error:
        raise ValueError("the chunk sizes are cut short") from None
    if not 1 <= width <= 4:
        raise ValueError(f"chunk sizes of {width} bytes each do not exist")
    start, end = 9, 9 + (count - 1) * width
    _exactly(data, end + 4)
    others = (base + int.from_bytes(data[at : at + width]) for at in range(start, end, width))
    return (*others, *_COUNT.unpack_from(data, end))


def _exactly(data: bytes, size_bytes: int) -> bytes:
    if len(data) != size_bytes:
        raise ValueError(f"the chunk sizes take {len(data)} bytes instead of {size_bytes}")
    return data
