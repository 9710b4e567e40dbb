"""Order, back-pressure and shutdown, with an acceptor whose answers the test lets go one by one."""

import asyncio
import gc
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.unit.kafka.server.clients import METADATA, PRODUCE, RawClient, connected, request
from tests.unit.kafka.server.loops import on_both_loops

from stratalog.clock import SystemClock
from stratalog.errors import CallError
from stratalog.kafka.server.acceptor import Accepted, Entering, InTurn, Response, Running
from stratalog.kafka.server.connection import Connection
from stratalog.kafka.server.server import Address, Server
from stratalog.kafka.server.session import Session
from stratalog.settings import BrokerSettings

IN_TURN = 1
REFUSED = 99
BUDGET_BYTES = 10_000
STEP_BYTES = 64 << 10
BUDGET_OF_STEPS = 20 * STEP_BYTES


class Steps:
    """An acceptor that answers a request with its correlation id when the test lets it."""

    def __init__(self) -> None:
        self.accepted: list[int] = []
        self.frames: dict[int, bytes] = {}
        self.sessions: list[Session] = []
        self.began: list[int] = []
        self.cancelled: list[int] = []
        self.released: list[int] = []
        self.answers: dict[int, asyncio.Future[Response]] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self._changed = asyncio.Event()

    def accept(self, frame: bytearray, session: Session) -> Accepted:
        (key,) = struct.unpack_from(">h", frame)
        if key == REFUSED:
            raise CallError("refused")
        if self.gate.is_set():
            return self._accept(frame, session)
        return Entering(self._accept_later(frame, session))

    async def _accept_later(self, frame: bytearray, session: Session) -> Running:
        await self.gate.wait()
        accepted = self._accept(frame, session)
        assert isinstance(accepted, Running)
        return accepted

    def _accept(self, frame: bytearray, session: Session) -> Running | InTurn:
        key, _, correlation_id = struct.unpack_from(">hhi", frame)
        self.sessions.append(session)
        self.accepted.append(correlation_id)
        self.frames[correlation_id] = bytes(frame)
        self._changed.set()
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.answers[correlation_id] = answer
        if key == IN_TURN:
            return InTurn(lambda: self._in_turn(correlation_id))
        answer.add_done_callback(
            lambda done: self.cancelled.append(correlation_id) if done.cancelled() else None
        )
        return Running(
            answer,
            answer.result,
            outlives_client=key == PRODUCE,
            release=lambda: self.released.append(correlation_id),
        )

    async def _in_turn(self, correlation_id: int) -> Response:
        self.began.append(correlation_id)
        self._changed.set()
        return await self.answers[correlation_id]

    def answer(self, correlation_id: int, *, padding: int = 0) -> None:
        payload = struct.pack(">i", correlation_id) + b"." * padding
        self.answers[correlation_id].set_result([struct.pack(">i", len(payload)), payload])

    async def until_accepted(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.accepted) < count:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def serving(
    steps: Steps, *, pipelined: int, budget: int, largest: int
) -> AsyncIterator[tuple[Server, Address]]:
    settings = BrokerSettings(
        listen="127.0.0.1:0", max_request_bytes=largest, max_pipelined_requests=pipelined
    )
    server = Server(settings=settings, max_inflight_bytes=budget, clock=SystemClock())
    address = server.bind()
    await server.start(steps)
    try:
        yield server, address
    finally:
        await server.stop(100)


@asynccontextmanager
async def conversing(
    *, pipelined: int = 100, budget: int = BUDGET_BYTES, largest: int = 50_000
) -> AsyncIterator[tuple[Steps, Server, Address, RawClient]]:
    steps = Steps()
    async with AsyncExitStack() as stack:
        server, address = await stack.enter_async_context(
            serving(steps, pipelined=pipelined, budget=budget, largest=largest)
        )
        client = await stack.enter_async_context(connected(address))
        yield steps, server, address, client


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that no event tells, such as the server seeing a lost connection."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def settle() -> None:
    """Let the loop do everything that it can do without anybody's answer."""
    for _ in range(50):
        await asyncio.sleep(0)


@on_both_loops
async def test_requests_are_accepted_ahead_and_answered_in_their_order() -> None:
    async with conversing() as (steps, _, _, client):
        await client.send(b"".join(request(METADATA, 0, number) for number in range(5)))
        await steps.until_accepted(5)
        for number in (4, 2, 0, 3, 1):
            steps.answer(number)
        assert [await client.correlation_id() for _ in range(5)] == [0, 1, 2, 3, 4]


