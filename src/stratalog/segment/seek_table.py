"""The seek table of the zstd seekable format (version 0.1.0): the last frame of such a file.

    u32 0x184D2A5E, u32 bytes that follow
    per frame: u32 stored bytes, u32 original bytes, [u32 checksum]
    u32 frames, u8 descriptor (its highest bit: there are checksums), u32 0x8F92EAB1

All integers are little-endian. The checksum is the low half of XXH64 of the original bytes. For
`zstd -d` the table is a frame to skip. A seekable reader finds the other frames by it.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from xxhash import xxh64_intdigest

from stratalog.objects.store import Buffer
from stratalog.segment.errors import SeekTableDamagedError

MAX_FRAMES = 0x800_0000

_SKIPPABLE_MAGIC = 0x184D2A5E
_SEEKABLE_MAGIC = 0x8F92EAB1
_HAS_CHECKSUMS = 0x80
_RESERVED_BITS = 0x7C

_HEADER = struct.Struct("<II")
_FOOTER = struct.Struct("<IBI")
_ENTRY = struct.Struct("<II")
_ENTRY_WITH_CHECKSUM = struct.Struct("<III")

FOOTER_BYTES = _FOOTER.size


class SeekEntry(NamedTuple):
    stored_bytes: int
    original_bytes: int
    checksum: int | None
    """None in the table of another writer that has no checksums."""


def frame_checksum(original: Buffer) -> int:
    return xxh64_intdigest(original) & 0xFFFF_FFFF


def encode_seek_table(entries: Sequence[SeekEntry]) -> bytes:
    """Encode the frame that makes a file of these frames seekable."""
    assert len(entries) <= MAX_FRAMES
    body = b"".join(_ENTRY_WITH_CHECKSUM.pack(*entry) for entry in entries)
    header = _HEADER.pack(_SKIPPABLE_MAGIC, len(body) + FOOTER_BYTES)
    return header + body + _FOOTER.pack(len(entries), _HAS_CHECKSUMS, _SEEKABLE_MAGIC)


def seek_table_bytes(footer: Buffer, name: str) -> int:
    """Return the size of the table, given the last `FOOTER_BYTES` of the file."""
    count, descriptor = _parse_footer(footer, name)
    return _HEADER.size + count * _entry_of(descriptor).size + FOOTER_BYTES


def decode_seek_table(table: Buffer, name: str) -> list[SeekEntry]:
    """Read and check a table, which is exactly the last frame of the file `name`."""
    expected_bytes = seek_table_bytes(table[-FOOTER_BYTES:], name)
    if len(table) != expected_bytes:
        raise SeekTableDamagedError(
            f"{name}: the seek table takes {expected_bytes} bytes, not {len(table)}"
        )
    magic, rest_bytes = _HEADER.unpack_from(table)
    if magic != _SKIPPABLE_MAGIC or rest_bytes != len(table) - _HEADER.size:
        raise SeekTableDamagedError(f"{name}: the seek table does not begin as a frame to skip")
    _, descriptor = _parse_footer(table[-FOOTER_BYTES:], name)
    body = memoryview(table)[_HEADER.size : -FOOTER_BYTES]
    if descriptor & _HAS_CHECKSUMS:
        return [SeekEntry(*entry) for entry in _ENTRY_WITH_CHECKSUM.iter_unpack(body)]
    return [SeekEntry(stored, plain, None) for stored, plain in _ENTRY.iter_unpack(body)]


def _parse_footer(footer: Buffer, name: str) -> tuple[int, int]:
    if len(footer) != FOOTER_BYTES:
        raise SeekTableDamagedError(f"{name}: too short to end in a seek table")
    count, descriptor, magic = _FOOTER.unpack(footer)
    if magic != _SEEKABLE_MAGIC:
        raise SeekTableDamagedError(f"{name}: does not end in a seek table, or was cut short")
    if descriptor & _RESERVED_BITS or count > MAX_FRAMES:
        raise SeekTableDamagedError(
            f"{name}: a seek table of {count} frames with descriptor {descriptor:#04x} is unknown"
        )
    return count, descriptor


def _entry_of(descriptor: int) -> struct.Struct:
    return _ENTRY_WITH_CHECKSUM if descriptor & _HAS_CHECKSUMS else _ENTRY
