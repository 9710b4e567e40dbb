"""The link between the first worker of a broker and another: messages over a pair of sockets.

The first worker sends the orders, with the settings and their credentials, which so appear in no
command line. The other answers when it serves clients. From then on both tell which partitions
have grown, and the other tells if it had to stop writing. The end of the first worker's side tells
the other to end, so also when the first worker was killed.
"""

import asyncio
import pickle
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from uuid import UUID

from stratalog.cluster.hints import Advanced
from stratalog.control.brokers.model import BrokerInfo
from stratalog.settings import Settings

_HEAD = struct.Struct(">BI")
_MOST_WAITING_BYTES = 1 << 20
"""News that do not fit are dropped: a reader finds the records with the next poll of watermarks."""


class Kind(IntEnum):
    ORDERS = 1
    SERVES = 2
    """The worker accepts clients."""
    COMMITTED = 3
    """A worker of this broker has committed records."""
    HINTED = 4
    """Another broker has sent a hint."""
    FENCED = 5
    """The worker had to stop writing, for a reason that concerns the whole broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """All that a worker has to know when it starts."""

    number: int
    settings: Settings
    """The worker's own share."""
    cluster_id: UUID
    broker: BrokerInfo
    relays: Path
    """The socket on which the first worker takes relayed requests."""


class Link:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> "Link":
        return cls(*await asyncio.open_unix_connection(sock=end))

    async def receive(self) -> tuple[Kind, bytes] | None:
        """The next message. None if the other side has ended."""
        try:
            kind, size = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
            return Kind(kind), await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError):
            return None

    def send(self, kind: Kind, body: bytes = b"") -> None:
        """Send a message. It is lost if the other side has ended, which `receive` tells."""
        # uvloop closes a transport whose other side was killed, and raises from then on.
        if not self._writer.is_closing():
            self._writer.write(_HEAD.pack(kind, len(body)) + body)

    def tell(self, kind: Kind, advanced: Advanced) -> None:
        """Tell which partitions have grown, if the other side keeps up."""
        if self._waiting_bytes() < _MOST_WAITING_BYTES:
            self.send(kind, pickle.dumps(advanced))

    def _waiting_bytes(self) -> int:
        return 0 if self._writer.is_closing() else self._writer.transport.get_write_buffer_size()

    def end(self) -> None:
        """Send no more. Messages of the other side still arrive."""
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()


def advanced_of(body: bytes) -> Advanced:
    advanced: Advanced = pickle.loads(body)
    return advanced


def pack_orders(orders: Orders) -> bytes:
    return pickle.dumps(orders)


def orders_of(body: bytes) -> Orders:
    orders: Orders = pickle.loads(body)
    return orders