@on_both_loops
async def test_the_next_request_is_not_accepted_before_the_one_in_front_of_it() -> None:
    async with conversing() as (steps, _, _, client):
        steps.gate.clear()
        await client.send(request(PRODUCE, 0, 1) + request(PRODUCE, 0, 2))
        await settle()
        assert steps.accepted == []
        steps.gate.set()
        await steps.until_accepted(2)
        assert steps.accepted == [1, 2]
        steps.answer(1)
        steps.answer(2)


@on_both_loops
async def test_requests_answered_in_turn_begin_when_earlier_responses_are_written() -> None:
    async with conversing() as (steps, _, _, client):
        await client.send(request(METADATA, 0, 1) + request(IN_TURN, 0, 2) + request(IN_TURN, 0, 3))
        await steps.until_accepted(3)
        assert steps.began == []
        steps.answer(1)
        assert await client.correlation_id() == 1
        await until(lambda: steps.began == [2])
        steps.answer(2)
        steps.answer(3)
        assert [await client.correlation_id() for _ in range(2)] == [2, 3]


@on_both_loops
async def test_a_request_that_is_not_answered_lets_the_next_one_be() -> None:
    async with conversing() as (steps, _, _, client):
        await client.send(request(PRODUCE, 0, 1) + request(METADATA, 0, 2))
        await steps.until_accepted(2)
        steps.answers[1].set_result(None)
        steps.answer(2)
        assert await client.correlation_id() == 2


@on_both_loops
async def test_no_more_than_the_limit_of_requests_is_read_ahead() -> None:
    async with conversing(pipelined=3) as (steps, _, _, client):
        await client.send(b"".join(request(METADATA, 0, number) for number in range(5)))
        await steps.until_accepted(3)
        await settle()
        assert steps.accepted == [0, 1, 2]
        steps.answer(0)
        await steps.until_accepted(4)
        for number in (1, 2, 3):
            steps.answer(number)
        await steps.until_accepted(5)
        steps.answer(4)
        assert [await client.correlation_id() for _ in range(5)] == [0, 1, 2, 3, 4]


@on_both_loops
async def test_produce_requests_wait_for_memory_and_others_do_not() -> None:
    async with conversing() as (steps, server, address, client), connected(address) as other:
        await client.send(request(PRODUCE, 0, 1, b"." * 8_000))
        await steps.until_accepted(1)
        await other.send(request(PRODUCE, 0, 2, b"." * 8_000))
        await settle()
        assert steps.accepted == [1]
        assert server.inflight_bytes > 8_000
        async with connected(address) as third:
            await third.send(request(METADATA, 0, 3, b"." * 8_000))
            await steps.until_accepted(2)
            steps.answer(3)
            assert await third.correlation_id() == 3
        steps.answer(1)
        await steps.until_accepted(3)
        steps.answer(2)
        assert await other.correlation_id() == 2
        assert server.inflight_bytes == 0


@on_both_loops
async def test_requests_that_arrived_with_one_that_waits_for_memory_follow_it() -> None:
    async with conversing(budget=1_000) as (steps, _, address, client), connected(address) as other:
        bodies = [bytes([number]) * 400 for number in range(6)]
        await client.send(b"".join(request(PRODUCE, 0, *one) for one in enumerate(bodies)))
        await steps.until_accepted(2)
        await other.send(b"".join(request(METADATA, 0, number, b"." * 400) for number in (7, 8, 9)))
        await steps.until_accepted(5)
        await settle()
        assert steps.accepted == [0, 1, 7, 8, 9], "the third waits, and others are served"
        for number in (*range(6), 7, 8, 9):
            await steps.until_accepted(min(number + 5, 9))
            steps.answer(number)
        assert [await client.correlation_id() for _ in range(6)] == [*range(6)]
        assert all(body in steps.frames[number] for number, body in enumerate(bodies))


@on_both_loops
async def test_a_request_larger_than_all_memory_is_taken_when_it_is_alone() -> None:
    async with conversing() as (steps, server, _, client):
        await client.send(request(PRODUCE, 0, 1, b"." * 3 * BUDGET_BYTES))
        await steps.until_accepted(1)
        steps.answer(1)
        assert await client.correlation_id() == 1
        assert server.inflight_bytes == 0


