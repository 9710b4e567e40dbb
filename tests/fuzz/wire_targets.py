"""Bytes of clients: frames, headers, bodies of every version of every API, and first bytes of a
connection."""

import asyncio
import atexit
import logging
import struct
from collections.abc import Awaitable, Callable
from functools import cache
from random import Random
from typing import Any

from kio.index import load_request_schema
from tests.fuzz.judge import Case, Target
from tests.unit.kafka.handlers.desk import Desk
from tests.unit.kafka.server.clients import request
from tests.unit.kafka.wire.samples import encoded, sample

from stratalog.clock import SystemClock
from stratalog.control.errors import ControlUnavailableError
from stratalog.kafka.registry import handler_classes, served
from stratalog.kafka.server.acceptor import Acceptor
from stratalog.kafka.server.budget import ByteBudget
from stratalog.kafka.server.connection import Budgets, Connection, ConnectionLimits
from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.frames import FrameReceiver, Progress, shared_buffer
from stratalog.kafka.wire.header import parse_header
from stratalog.kafka.wire.schema_reader import compiled_reader

_MOST_BYTES = 10_000
_LARGEST_BODY_BYTES = 4000
_LIMITS = ConnectionLimits(
    max_request_bytes=_MOST_BYTES,
    max_control_request_bytes=_MOST_BYTES // 2,
    max_pipelined_requests=3,
)
_SERVED = served()
_CLIENT_HELLO = bytes.fromhex("160301007b0100007703036f") + bytes(range(116))
_SASL_HANDSHAKE = 17


def wire_targets() -> list[Target]:
    return [
        Target("frames", 1.5, _frame_cases()),
        Target("request headers", 9, [Case(good, _read_header) for good in _requests()]),
        Target("request bodies", 4, _body_cases()),
        Target("first bytes of a connection", 1.1, _connection_cases()),
    ]


def _requests() -> list[bytes]:
    return [
        request(key, version, 7, bytes(20))[4:]
        for key, versions in _SERVED.items()
        for version in {versions.first, versions.last}
    ]


def _read_header(data: bytes) -> None:
    if len(data) >= 8:
        parse_header(memoryview(data), _SERVED)


def _frame_cases() -> list[Case]:
    good = b"".join(struct.pack(">i", len(one)) + one for one in _requests()[:4])
    return [Case(good, _receiving(step)) for step in (7, 64, 4096)]


def _receiving(step: int) -> Callable[[bytes], None]:
    """Receive a stream that arrives in pieces of this size."""

    def receive(data: bytes) -> None:
        receiver, position = FrameReceiver(_MOST_BYTES, shared_buffer()), 0
        while position < len(data):
            room = receiver.buffer()
            count = min(len(room), step, len(data) - position)
            room[:count] = data[position : position + count]
            room.release()
            position += count
            receiver.received(count)
            while (progress := receiver.proceed()) is not Progress.PARTIAL:
                if progress is Progress.WHOLE:
                    _read_header(bytes(receiver.take()))
                else:
                    receiver.admit(min(256, receiver.size_bytes - receiver.admitted_bytes))
            receiver.keep()

    return receive


def _body_cases() -> list[Case]:
    cases = []
    for key, handler in handler_classes().items():
        for version in range(handler.versions.first, handler.versions.last + 1):
            reader = compiled_reader(handler.body, key, version)
            schema = load_request_schema(key, version)
            for seed in range(2):
                good = encoded(sample(schema, Random(seed)))
                if len(good) <= _LARGEST_BODY_BYTES:
                    cases.append(Case(good, _reading(reader)))
    return cases


def _reading(reader: Callable[[memoryview, int], Any]) -> Callable[[bytes], object]:
    return lambda data: reader(memoryview(data), 0)


class _Server:
    """Serves connections, one after the other, and raises the errors that are logged meanwhile."""

    def __init__(self) -> None:
        self._errors = _Errors()
        desk = Desk()
        # Mutants call for more than the desk has.
        setattr(desk.control, "around", _away)  # noqa: B010
        self._acceptor = desk.dispatcher

    def serve(self, data: bytes) -> None:
        logger = logging.getLogger("stratalog")
        propagates, logger.propagate = logger.propagate, False
        logger.addHandler(self._errors)
        try:
            _loop().run_until_complete(_served_connection(data, self._acceptor))
        finally:
            logger.removeHandler(self._errors)
            logger.propagate = propagates
        self._errors.raise_first()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One for all inputs: a new one takes longer than an input."""
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


async def _away(_name: str, call: Callable[[], Awaitable[Any]]) -> Any:
    """Answer like a control plane that is away where the fake has no answer."""
    try:
        return await call()
    except AssertionError as error:
        raise ControlUnavailableError("the fake does not answer this call") from error


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._first: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._first = self._first or error or AssertionError(record.getMessage())

    def raise_first(self) -> None:
        error, self._first = self._first, None
        if error is not None:
            raise error


class _Transport(asyncio.Transport):
    """A client that has sent all that it will, and reads everything."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: Connection | None = None
        self.reads = True
        self.is_open = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """The answer goes nowhere."""

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            assert self.connection is not None
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    abort = close


async def _served_connection(data: bytes, acceptor: Acceptor) -> None:
    transport = _Transport()
    connection = Connection(
        number=1,
        listener="127.0.0.1:9092",
        acceptor=acceptor,
        budgets=Budgets(ByteBudget(_MOST_BYTES), ByteBudget(_MOST_BYTES)),
        limits=_LIMITS,
        shared=shared_buffer(),
        clock=SystemClock(),
        on_opened=lambda _: None,
        on_closed=lambda _: None,
    )
    transport.connection = connection
    connection.connection_made(transport)
    position = 0
    while position < len(data) and transport.is_open:
        if not transport.reads:
            await asyncio.sleep(0)
            continue
        room = connection.get_buffer(-1)
        count = min(len(room), len(data) - position)
        room[:count] = data[position : position + count]
        room.release()
        position += count
        connection.buffer_updated(count)
    connection.eof_received()
    transport.close()
    await connection.closed


def _connection_cases() -> list[Case]:
    server = _Server()
    first = [request(ApiKey.API_VERSIONS, version, 1, bytes(9)) for version in range(5)]
    first += [request(_SASL_HANDSHAKE, version, 1, b"\0\5PLAIN" + bytes(9)) for version in range(2)]
    first += [_CLIENT_HELLO, b"GET / HTTP/1.1\r\nHost: localhost:9092\r\n\r\n", bytes(40)]
    first += [
        first[0] + request(key, _SERVED[key].last, 2, _body(key, seed))
        for key in (ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.LIST_OFFSETS)
        for seed in range(2)
    ]
    return [Case(good, server.serve) for good in first]


def _body(key: ApiKey, seed: int) -> bytes:
    return b"\0" + encoded(sample(load_request_schema(key, _SERVED[key].last), Random(seed)))
