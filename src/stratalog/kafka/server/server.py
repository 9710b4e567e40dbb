"""Listens for Kafka clients and keeps their connections."""

import asyncio
import itertools
import logging
import socket
from collections.abc import Coroutine
from functools import partial
from typing import NamedTuple, Protocol

from stratalog import descriptors
from stratalog.clock import Clock
from stratalog.kafka.server.acceptor import Acceptor
from stratalog.kafka.server.admission import Admission
from stratalog.kafka.server.budget import ByteBudget
from stratalog.kafka.server.connection import Budgets, Connection, ConnectionLimits
from stratalog.kafka.server.work import Workplace
from stratalog.kafka.wire.frames import shared_buffer
from stratalog.metrics import CONNECTIONS_IDLE, Metrics
from stratalog.settings import BrokerSettings

log = logging.getLogger(__name__)

_STALL_S = 60.0
"""A request that is half received and does not proceed holds memory that others wait for."""
_LEAST_BYTES_PER_S = 1 << 20
"""A request may take the time of a stall and a second per MiB, which is beyond the patience of most
clients: Java's give up after half a minute."""
_LEAST_TAKEN_BYTES_PER_S = 64 << 10
"""A slow reader costs memory that only few others want."""
_SHORT_STALL_S = 5.0
"""The time of a stall while memory is short. The least rate of readers is that of writers then."""
_STALL_CHECK_S = 5.0
_KILL_S = 1.0
_BACKLOG = 1024
_ACCEPT_PAUSE_S = 1.0
"""After a failed accept. The system is out of descriptors or memory, which takes time to pass."""


class Address(NamedTuple):
    host: str
    port: int


