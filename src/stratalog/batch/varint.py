"""Zigzag varints as records use them: 32 bits in at most 5 bytes, 64 bits in at most 10."""

from stratalog.batch.errors import BatchDamagedError, UnbuildableBatchError

VARINT_MAX_BYTES = 5
VARLONG_MAX_BYTES = 10


def read_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """A 32-bit value and the position after it.

    One and two bytes are unrolled: nearly every varint of a batch is that short.
    """
    try:
        byte = buffer[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        high = buffer[position + 1]
    except IndexError:
        raise BatchDamagedError(len(buffer), "the data ends inside a varint") from None
    if high < 0x80:
        return ((byte & 0x7F | high << 7) >> 1) ^ -(byte & 1), position + 2
    return _read(buffer, position, VARINT_MAX_BYTES, 32)


def read_varlong(buffer: bytes, position: int) -> tuple[int, int]:
    """A 64-bit value and the position after it."""
    byte = buffer[position] if position < len(buffer) else 0x80
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read(buffer, position, VARLONG_MAX_BYTES, 64)


def _read(buffer: bytes, position: int, max_bytes: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    for byte in buffer[position : position + max_bytes]:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            end = position + shift // 7 + 1
            if value >> bits:
                raise BatchDamagedError(end - 1, f"a varint exceeds {bits} bits")
            return (value >> 1) ^ -(value & 1), end
        shift += 7
    if position + max_bytes > len(buffer):
        raise BatchDamagedError(len(buffer), "the data ends inside a varint")
    raise BatchDamagedError(position + max_bytes - 1, f"a varint is over {max_bytes} bytes long")


def write_varint(out: bytearray, value: int) -> None:
    """Append a 32-bit value."""
    _write(out, value, 32)


def write_varlong(out: bytearray, value: int) -> None:
    """Append a 64-bit value."""
    _write(out, value, 64)


def _write(out: bytearray, value: int, bits: int) -> None:
    zigzag = value << 1 if value >= 0 else ~(value << 1)
    if zigzag >> bits:
        raise UnbuildableBatchError(f"{value} does not fit into {bits} bits")
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
