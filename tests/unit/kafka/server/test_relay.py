"""Requests that one worker relays to another: in order, with the client's name, and no longer than
the client stays."""

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.unit.kafka.server.clients import connected, request

from stratalog.clock import SystemClock
from stratalog.kafka.server.acceptor import Accepted, Running
from stratalog.kafka.server.relay import RelayedAcceptor, RelayingAcceptor
from stratalog.kafka.server.server import Address, Server
from stratalog.kafka.server.session import Session
from stratalog.kafka.wire.primitives import INT32
from stratalog.settings import BrokerSettings

OWN = 0
RELAYED = 11
CORRELATION = 4


class Echo:
    """Answers each request with its correlation id and the name of the worker."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.sessions: list[Session] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def accept(self, frame: bytearray, session: Session) -> Accepted:
        self.sessions.append(session)
        answer = bytes(frame[CORRELATION : CORRELATION + INT32.size]) + self.name
        waiting = asyncio.create_task(self.may_answer.wait())
        return Running(waiting, lambda: [INT32.pack(len(answer)), answer], outlives_client=False)


class Pair:
    """A worker, and the first worker that it relays to."""

    def __init__(self, folder: Path) -> None:
        settings = BrokerSettings(listen="127.0.0.1:0")
        self.socket = folder / "relays"
        self.first = Echo(b"first")
        self.own = Echo(b"own")
        self.first_server = Server(
            settings=settings, max_inflight_bytes=1_000_000, clock=SystemClock()
        )
        self.server = Server(settings=settings, max_inflight_bytes=1_000_000, clock=SystemClock())

    async def start(self) -> Address:
        self.listen()
        relaying = RelayingAcceptor(
            self.own, own_keys={OWN}, socket=self.socket, workplace=self.server.workplace
        )
        address = self.server.bind()
        await self.server.start(relaying)
        return address

    def listen(self) -> None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(self.socket))
        listening.listen()
        self.first_server.start_relays(listening, RelayedAcceptor(self.first))

    async def stop(self) -> None:
        await self.server.stop(1000)
        await self.first_server.stop(1000)


@pytest.fixture
def folder() -> Iterator[Path]:
    """The name of a Unix socket must be short, which `tmp_path` is not everywhere."""
    with tempfile.TemporaryDirectory(prefix="relay-") as name:
        yield Path(name)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Pair, Address]]:
    pair = Pair(folder)
    address = await pair.start()
    try:
        yield pair, address
    finally:
        await pair.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_each_request_is_answered_by_its_worker_in_the_order_of_the_requests(
    folder: Path,
) -> None:
    async with serving(folder) as (_, address), connected(address) as client:
        keys = [RELAYED, OWN, RELAYED, RELAYED, OWN, OWN, RELAYED]
        for number, key in enumerate(keys):
            await client.send(request(key, 0, number))
        for number, key in enumerate(keys):
            frame = await client.frame()
            assert INT32.unpack_from(frame)[0] == number
            assert frame[INT32.size :] == (b"own" if key == OWN else b"first")


async def test_the_first_worker_knows_the_client(folder: Path) -> None:
    async with serving(folder) as (pair, address), connected(address) as client:
        await client.send(request(RELAYED, 0, 1))
        await client.frame()
        assert pair.first.sessions[0].client_host == "/127.0.0.1"


async def test_requests_of_one_client_share_a_relay_and_those_of_two_do_not(folder: Path) -> None:
    async with (
        serving(folder) as (pair, address),
        connected(address) as one,
        connected(address) as other,
    ):
        for client in (one, one, other):
            await client.send(request(RELAYED, 0, 1))
            await client.frame()
        numbers = [session.number for session in pair.first.sessions]
        assert numbers[0] == numbers[1] != numbers[2]
        assert pair.first_server.connection_count == 2


async def test_the_relay_ends_with_its_client(folder: Path) -> None:
    async with serving(folder) as (pair, address):
        async with connected(address) as client:
            await client.send(request(RELAYED, 0, 1))
            await client.frame()
            assert pair.first_server.connection_count == 1
        await until(lambda: pair.first_server.connection_count == 0)


async def test_a_client_that_leaves_does_not_wait_for_the_first_worker(folder: Path) -> None:
    async with serving(folder) as (pair, address):
        pair.first.may_answer.clear()
        async with connected(address) as client:
            await client.send(request(RELAYED, 0, 1))
            await until(lambda: pair.first.sessions)
        await until(lambda: pair.server.connection_count == 0)
        await until(lambda: pair.first_server.connection_count == 0)


async def test_a_first_worker_that_is_gone_costs_the_client_its_connection(folder: Path) -> None:
    async with serving(folder) as (pair, address):
        async with connected(address) as client:
            await client.send(request(RELAYED, 0, 1))
            await client.frame()
            await pair.first_server.stop(1000)
            await client.send(request(RELAYED, 0, 2))
            assert await client.is_closed_by_server()
        async with connected(address) as client:
            await client.send(request(OWN, 0, 3))
            assert await client.correlation_id() == 3


async def test_a_relay_that_was_closed_between_two_requests_is_opened_again(folder: Path) -> None:
    async with serving(folder) as (pair, address), connected(address) as client:
        await client.send(request(RELAYED, 0, 1))
        await client.frame()
        for connection in list(pair.first_server._connections):
            connection.abort()
        await until(lambda: pair.first_server.connection_count == 0)
        await asyncio.sleep(0)
        await client.send(request(RELAYED, 0, 2))
        assert await client.correlation_id() == 2


async def test_an_answer_larger_than_any_buffer_is_relayed_whole(folder: Path) -> None:
    async with serving(folder) as (pair, address), connected(address) as client:
        pair.first.name = bytes(range(256)) * (4 << 12)
        await client.send(request(RELAYED, 0, 1))
        assert (await client.frame())[INT32.size :] == pair.first.name


async def test_only_a_relay_may_introduce_a_client(folder: Path) -> None:
    async with serving(folder) as (pair, address), connected(address) as client:
        await client.send(request(-1, 0, 1))
        await client.is_closed_by_server()
        assert not pair.first.sessions
