"""One zstd frame with the size of its content. Damage raises a ValueError."""

import zstandard

from stratalog.objects.store import Buffer

LEVEL = 3
"""The plugin's level: with the same version of zstd, frames equal the plugin's byte for byte."""


def compress_frame(data: Buffer) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL, write_content_size=True).compress(data)


def content_bytes(frame: Buffer) -> int:
    """Return the size of the content, as the frame's header says."""
    try:
        size = zstandard.frame_content_size(frame)
    except zstandard.ZstdError as error:
        raise ValueError(f"not a zstd frame ({error})") from None
    if size < 0:
        raise ValueError("the zstd frame does not say how large its content is")
    return size


def decompress_frame(frame: Buffer, expected_bytes: int) -> bytes:
    """Return the content of exactly one frame, whose size is known.

    The size is compared before the frame is decompressed, so that a damaged or hostile frame cannot
    make us allocate more than the expected bytes.
    """
    promised = content_bytes(frame)
    if promised != expected_bytes:
        raise ValueError(f"the zstd frame holds {promised} bytes instead of {expected_bytes}")
    try:
        content = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(f"the zstd frame is damaged ({error})") from None
    if len(content) != expected_bytes:
        raise ValueError(f"the zstd frame gave {len(content)} bytes instead of {expected_bytes}")
    return content
