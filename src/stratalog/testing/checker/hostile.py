"""A client that means harm: damaged batches, random bytes, requests without measure, and sockets
that are left half open. It never sends a record that could be stored."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random

from stratalog.testing.checker import hostile_requests as requests

_PAUSE_S = 0.05
_PATIENCE_S = 2.0
_READ_BYTES = 1 << 16
_LARGE_FETCHES = 20
_LONG_POLL_MS = 1000
_DRIPS = 20


class HostileClient:
    """Attacks brokers at random until it is cancelled."""

    def __init__(self, addresses: Sequence[tuple[str, int]], topic: str, random: Random) -> None:
        self.sent: Counter[str] = Counter()
        self._addresses = addresses
        self._topic = topic
        self._random = random
        self._attacks: Sequence[Callable[[], Awaitable[None]]] = (
            self._damaged_batch,
            self._damaged_batch,
            self._random_bytes,
            self._half_open,
            self._slow_frame,
            self._repeated_partition,
            self._many_names,
            self._unread_fetches,
        )

    async def run(self) -> None:
        while True:
            attack = self._random.choice(self._attacks)
            self.sent[attack.__name__.strip("_").replace("_", " ")] += 1
            with suppress(OSError, TimeoutError):
                await attack()
            await asyncio.sleep(self._random.uniform(0, 2 * _PAUSE_S))

    async def _damaged_batch(self) -> None:
        damage = self._random.choice([*requests.DAMAGED_BATCHES.values()])
        await self._send(requests.produce(self._topic, damage(self._random)))

    async def _random_bytes(self) -> None:
        data = self._random.randbytes(self._random.randint(1, 2000))
        await self._send(requests.frame(data) if self._random.random() < 0.5 else data)

    async def _half_open(self) -> None:
        await self._send(b"\x00\x00\x00")

    async def _slow_frame(self) -> None:
        await self._send(requests.beginning_of_a_huge_produce(), *[b"\x00"] * _DRIPS)

    async def _repeated_partition(self) -> None:
        await self._send(requests.fetch(self._topic, entries=3000))

    async def _many_names(self) -> None:
        await self._send(requests.metadata_of_many_names())

    async def _unread_fetches(self) -> None:
        """Requests behind a long poll. Their answers stay unread."""
        waiting = requests.fetch(self._topic, entries=1, max_wait_ms=_LONG_POLL_MS)
        large = requests.fetch(self._topic, entries=2000)
        await self._send(waiting, *[large] * _LARGE_FETCHES, reads=False)

    async def _send(self, *parts: bytes, reads: bool = True) -> None:
        """Send the parts one by one, and stay for a while, or leave at once."""
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_connection(*self._random.choice(self._addresses))
            try:
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(_PAUSE_S if len(part) == 1 else 0)
                if reads and self._random.random() < 0.7:
                    await reader.read(_READ_BYTES)
            finally:
                writer.transport.abort()