def parse_address(text: str) -> Address:
    """`host:port`, `[v6]:port` or `:port` for all interfaces."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address: write host:port")
    return Address(host.strip("[]") or "0.0.0.0", int(port))


class Server:
    """Binds first and starts later: other parts need the port before requests can be served."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        max_inflight_bytes: int,
        clock: Clock,
        metrics: Metrics | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._budgets = Budgets(
            produce=ByteBudget(max_inflight_bytes),
            control=ByteBudget(settings.request_memory_bytes // 2),
        )
        self.workplace = Workplace.open(settings, clock)
        """For the acceptor, which claims memory for the requests that it works on."""
        self._shared = shared_buffer()
        self._connections: set[Connection] = set()
        self._numbers = itertools.count(1)
        self._socket: socket.socket | None = None
        self._relays: socket.socket | None = None
        self._workers: list[asyncio.Task[None]] = []
        self._stopping = False
        metrics = metrics or Metrics()
        self._idle = metrics.counter(CONNECTIONS_IDLE)
        self._admission = Admission(
            most=settings.max_connections,
            most_per_address=settings.max_connections_per_address,
            reserve_keeps=descriptors.most_clients(),
            clock=clock,
            metrics=metrics,
        )

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def inflight_bytes(self) -> int:
        """The bytes of the requests that are in memory, as they arrived."""
        return self._budgets.produce.used_bytes + self._budgets.control.used_bytes

    def bind(self) -> Address:
        """Bind the listening address and return it, with the port that was chosen."""
        host, port = parse_address(self._settings.listen)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.take(socket.create_server((host, port), family=family, backlog=_BACKLOG))
        return Address(host, self.listening.getsockname()[1])

    def take(self, listening: socket.socket) -> None:
        """Take a socket that another process of this broker has bound. Each client that comes to it
        is accepted by one of them."""
        listening.setblocking(False)
        self._socket = listening

    @property
    def listening(self) -> socket.socket:
        assert self._socket is not None, "bind first"
        return self._socket

    async def start(self, acceptor: Acceptor) -> None:
        """Serve the clients that come to the bound address."""
        self._begin(self._accept_for_ever(self.listening, acceptor, self._admission), "listener")
        self._begin(self._close_idle_for_ever(), "idle watch")

    def start_relays(self, listening: socket.socket, acceptor: Acceptor) -> None:
        """Serve the relays of this broker's other workers, which have admitted their clients."""
        listening.setblocking(False)
        self._relays = listening
        self._begin(self._accept_for_ever(listening, acceptor, _EveryRelay()), "relays")

    def _begin(self, work: Coroutine[object, object, None], name: str) -> None:
        self._workers.append(asyncio.create_task(work, name=name))

    def _connection(self, host: str, acceptor: Acceptor, admission: "_Admits") -> Connection:
        return Connection(
            number=next(self._numbers),
            listener=self._settings.listen,
            acceptor=acceptor,
            budgets=self._budgets,
            limits=ConnectionLimits(
                max_request_bytes=self._settings.max_request_bytes,
                max_control_request_bytes=self._settings.max_control_request_bytes,
                max_pipelined_requests=self._settings.max_pipelined_requests,
            ),
            shared=self._shared,
            clock=self._clock,
            on_opened=self._opened,
            on_closed=lambda connection: self._closed(connection, host, admission),
        )

    async def _accept_for_ever(
        self, listening: socket.socket, acceptor: Acceptor, admission: "_Admits"
    ) -> None:
        """Accept clients one at a time, so that the limits hold at every moment: the event loop's
        own listener accepts all that wait before the first of them can be refused."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(listening)
            except ConnectionError:
                continue  # The client left while it waited.
            except OSError as error:
                log.warning("No client can be accepted, trying again: %s", error)
                await self._clock.sleep(_ACCEPT_PAUSE_S)
                continue
            # A client of a Unix socket has no address.
            if not admission.admit(host := str(address[0]) if address else ""):
                client.close()
                continue
            connection = self._connection(host, acceptor, admission)
            try:
                await loop.connect_accepted_socket(partial(_itself, connection), client)
            except OSError as error:
                log.info("The client at %s left at once: %s", host, error)
                client.close()
                if connection not in self._connections:
                    admission.left(host)

    def _opened(self, connection: Connection) -> None:
        """Close a client at once that was accepted just before the listener closed."""
        self._connections.add(connection)
        if self._stopping:
            connection.close()

    def _closed(self, connection: Connection, host: str, admission: "_Admits") -> None:
        self._connections.discard(connection)
        admission.left(host)

    async def stop(self, timeout_ms: int) -> None:
        """Answer the accepted requests, then close. Connections that take longer are cut off."""
        self._stopping = True
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for listening in (self._socket, self._relays):
            if listening is not None:
                listening.close()
        for connection in list(self._connections):
            connection.close()
        if not await self._until_closed(timeout_ms / 1000):
            log.warning("Cutting %d connections off", len(self._connections))
            for connection in list(self._connections):
                connection.kill()
            await self._until_closed(_KILL_S)

    async def _until_closed(self, timeout_s: float) -> bool:
        """Wait until no connection is left. Returns False after the timeout."""
        closed = [connection.closed for connection in self._connections]
        if closed:
            await asyncio.wait(closed, timeout=timeout_s)
        return not self._connections

    async def _close_idle_for_ever(self) -> None:
        idle_s = self._settings.connections_max_idle_ms / 1000
        while True:
            await self._clock.sleep(_STALL_CHECK_S)
            stall_s = _SHORT_STALL_S if self._budgets.is_short else _STALL_S
            readers_are_waited_for = self.workplace.answers.is_short
            for connection in list(self._connections):
                if connection.is_late(stall_s=stall_s, least_bytes_per_s=_LEAST_BYTES_PER_S):
                    log.info("Closing the connection of %s: its request is late", connection.peer)
                    connection.abort()
                elif _is_slow(connection, is_waited_for=readers_are_waited_for):
                    log.info("Closing the connection of %s: it reads too slowly", connection.peer)
                    connection.abort()
                elif connection.is_idle(idle_s):
                    log.debug("Closing the connection of %s: it is idle", connection.peer)
                    self._idle.inc()
                    connection.abort()


class _Admits(Protocol):
    def admit(self, host: str) -> bool: ...

    def left(self, host: str) -> None: ...


class _EveryRelay:
    def admit(self, host: str) -> bool:  # noqa: ARG002
        return True

    def left(self, host: str) -> None: ...


def _is_slow(connection: Connection, *, is_waited_for: bool) -> bool:
    if is_waited_for:
        return connection.is_slow(stall_s=_SHORT_STALL_S, least_bytes_per_s=_LEAST_BYTES_PER_S)
    return connection.is_slow(stall_s=_STALL_S, least_bytes_per_s=_LEAST_TAKEN_BYTES_PER_S)


def _itself(connection: Connection) -> Connection:
    return connection
