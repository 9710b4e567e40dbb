"""One zstd frame that says how large its content is. Damage is a ValueError."""

import zstandard

from stratalog.objects.store import Buffer

LEVEL = 3
"""The plugin's level. With the same version of zstd our frames equal its frames byte for byte."""


def compress_frame(data: Buffer) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL, write_content_size=True).compress(data)


def content_bytes(frame: Buffer) -> int:
    """The size that the frame's header promises."""
    try:
        size = zstandard.frame_content_size(frame)
    except zstandard.ZstdError as error:
        raise ValueError(f"not a zstd frame ({error})") from None
    if size < 0:
        raise ValueError("the zstd frame does not say how large its content is")
    return size


def decompress_frame(frame: Buffer, expected_bytes: int) -> bytes:
    """The content of exactly one frame, whose size is known.

    The size is compared before anything is decompressed, so that no damaged or hostile frame
    makes us allocate more than the index speaks of.
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
