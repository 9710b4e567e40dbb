"""Connections are counted, and idle ones end, so that no client takes all of them."""

import asyncio
import logging
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.unit.kafka.handlers.desk import Desk
from tests.unit.kafka.server.clients import RawClient, connected, request
from tests.unit.kafka.server.loops import on_both_loops

from stratalog import descriptors
from stratalog.clock import Clock, SystemClock
from stratalog.kafka.server.admission import Admission
from stratalog.kafka.server.server import Address, Server
from stratalog.metrics import Metrics
from stratalog.settings import BrokerSettings

API_VERSIONS = 18


@asynccontextmanager
async def serving(
    settings: BrokerSettings, clock: Clock | None = None
) -> AsyncIterator[tuple[Server, Address, Metrics]]:
    metrics = Metrics()
    server = Server(
        settings=settings,
        max_inflight_bytes=1_000_000,
        clock=clock or SystemClock(),
        metrics=metrics,
    )
    address = server.bind()
    await server.start(Desk().dispatcher)
    try:
        yield server, address, metrics
    finally:
        await server.stop(1_000)


def refused(metrics: Metrics, limit: str) -> float | None:
    return metrics.registry.get_sample_value(
        "stratalog_connections_refused_total", {"limit": limit}
    )


async def answers(client: RawClient) -> bool:
    await client.send(request(API_VERSIONS, 0, 5))
    return await client.correlation_id() == 5


@on_both_loops
async def test_a_client_beyond_the_most_connections_is_closed_and_others_go_on() -> None:
    settings = BrokerSettings(listen="127.0.0.1:0", max_connections=3)
    async with serving(settings) as (server, address, metrics), AsyncExitStack() as open_clients:
        clients = [await open_clients.enter_async_context(connected(address)) for _ in range(3)]
        assert all([await answers(client) for client in clients])
        async with connected(address) as fourth:
            assert await fourth.is_closed_by_server()
        assert server.connection_count == 3
        assert refused(metrics, "total") == 1
        assert await answers(clients[0])
        await clients[0].close()
        while server.connection_count == 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
        async with connected(address) as next_one:
            assert await answers(next_one)


@on_both_loops
async def test_a_burst_of_clients_never_has_more_than_the_most_connections() -> None:
    settings = BrokerSettings(listen="127.0.0.1:0", max_connections=5)
    async with serving(settings) as (server, address, metrics), AsyncExitStack() as open_clients:
        clients = await asyncio.gather(
            *(open_clients.enter_async_context(connected(address)) for _ in range(60))
        )
        while (refused(metrics, "total") or 0) < 55:
            await asyncio.sleep(0)
            assert server.connection_count <= 5
        kept = clients[:5]
        assert all([await answers(client) for client in kept])


async def test_one_address_has_its_own_limit_and_another_address_is_served() -> None:
    settings = BrokerSettings(listen="127.0.0.1:0", max_connections_per_address=2)
    async with (
        serving(settings) as (_, address, metrics),
        connected(address) as first,
        connected(address) as second,
    ):
        assert await answers(first)
        assert await answers(second)
        async with connected(address) as third:
            assert await third.is_closed_by_server()
        assert refused(metrics, "address") == 1
        elsewhere = await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0))
        other = RawClient(*elsewhere)
        assert await answers(other)
        await other.close()


def admission(*, most: int = 10, per_address: int = 10, reserve_keeps: int = 10) -> Admission:
    return Admission(
        most=most,
        most_per_address=per_address,
        reserve_keeps=reserve_keeps,
        clock=SystemClock(),
        metrics=Metrics(),
    )


def test_an_ipv6_network_counts_as_one_address() -> None:
    door = admission(per_address=1)
    assert door.admit("2001:db8:0:1::1")
    assert not door.admit("2001:db8:0:1:ffff::2")
    assert door.admit("2001:db8:0:2::1")
    door.left("2001:db8:0:1::1")
    assert door.admit("2001:db8:0:1:ffff::2")


def test_descriptors_stay_in_reserve_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = admission(reserve_keeps=2)
    assert door.admit("10.0.0.1")
    assert door.admit("10.0.0.2")
    with caplog.at_level(logging.WARNING):
        assert not door.admit("10.0.0.3")
        assert not door.admit("10.0.0.4")
    (record,) = caplog.records
    assert "leave too few descriptors for files and the database" in record.getMessage()


@pytest.mark.parametrize(("limit", "clients"), [(100, 50), (1024, 512), (10_512, 10_000)])
def test_clients_leave_a_reserve_of_descriptors(
    monkeypatch: pytest.MonkeyPatch, limit: int, clients: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert descriptors.most_clients() == clients


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
    for _ in range(50):
        await asyncio.sleep(0)


async def test_an_idle_connection_is_closed_and_a_busy_one_stays() -> None:
    clock = JumpingClock()
    settings = BrokerSettings(listen="127.0.0.1:0", connections_max_idle_ms=600_000)
    async with serving(settings, clock) as (_, address, metrics):
        async with connected(address) as idle, connected(address) as busy:
            assert await answers(idle)
            assert await answers(busy)
            clock.jump(500)
            await settle()
            assert await answers(busy)
            clock.jump(150)
            assert await idle.is_closed_by_server()
            assert await answers(busy)
        closed = metrics.registry.get_sample_value("stratalog_connections_idle_total")
        assert closed == 1
