"""A raw client: bytes to a server and frames back."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stratalog.kafka.server.server import Address

PRODUCE = 0
METADATA = 3


def request(key: int, version: int, correlation_id: int, body: bytes = b"") -> bytes:
    """A whole request with the header of versions before the flexible ones."""
    payload = struct.pack(">hhih", key, version, correlation_id, -1) + body
    return struct.pack(">i", len(payload)) + payload


class RawClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def send_eof(self) -> None:
        self._writer.write_eof()

    async def frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def correlation_id(self) -> int:
        (correlation_id,) = struct.unpack_from(">i", await self.frame())
        return int(correlation_id)

    async def is_closed_by_server(self) -> bool:
        try:
            return await asyncio.wait_for(self._reader.read(1), 5) == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[RawClient]:
    client = RawClient(*await asyncio.open_connection(address.host, address.port))
    try:
        yield client
    finally:
        await client.close()
