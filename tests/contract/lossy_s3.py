"""An S3 server behind a bad line."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.servers import S3Server

from stratalog.clock import SystemClock
from stratalog.objects import ObjectStore, RetryPolicy, open_store
from stratalog.retry import Backoff

METHODS = (b"PUT ", b"GET ", b"HEAD ", b"POST ", b"DELETE ")
QUICK = RetryPolicy(attempts=4, backoff=Backoff(first_s=0.001))


class LossyProxy:
    """Passes connections on to a server, notes requests, and loses replies to the first puts."""

    def __init__(self, port: int, losses: int) -> None:
        self._port = port
        self.losses = losses
        self.requests: list[bytes] = []
        self.most_puts_at_once = 0
        self._puts: set[asyncio.StreamReader] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._connections.add(asyncio.create_task(self._serve(reader, writer)))

    async def close(self) -> None:
        for connection in self._connections:
            connection.cancel()
        await asyncio.wait(self._connections)
        for writer in self._writers:
            # One that has sent the last bytes of its buffer and closed cannot be aborted any more.
            if not writer.is_closing():
                writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(up_writer)

        async def forward() -> None:
            while data := await reader.read(65536):
                self._note_request(reader, data)
                up_writer.write(data)
                await up_writer.drain()

        async def back() -> None:
            while data := await up_reader.read(65536):
                was_put = reader in self._puts
                self._puts.discard(reader)
                if was_put and self.losses:
                    self.losses -= 1
                    return
                writer.write(data)
                await writer.drain()

        tasks = {asyncio.create_task(forward()), asyncio.create_task(back())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._puts.discard(reader)
            for each in (writer, up_writer):
                each.close()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _note_request(self, connection: asyncio.StreamReader, data: bytes) -> None:
        if not data.startswith(METHODS):
            return
        self.requests.append(data.partition(b"\r\n")[0])
        if data.startswith(b"PUT "):
            self._puts.add(connection)
            self.most_puts_at_once = max(self.most_puts_at_once, len(self._puts))


@asynccontextmanager
async def lossy_s3(
    server: S3Server, losses: int, retries: RetryPolicy = QUICK
) -> AsyncIterator[tuple[ObjectStore, LossyProxy]]:
    proxy = LossyProxy(int(server.endpoint.rpartition(":")[2]), losses)
    listener = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    options = {**server.options, "endpoint": f"http://127.0.0.1:{port}"}
    options["pool_max_idle_per_host"] = "0"  # No connection outlives the test.
    store = open_store(server.fresh_url(), options, clock=SystemClock(), retries=retries)
    try:
        yield store, proxy
    finally:
        await store.close()
        listener.close()
        await proxy.close()
