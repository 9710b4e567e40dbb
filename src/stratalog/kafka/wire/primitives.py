"""The primitive types of the Kafka protocol, for messages that are read or written by hand."""

import struct
from typing import TypeAlias
from uuid import UUID

from stratalog.kafka.wire.errors import MalformedRequestError

Buffer: TypeAlias = bytes | bytearray | memoryview

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
NO_TAGS = b"\x00"
ZERO_UUID = UUID(int=0)
_UVARINT_BYTES_LAST = 4
_MOST_HEADER_TAGS = 100
"""Kafka defines one for the headers of requests."""


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def string(text: str | None, *, flexible: bool) -> bytes:
    """Write a nullable string. None must not be passed for a field that cannot be null."""
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    encoded = text.encode()
    prefix = uvarint(len(encoded) + 1) if flexible else INT16.pack(len(encoded))
    return prefix + encoded


def array_length(count: int, *, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else INT32.pack(count)


def uuid_bytes(identifier: UUID | None) -> bytes:
    return (identifier or ZERO_UUID).bytes


def read_uvarint(frame: Buffer, position: int) -> tuple[int, int]:
    """Return the value and the position after it."""
    byte = frame[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for index in range(1, _UVARINT_BYTES_LAST + 1):
        byte = frame[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise MalformedRequestError(f"the varint at byte {position} is too long")


def read_length(frame: Buffer, position: int, prefix: struct.Struct | None) -> tuple[int, int]:
    """Return the length of a string, of bytes or of an array (-1: null), and the position after it.

    `prefix` is the old fixed-size form; None stands for the compact form. A length that exceeds
    the rest of the frame is refused here, before memory is reserved for it.
    """
    if prefix is None:
        length = frame[position]
        if length < 0x80:
            position += 1
        else:
            length, position = read_uvarint(frame, position)
        length -= 1
    else:
        (length,) = prefix.unpack_from(frame, position)
        position += prefix.size
    if not -1 <= length <= len(frame) - position:
        raise MalformedRequestError(f"length {length} at byte {position} exceeds the request")
    return length, position


def skip_tags(frame: Buffer, position: int) -> int:
    """Return the position after the tagged fields of a header. Unknown tags must be ignored."""
    if frame[position] == 0:
        return position + 1
    count, position = read_uvarint(frame, position)
    if count > _MOST_HEADER_TAGS:
        raise MalformedRequestError(f"a header with {count} tagged fields")
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
    return position
