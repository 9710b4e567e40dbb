"""Whatever bytes come, the server survives them, and serves the next client."""

import asyncio
import struct
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from tests.unit.kafka.handlers.desk import SESSION, Desk, answered
from tests.unit.kafka.server.clients import connected, request
from tests.unit.kafka.wire.samples import encoded, sample

from stratalog.clock import SystemClock
from stratalog.errors import CallError
from stratalog.kafka.registry import served
from stratalog.kafka.server.server import Address, Server
from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.frames import FrameReceiver, Progress, shared_buffer
from stratalog.settings import BrokerSettings

MAX_REQUEST_BYTES = 10_000
API_VERSIONS = 18

frames = st.binary(max_size=200).map(lambda body: struct.pack(">i", len(body)) + body)
headers = st.tuples(
    st.sampled_from([*served(), 11, 99]),
    st.integers(-1, 20),
    st.integers(0, 5),
    st.binary(max_size=99),
).map(lambda parts: request(*parts))


@st.composite
def mutated_requests(draw: st.DrawFn) -> tuple[ApiKey, int, bytes]:
    """A good body of some request, with a few bytes changed, cut off or put in."""
    key = draw(st.sampled_from(list(served())))
    version = draw(st.integers(served()[key].first, served()[key].last))
    seed = draw(st.integers(0, 1000))
    body = bytearray(encoded(sample(load_request_schema(key, version), Random(seed))))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, max(len(body) - 1, 0)))
        body[place : place + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b"\xff", b"\x7f\xff\xff\xff", b"\x00", b"\x80\x80\x80\x80\x08"])
        )
    return key, version, bytes(body)


async def throw(address: Address, sent: bytes) -> None:
    async with connected(address) as client:
        await client.send(sent)
        client.send_eof()


async def is_serving(address: Address) -> bool:
    async with connected(address) as client:
        await client.send(request(API_VERSIONS, 0, 5))
        return await client.correlation_id() == 5


async def survives(thrown: list[bytes]) -> bool:
    broker = BrokerSettings(listen="127.0.0.1:0", max_request_bytes=MAX_REQUEST_BYTES)
    server = Server(settings=broker, max_inflight_bytes=MAX_REQUEST_BYTES, clock=SystemClock())
    address = server.bind()
    await server.start(Desk().dispatcher)
    try:
        for sent in thrown:
            await throw(address, sent)
        alive = await is_serving(address)
    finally:
        await server.stop(2_000)
    return alive and server.inflight_bytes == 0 and server.connection_count == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(st.binary(max_size=300), frames, headers), min_size=1, max_size=6))
def test_random_bytes_never_end_the_server(thrown: list[bytes]) -> None:
    assert asyncio.run(survives(thrown))


async def is_answered_or_refused(key: ApiKey, version: int, body: bytes) -> bool:
    tags = b"\x00" if served()[key].is_flexible(version) else b""
    frame = bytearray(struct.pack(">hhih", key, version, 1, -1) + tags + body)
    try:
        response = await answered(Desk().dispatcher.accept(frame, SESSION))
    except CallError:
        return True
    return response is None or len(b"".join(response)) >= 8


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated_requests())
def test_a_damaged_request_is_answered_or_refused_and_nothing_else(
    damaged: tuple[ApiKey, int, bytes],
) -> None:
    assert asyncio.run(is_answered_or_refused(*damaged))


@given(st.lists(st.binary(min_size=8, max_size=200)), st.data())
def test_requests_come_out_whole_however_the_stream_is_cut(
    payloads: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)
    receiver = FrameReceiver(MAX_REQUEST_BYTES, shared_buffer())
    received = []
    while stream:
        room = receiver.buffer()
        count = data.draw(st.integers(1, min(len(room), len(stream))))
        room[:count], stream = stream[:count], stream[count:]
        room.release()
        receiver.received(count)
        while (progress := receiver.proceed()) is not Progress.PARTIAL:
            if progress is Progress.WHOLE:
                received.append(bytes(receiver.take()))
                continue
            missing = receiver.size_bytes - receiver.admitted_bytes
            least = min(missing, 3)
            receiver.admit(data.draw(st.integers(least, missing)))
        receiver.keep()
    assert received == payloads