@on_both_loops
async def test_a_large_request_that_is_only_stated_keeps_nobody_from_producing() -> None:
    async with (
        conversing(budget=BUDGET_OF_STEPS, largest=BUDGET_OF_STEPS) as (steps, server, address, a),
        connected(address) as b,
        connected(address) as honest,
    ):
        for hostile in (a, b):
            await hostile.send(struct.pack(">ih", BUDGET_OF_STEPS, PRODUCE))
        await until(lambda: server.inflight_bytes == 2 * STEP_BYTES)
        await honest.send(request(PRODUCE, 0, 1, b"." * (BUDGET_OF_STEPS // 2)))
        await steps.until_accepted(1)
        steps.answer(1)
        assert await honest.correlation_id() == 1


@on_both_loops
async def test_many_half_arrived_requests_that_fill_all_memory_are_all_answered() -> None:
    count, size = 6, 10 * STEP_BYTES
    async with AsyncExitStack() as stack:
        steps, server, address, _ = await stack.enter_async_context(
            conversing(budget=BUDGET_OF_STEPS, largest=BUDGET_OF_STEPS)
        )
        clients = [await stack.enter_async_context(connected(address)) for _ in range(count)]
        bodies = [random.Random(number).randbytes(size) for number in range(count)]
        sending = [
            asyncio.create_task(client.send(request(PRODUCE, 0, number, body)))
            for number, (client, body) in enumerate(zip(clients, bodies, strict=True))
        ]
        for done in range(1, count + 1):
            await steps.until_accepted(done)
            assert server.inflight_bytes <= BUDGET_OF_STEPS + size + STEP_BYTES
            number = steps.accepted[done - 1]
            assert steps.frames[number].endswith(bodies[number])
            steps.answer(number)
        await asyncio.gather(*sending)
        for number, client in enumerate(clients):
            assert await client.correlation_id() == number
        assert server.inflight_bytes == 0


@on_both_loops
async def test_the_memory_of_a_request_is_free_when_it_is_done_not_when_it_is_its_turn() -> None:
    async with conversing() as (steps, server, _, client):
        await client.send(request(METADATA, 0, 1) + request(PRODUCE, 0, 2, b"." * 5_000))
        await steps.until_accepted(2)
        steps.answer(2)
        await until(lambda: server.inflight_bytes < 100)
        steps.answer(1)
        assert [await client.correlation_id() for _ in range(2)] == [1, 2]


@on_both_loops
async def test_a_lost_client_does_not_free_the_memory_of_what_is_still_being_written() -> None:
    async with conversing() as (steps, server, _, client):
        await client.send(request(PRODUCE, 0, 1, b"." * 5_000) + request(METADATA, 0, 2))
        await steps.until_accepted(2)
        await client.close()
        await settle()
        assert server.inflight_bytes > 5_000
        assert not steps.answers[1].cancelled()
        steps.answer(1)
        await until(lambda: server.inflight_bytes == 0 and server.connection_count == 0)
        assert steps.cancelled == [2]


@on_both_loops
async def test_a_client_that_is_lost_while_it_waits_for_memory_gives_it_back() -> None:
    async with conversing() as (steps, server, address, client):
        await client.send(request(PRODUCE, 0, 1, b"." * 8_000))
        await steps.until_accepted(1)
        async with connected(address) as waiting:
            await waiting.send(request(PRODUCE, 0, 2, b"." * 8_000)[:100])
            await settle()
        steps.answer(1)
        await until(lambda: server.inflight_bytes == 0 and server.connection_count == 1)
        assert steps.accepted == [1]


@on_both_loops
async def test_requests_that_came_whole_are_accepted_although_the_client_has_gone() -> None:
    async with conversing() as (steps, server, _, client):
        steps.gate.clear()
        await client.send(request(PRODUCE, 0, 1) + request(PRODUCE, 0, 2))
        await client.close()
        await settle()
        steps.gate.set()
        await steps.until_accepted(2)
        steps.answer(1)
        steps.answer(2)
        await until(lambda: server.connection_count == 0)


@on_both_loops
async def test_half_a_request_and_the_end_is_dropped() -> None:
    async with conversing() as (steps, server, _, client):
        await client.send(request(PRODUCE, 0, 1, b"." * 1_000)[:500])
        await until(lambda: server.inflight_bytes > 0)
        await client.close()
        await until(lambda: server.connection_count == 0)
        assert steps.accepted == []
        assert server.inflight_bytes == 0


@on_both_loops
async def test_requests_of_every_kind_are_charged_while_they_are_in_memory() -> None:
    async with conversing() as (steps, server, _, client):
        await client.send(request(METADATA, 0, 1, b"." * 5_000))
        await steps.until_accepted(1)
        assert server.inflight_bytes > 5_000
        await client.send(request(IN_TURN, 0, 2, b"." * 6_000))
        await steps.until_accepted(2)
        assert server.inflight_bytes > 11_000
        steps.answer(1)
        steps.answer(2)
        assert [await client.correlation_id() for _ in range(2)] == [1, 2]
        await until(lambda: server.inflight_bytes == 0)


@on_both_loops
async def test_only_requests_with_records_may_be_as_large_as_records() -> None:
    async with conversing(budget=20 << 20, largest=20 << 20) as (steps, server, address, client):
        await client.send(struct.pack(">ih", 9 << 20, METADATA))
        assert await client.is_closed_by_server()
        async with connected(address) as producer:
            await producer.send(request(PRODUCE, 0, 1, b"." * (9 << 20)))
            await steps.until_accepted(1)
            steps.answer(1)
            assert await producer.correlation_id() == 1
        await until(lambda: server.inflight_bytes == 0)


@on_both_loops
async def test_an_answer_is_released_when_the_client_has_taken_it() -> None:
    async with conversing() as (steps, _, _, client):
        await client.send(request(METADATA, 0, 1) + request(METADATA, 0, 2))
        await steps.until_accepted(2)
        steps.answer(1, padding=30 << 20)
        steps.answer(2)
        await settle()
        assert steps.released == []
        assert [await client.correlation_id() for _ in range(2)] == [1, 2]
        await until(lambda: steps.released == [1, 2])


@pytest.mark.parametrize("size", [-1, 0, 7, 50_001, 2**31 - 1])
@on_both_loops
async def test_an_absurd_length_closes_that_connection_alone(size: int) -> None:
    async with conversing() as (steps, _, address, client), connected(address) as other:
        await client.send(struct.pack(">i", size) + b"garbage")
        assert await client.is_closed_by_server()
        await other.send(request(METADATA, 0, 1))
        await steps.until_accepted(1)
        steps.answer(1)
        assert await other.correlation_id() == 1


@on_both_loops
async def test_a_request_that_is_refused_closes_after_the_earlier_ones_were_answered() -> None:
    async with conversing() as (steps, server, _, client):
        await client.send(request(PRODUCE, 0, 1, b"." * 100) + request(REFUSED, 0, 2))
        await client.send(request(PRODUCE, 0, 3, b"." * 100))
        await steps.until_accepted(1)
        await settle()
        steps.answer(1)
        assert await client.correlation_id() == 1
        assert await client.is_closed_by_server()
        assert steps.accepted == [1]
        await until(lambda: server.inflight_bytes == 0)


@on_both_loops
async def test_a_request_without_an_answer_closes_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with conversing() as (steps, _, _, client):
        await client.send(request(METADATA, 0, 1))
        await steps.until_accepted(1)
        steps.answers[1].set_exception(RuntimeError("a mistake of ours"))
        assert await client.is_closed_by_server()
        assert "a mistake of ours" in caplog.text


@on_both_loops
async def test_a_client_that_takes_no_responses_is_not_worked_for() -> None:
    async with conversing() as (steps, _, _, client):
        await client.send(b"".join(request(IN_TURN, 0, number) for number in range(3)))
        await steps.until_accepted(3)
        for number in range(3):
            steps.answer(number, padding=20_000_000)
        await until(lambda: steps.began == [0])
        await settle()
        assert steps.began == [0]
        assert [len(await client.frame()) for _ in range(3)] == [20_000_004] * 3


def connections_in_memory() -> list[Connection]:
    return [one for one in gc.get_objects() if isinstance(one, Connection)]


@on_both_loops
async def test_a_closed_connection_is_freed_without_the_collector_of_cycles() -> None:
    gc.collect()
    # A failed test of this process may be kept, with its connections, by its traceback.
    others = connections_in_memory()
    gc.disable()
    try:
        async with (
            conversing() as (steps, server, address, client),
            connected(address) as _,
        ):
            await client.send(request(PRODUCE, 0, 1) + request(IN_TURN, 0, 2))
            await client.send(request(PRODUCE, 0, 3, b"." * 1_000)[:500])
            await steps.until_accepted(2)
            steps.answer(1)
            steps.answer(2)
            assert [await client.correlation_id() for _ in range(2)] == [1, 2]
            assert len(connections_in_memory()) == len(others) + 2
            await client.close()
            await until(lambda: server.connection_count == 1)
            await until(lambda: len(connections_in_memory()) == len(others) + 1)
    finally:
        gc.enable()


@on_both_loops
async def test_stopping_answers_what_was_accepted_and_closes() -> None:
    async with conversing() as (steps, server, address, client), connected(address) as idle:
        await client.send(request(PRODUCE, 0, 1) + request(METADATA, 0, 2)[:7])
        await steps.until_accepted(1)
        stopping = asyncio.create_task(server.stop(5_000))
        assert await idle.is_closed_by_server()
        steps.answer(1, padding=3_000_000)
        assert len(await client.frame()) == 3_000_004
        assert await client.is_closed_by_server()
        await stopping
        assert server.connection_count == 0
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(address.host, address.port)


@on_both_loops
async def test_stopping_cuts_off_what_does_not_end_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with conversing() as (steps, server, _, client):
        await client.send(request(METADATA, 0, 1))
        await steps.until_accepted(1)
        await server.stop(10)
        assert await client.is_closed_by_server()
        assert server.connection_count == 0
        assert "Cutting 1 connections off" in caplog.text
