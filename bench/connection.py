"""A connection light enough to have many of: a request can be made once and sent often."""

import asyncio
import struct
from typing import Any

from kio.serial import entity_reader
from tests.support.wire import frame_of

_LENGTH = struct.Struct(">i")


def framed(request: Any) -> bytes:
    """The request as it goes over the wire."""
    body = frame_of(request)
    return _LENGTH.pack(len(body)) + body


def parsed(frame: bytes, response_schema: Any) -> Any:
    view = memoryview(frame)
    _, size = entity_reader(response_schema.__header_schema__)(view, 0)
    response, _ = entity_reader(response_schema)(view, size)
    return response


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: str) -> "Connection":
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    def send(self, framed_request: bytes) -> None:
        self._writer.write(framed_request)

    async def receive(self) -> bytes:
        (size,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        return await self._reader.readexactly(size)

    async def ask(self, request: Any, response_schema: Any) -> Any:
        self.send(framed(request))
        return parsed(await self.receive(), response_schema)
