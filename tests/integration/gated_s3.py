"""An S3 server behind a gate: requests are counted, held up, or answered with 503, as a test asks
for."""

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from tests.support.servers import S3Server

_METHODS = (b"PUT ", b"GET ", b"HEAD ", b"POST ", b"DELETE ")
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 0\r\n"
    b"Connection: close\r\n\r\n"
)
PATIENCE_S = 120.0


@dataclass
class _Order:
    request: re.Pattern[bytes]
    left: int
    refuse: bool
    met: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released for each request that was refused, and for each that is held, but not again when its
    client loses patience and repeats it."""
    lines: set[bytes] = field(default_factory=set)


class Gate:
    """All methods may be called from any thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._orders: list[_Order] = []
        self._open = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self.requests: list[str] = []
        """The first line of each that came."""
        self.answered_bytes = 0
        """Headers included."""

    def hold(self, request: str, times: int = 1000) -> threading.Semaphore:
        """Let requests whose first line matches wait until `release`."""
        return self._give(_Order(re.compile(request.encode()), times, refuse=False))

    def refuse(self, request: str, times: int) -> threading.Semaphore:
        """Answer so many requests with 503."""
        return self._give(_Order(re.compile(request.encode()), times, refuse=True))

    def release(self) -> None:
        """Let all requests pass from now on, including the waiting ones."""
        self._orders.clear()
        self._loop.call_soon_threadsafe(self._open.set)

    def _give(self, order: _Order) -> threading.Semaphore:
        self._loop.call_soon_threadsafe(self._open.clear)
        self._orders.append(order)
        return order.met

    @contextmanager
    def running(self) -> Iterator[int]:
        """Answers the port on which it listens."""
        listener = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            asyncio.run_coroutine_threadsafe(self._close(listener), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    async def _close(self, listener: asyncio.Server) -> None:
        listener.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        ways = [
            asyncio.ensure_future(self._forward(reader, writer, up_writer)),
            asyncio.ensure_future(self._back(up_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for each in (writer, up_writer):
                with suppress(OSError):
                    each.close()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        while data := await reader.read(65536):
            order = self._order_for(data)
            if order is not None and order.refuse:
                writer.write(_BUSY)
                await writer.drain()
                return
            if order is not None:
                await self._open.wait()
            up_writer.write(data)
            await up_writer.drain()

    async def _back(self, up_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await up_reader.read(65536):
            self.answered_bytes += len(data)
            writer.write(data)
            await writer.drain()

    def _order_for(self, data: bytes) -> _Order | None:
        """Clients wait for their answers, so a request begins where a piece of data does."""
        if not data.startswith(_METHODS):
            return None
        line = data.partition(b"\r\n")[0]
        self.requests.append(line.decode())
        for order in self._orders:
            if order.left and order.request.search(line):
                order.left -= 1
                if order.refuse or line not in order.lines:
                    order.met.release()
                order.lines.add(line)
                return order
        return None


def await_request(met: threading.Semaphore) -> None:
    assert met.acquire(timeout=PATIENCE_S), "no such request came"


@contextmanager
def gated(server: S3Server) -> Iterator[tuple[Gate, S3Server]]:
    """The gate, and the server as it is seen through it."""
    gate = Gate(int(server.endpoint.rpartition(":")[2]))
    with gate.running() as port:
        yield gate, replace(server, endpoint=f"http://127.0.0.1:{port}")
