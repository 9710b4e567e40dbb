"""A TCP proxy that stands between two parties and lets their connections go wrong.

It knows nothing of protocols. A broker has one to its clients, one to its database and one to its
object store, so that each of them can be lost to one broker and not to another.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

_CHUNK_BYTES = 64 * 1024


class Weather(StrEnum):
    FAIR = "fair"
    AWAY = "refuses"
    """Connections are cut, and new ones are cut at once."""
    DEAF = "loses replies"
    """Requests arrive, answers do not; when it ends, their connections are cut."""
    STALLED = "stalls"
    """Nothing passes, and connections stay open."""


@dataclass(eq=False, slots=True)
class _Link:
    here: asyncio.StreamWriter
    there: asyncio.StreamWriter
    lost_bytes: bool = False

    def cut(self) -> None:
        """Abort, so that the parties get a reset rather than an orderly end."""
        for writer in (self.here, self.there):
            writer.transport.abort()


class Proxy:
    """Passes connections to `address` on to the target."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._weather = Weather.FAIR
        self._is_held = False
        self._passable = asyncio.Event()
        self._passable.set()
        self._links: set[_Link] = set()
        self._handlers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None, "start the proxy first"
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    @property
    def is_passable(self) -> bool:
        return self._passable.is_set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self._passable.set()
        self.cut_all()
        for handler in list(self._handlers):
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        await self._server.wait_closed()

    def hold(self, weather: Weather) -> None:
        """Turn, and stay so until the release: other faults change nothing meanwhile."""
        self.turn(weather)
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self.turn(Weather.FAIR)

    def turn(self, weather: Weather) -> None:
        if self._is_held:
            return
        self._weather = weather
        if weather is Weather.STALLED:
            self._passable.clear()
        else:
            self._passable.set()
        if weather is Weather.AWAY:
            self.cut_all()
        elif weather is not Weather.DEAF:
            self._cut_those_that_lost_bytes()

    def cut_all(self) -> None:
        for link in list(self._links):
            link.cut()

    def _cut_those_that_lost_bytes(self) -> None:
        for link in list(self._links):
            if link.lost_bytes:
                link.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self._handlers.add(handler)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # The proxy breaks connections on purpose.
        finally:
            self._handlers.discard(handler)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._weather is Weather.AWAY:
            return
        back, there = await asyncio.open_connection(*self._target)
        link = _Link(writer, there)
        self._links.add(link)
        pumps = [
            asyncio.ensure_future(self._pump(reader, there, link, replies=False)),
            asyncio.ensure_future(self._pump(back, writer, link, replies=True)),
        ]
        try:
            # When one direction ends, the connection ends: no protocol here half-closes.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._links.discard(link)
            link.cut()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        link: _Link,
        *,
        replies: bool,
    ) -> None:
        with suppress(OSError):
            while chunk := await source.read(_CHUNK_BYTES):
                await self._passable.wait()
                if replies and self._weather is Weather.DEAF:
                    link.lost_bytes = True
                elif not link.lost_bytes:
                    sink.write(chunk)
                    await sink.drain()
