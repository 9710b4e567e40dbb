"""Kafka's compact encoding of messages: the few types that records about segments need.

Damage raises a ValueError, to which the caller adds the name of the record.
"""

import struct
from collections.abc import Mapping
from uuid import UUID

_UVARINT_BYTES = 5
_I8 = struct.Struct(">b")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class CompactReader:
    """Takes values off the front of a message and never reads past its end."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = bytes(data)
        self._position = 0

    def take(self, size_bytes: int) -> bytes:
        end = self._position + size_bytes
        if end > len(self._data):
            raise ValueError(f"the data ends {end - len(self._data)} bytes short")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def uvarint(self) -> int:
        value = 0
        for index in range(_UVARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                if value >> 32:
                    raise ValueError("a varint exceeds 32 bits")
                return value
        raise ValueError(f"a varint is over {_UVARINT_BYTES} bytes long")

    def i8(self) -> int:
        return int(_I8.unpack(self.take(1))[0])

    def i32(self) -> int:
        return int(_I32.unpack(self.take(4))[0])

    def i64(self) -> int:
        return int(_I64.unpack(self.take(8))[0])

    def uuid(self) -> UUID:
        return UUID(bytes=self.take(16))

    def nullable_bytes(self) -> bytes | None:
        length = self.uvarint()
        return self.take(length - 1) if length else None

    def text(self) -> str:
        data = self.nullable_bytes()
        if data is None:
            raise ValueError("a text that must be there is null")
        return data.decode()

    def count(self) -> int:
        """Read the number of entries of the array that follows."""
        length = self.uvarint()
        if not length:
            raise ValueError("an array that must be there is null")
        return length - 1

    def tags(self) -> dict[int, bytes]:
        """Read all tagged fields at the end of a structure, known or not. Their tags ascend."""
        tags: dict[int, bytes] = {}
        last = -1
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            if tag <= last:
                raise ValueError(f"the tagged field {tag} comes after {last}")
            tags[tag] = self.take(self.uvarint())
            last = tag
        return tags

    def finish(self) -> None:
        rest = len(self._data) - self._position
        if rest:
            raise ValueError(f"{rest} bytes follow the end")


class CompactWriter:
    def __init__(self) -> None:
        self._data = bytearray()

    def getvalue(self) -> bytes:
        return bytes(self._data)

    def uvarint(self, value: int) -> None:
        assert 0 <= value < 1 << 32
        while value >= 0x80:
            self._data.append(value & 0x7F | 0x80)
            value >>= 7
        self._data.append(value)

    def i8(self, value: int) -> None:
        self._data += _I8.pack(value)

    def i32(self, value: int) -> None:
        self._data += _I32.pack(value)

    def i64(self, value: int) -> None:
        self._data += _I64.pack(value)

    def uuid(self, value: UUID) -> None:
        self._data += value.bytes

    def nullable_bytes(self, value: bytes | None) -> None:
        self.uvarint(0 if value is None else len(value) + 1)
        self._data += value or b""

    def text(self, value: str) -> None:
        self.nullable_bytes(value.encode())

    def count(self, entries: int) -> None:
        self.uvarint(entries + 1)

    def tags(self, tags: Mapping[int, bytes] | None = None) -> None:
        ascending = sorted((tags or {}).items())
        self.uvarint(len(ascending))
        for tag, value in ascending:
            self.uvarint(tag)
            self.uvarint(len(value))
            self._data += value
