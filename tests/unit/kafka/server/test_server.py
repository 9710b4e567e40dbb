"""Clients that do not speak the protocol well lose their own connection and no other."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.kafka.handlers.desk import Desk
from tests.unit.kafka.server.clients import connected, request

from stratalog.clock import SystemClock
from stratalog.kafka.server.acceptor import Accepted, InTurn, Response
from stratalog.kafka.server.memory import Memory
from stratalog.kafka.server.server import Address, Server, parse_address
from stratalog.kafka.server.session import Session
from stratalog.settings import BrokerSettings

API_VERSIONS = 18
METADATA = 3


@asynccontextmanager
async def serving() -> AsyncIterator[Address]:
    settings = BrokerSettings(listen="127.0.0.1:0", max_request_bytes=100_000)
    server = Server(settings=settings, max_inflight_bytes=1_000_000, clock=SystemClock())
    address = server.bind()
    await server.start(Desk().dispatcher)
    try:
        yield address
    finally:
        await server.stop(1_000)


async def is_serving(address: Address) -> bool:
    async with connected(address) as client:
        await client.send(request(API_VERSIONS, 0, 5))
        return await client.correlation_id() == 5


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="tls"),
        pytest.param(request(9999, 0, 1), id="unknown api"),
        pytest.param(request(-1, 0, 1), id="negative api"),
        pytest.param(request(11, 0, 1), id="an api of kafka that is not served"),
        pytest.param(request(0, 2, 1), id="produce that is advertised but refused"),
        pytest.param(request(1, 3, 1), id="fetch below the first version"),
        pytest.param(request(1, 19, 1), id="fetch above the last version"),
        pytest.param(request(METADATA, -1, 1), id="negative version"),
        pytest.param(request(METADATA, 1, 1, b"\x7f\xff\xff\xff"), id="a hostile array"),
        pytest.param(request(METADATA, 1, 1, b"\x00"), id="a body that is cut off"),
        pytest.param(request(0, 7, 1, b"\x00"), id="a produce that is cut off"),
        pytest.param(
            struct.pack(">ihhih", 10, METADATA, 1, 1, 500), id="a client id beyond the end"
        ),
        pytest.param(struct.pack(">ihhi", 8, METADATA, 1, 1), id="no client id"),
    ],
)
async def test_what_is_not_a_request_closes_that_connection_alone(sent: bytes) -> None:
    async with serving() as address, connected(address) as healthy:
        async with connected(address) as client:
            await client.send(sent)
            assert await client.is_closed_by_server()
        await healthy.send(request(API_VERSIONS, 0, 9))
        assert await healthy.correlation_id() == 9
        assert await is_serving(address)


@pytest.mark.parametrize("version", [5, 32767, -1])
async def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_the_range(
    version: int,
) -> None:
    async with serving() as address, connected(address) as client:
        await client.send(request(API_VERSIONS, version, 6, b"whatever comes"))
        frame = await client.frame()
        correlation_id, code, count = struct.unpack_from(">ihi", frame)
        keys = [struct.unpack_from(">hhh", frame, 10 + 6 * place) for place in range(count)]
        assert (correlation_id, code) == (6, ErrorCode.unsupported_version)
        assert (18, 0, 4) in keys
        assert len(frame) == 10 + 6 * count
        await client.send(request(API_VERSIONS, 0, 7))
        assert await client.correlation_id() == 7


async def test_a_request_that_comes_byte_by_byte_is_answered() -> None:
    async with serving() as address, connected(address) as client:
        for byte in request(API_VERSIONS, 0, 8):
            await client.send(bytes([byte]))
        assert await client.correlation_id() == 8


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9092", ("localhost", 9092)),
        (":9092", ("0.0.0.0", 9092)),
        ("[::1]:0", ("::1", 0)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
    ],
)
def test_addresses_are_parsed(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["localhost", "localhost:", "localhost:x", "a:65536", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        parse_address(text)


async def test_a_half_sent_request_that_does_not_move_is_cut_off_in_the_end() -> None:
    """The clock belongs to the test: a check comes, and a minute has passed."""
    clock = JumpingClock()
    settings = BrokerSettings(listen="127.0.0.1:0")
    server = Server(settings=settings, max_inflight_bytes=1_000, clock=clock)
    address = server.bind()
    await server.start(Desk().dispatcher)
    async with connected(address) as stalled, connected(address) as idle:
        await stalled.send(request(0, 7, 1, b"." * 500)[:100])
        while server.inflight_bytes == 0:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await settle()
        clock.jump(59)
        await settle()
        assert server.inflight_bytes > 0
        clock.jump(2)
        assert await stalled.is_closed_by_server()
        await idle.send(request(API_VERSIONS, 0, 2))
        assert await idle.correlation_id() == 2
    await server.stop(1_000)
    assert server.inflight_bytes == 0


async def test_a_request_that_comes_by_a_byte_now_and_then_is_cut_off_at_its_deadline() -> None:
    clock = JumpingClock()
    settings = BrokerSettings(listen="127.0.0.1:0")
    server = Server(settings=settings, max_inflight_bytes=1_000, clock=clock)
    address = server.bind()
    await server.start(Desk().dispatcher)
    async with connected(address) as dribbling:
        await dribbling.send(struct.pack(">ih", 40 << 20, 0))
        while server.inflight_bytes == 0:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(4):
            await dribbling.send(b".")
            await settle()
            clock.jump(24)
            await settle()
        assert server.inflight_bytes > 0
        await dribbling.send(b".")
        await settle()
        clock.jump(24)
        assert await dribbling.is_closed_by_server()
    await server.stop(1_000)
    assert server.inflight_bytes == 0


async def test_a_client_that_does_not_take_its_answer_is_cut_off() -> None:
    """After a minute, or after some seconds if others wait for the memory of its answer."""
    for is_waited_for, patience_s in ((False, 58), (True, 3)):
        clock = JumpingClock()
        settings = BrokerSettings(listen="127.0.0.1:0")
        server = Server(settings=settings, max_inflight_bytes=1_000, clock=clock)
        address = server.bind()
        answers = server.workplace.answers
        await server.start(LargeAnswers(answers))
        async with connected(address) as slow:
            await slow.send(request(API_VERSIONS, 0, 1))
            while answers.used_bytes == 0:  # noqa: ASYNC110
                await asyncio.sleep(0)
            waiting = asyncio.create_task(answers.take(answers.total_bytes if is_waited_for else 1))
            await settle()
            clock.jump(patience_s)
            await settle()
            assert server.connection_count == 1
            # The system may have taken more of the answer, so that its deadline begins again.
            while server.connection_count:
                clock.jump(4)
                await settle()
            await waiting
        await server.stop(1_000)


class LargeAnswers:
    """Answers everything with more than the system's buffers of a socket take."""

    SIZE_BYTES = 64 << 20

    def __init__(self, answers: Memory) -> None:
        self._answers = answers

    def accept(self, frame: bytearray, session: Session) -> Accepted:
        return InTurn(self._answer, lambda: self._answers.give(self.SIZE_BYTES))

    async def _answer(self) -> Response:
        await self._answers.take(self.SIZE_BYTES)
        return [bytes(self.SIZE_BYTES)]


class JumpingClock(SystemClock):
    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._jumped = asyncio.Event()

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead_s

    def jump(self, seconds: float) -> None:
        self._ahead_s += seconds
        self._jumped.set()

    async def sleep(self, seconds: float) -> None:
        await self._jumped.wait()
        self._jumped.clear()


async def settle() -> None:
    """Let the loop receive the bytes that were sent."""
    for _ in range(50):
        await asyncio.sleep(0)
