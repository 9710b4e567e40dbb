"""Hints: datagrams in which a broker tells the others which partitions have just grown.

They make long polls on another broker wake at once. They are best effort: a lost one costs a
reader the time until the next poll of watermarks. Only brokers of the cluster can send one
(`hint_seal`), and no answer to a client rests on a hint alone.

A datagram is the magic and a sealed body: per partition the topic's id, the partition and the new
high watermark, big-endian. It travels to the UDP port with the number of the Kafka listener.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, cast
from uuid import UUID

from stratalog.cluster.hint_seal import HintSeal
from stratalog.control.brokers.model import BrokerInfo
from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition
from stratalog.metrics import HINTS_REFUSED, Metrics

log = logging.getLogger(__name__)

_MAGIC = b"SLH2"
_ENTRY = struct.Struct(">16siq")
_ENTRIES_PER_DATAGRAM = 48
"""Keeps a datagram, with the 44 bytes around its entries, below the 1,400 bytes that pass every
network unfragmented."""

Advanced = Mapping[TopicPartition, Offset]


class OnHint(Protocol):
    def __call__(self, advanced: Advanced) -> None: ...


def encode_hints(seal: HintSeal, advanced: Advanced) -> Iterator[bytes]:
    entries = [
        _ENTRY.pack(partition.topic_id.bytes, partition.partition, high_watermark)
        for partition, high_watermark in advanced.items()
    ]
    for first in range(0, len(entries), _ENTRIES_PER_DATAGRAM):
        group = entries[first : first + _ENTRIES_PER_DATAGRAM]
        yield _MAGIC + seal.seal(b"".join(group))


def decode_hints(seal: HintSeal, datagram: bytes) -> dict[TopicPartition, Offset] | None:
    """Read a datagram. None if it is not a hint, is not of this cluster, or came before."""
    if not datagram.startswith(_MAGIC):
        return None
    body = seal.open(datagram[len(_MAGIC) :])
    if body is None or len(body) % _ENTRY.size:
        return None
    return {
        TopicPartition(TopicId(UUID(bytes=topic_id)), PartitionIndex(partition)): Offset(high)
        for topic_id, partition, high in _ENTRY.iter_unpack(body)
    }


class Hints(asyncio.DatagramProtocol):
    def __init__(
        self,
        *,
        seal: HintSeal,
        others: Callable[[], Iterable[BrokerInfo]],
        on_hint: OnHint,
        metrics: Metrics,
    ) -> None:
        self._seal = seal
        self._refused = metrics.counter(HINTS_REFUSED)
        self._others = others
        self._on_hint = on_hint
        self._transport: asyncio.DatagramTransport | None = None
        self._addresses: dict[tuple[str, int], tuple[str, int] | None] = {}
        self._lookups: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """Listen. Without the port this broker still sends, and finds writes by polling."""
        loop = asyncio.get_running_loop()
        try:
            await loop.create_datagram_endpoint(lambda: self, local_addr=(host, port))
        except OSError as error:
            log.warning("No hints from other brokers on UDP port %d: %s", port, error)
            await loop.create_datagram_endpoint(lambda: self, local_addr=(host, 0))

    @property
    def port(self) -> int:
        assert self._transport is not None, "started"
        return int(self._transport.get_extra_info("sockname")[1])

    def send(self, advanced: Advanced) -> None:
        addresses = [self._address(broker.host, broker.port) for broker in self._others()]
        known = [address for address in addresses if address is not None]
        if self._transport is None or not known:
            return
        for datagram in encode_hints(self._seal, advanced):
            for address in known:
                self._transport.sendto(datagram, address)

    def _address(self, host: str, port: int) -> tuple[str, int] | None:
        """The resolved address. The first hint to a name starts its look-up and is not sent."""
        if (host, port) not in self._addresses:
            self._addresses[host, port] = None
            lookup = asyncio.create_task(self._look_up(host, port))
            self._lookups.add(lookup)
            lookup.add_done_callback(self._lookups.discard)
        return self._addresses[host, port]

    async def _look_up(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                host, port, family=socket.AF_INET, type=socket.SOCK_DGRAM
            )
        except OSError as error:
            log.warning("Broker %s:%d gets no hints: %s", host, port, error)
            return
        address = found[0][4]
        self._addresses[host, port] = (str(address[0]), port)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: object) -> None:  # noqa: ARG002
        advanced = decode_hints(self._seal, data)
        if advanced is None:
            self._refused.inc()
        else:
            self._on_hint(advanced)
