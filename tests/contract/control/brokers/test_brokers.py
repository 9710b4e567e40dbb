"""Brokers: ids, leases, and addresses."""

import asyncio
import itertools
from uuid import uuid4

import pytest
from tests.contract.control.building import change

from stratalog.control.brokers.errors import BrokerIdTakenError
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.ids import BrokerId

_ports = itertools.count(9092)


async def register(
    plane: ControlPlane,
    broker_id: int | None = None,
    *,
    port: int | None = None,
    lease_ms: int = 60_000,
) -> BrokerId:
    info = await plane.brokers.register(
        None if broker_id is None else BrokerId(broker_id),
        host="here",
        port=next(_ports) if port is None else port,
        rack=None,
        incarnation=uuid4(),
        lease_ms=lease_ms,
    )
    return info.broker_id


async def test_brokers_get_the_lowest_free_id(plane: ControlPlane, other: ControlPlane) -> None:
    taken = await asyncio.gather(*(register(c) for c in (plane, other, plane, other)))
    assert sorted(taken) == [0, 1, 2, 3]
    assert await register(plane, 7) == 7
    assert await register(plane) == 4


async def test_an_id_is_free_again_when_its_lease_ends(
    plane: ControlPlane, database: Database
) -> None:
    assert [await register(plane) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(BrokerIdTakenError):
        await register(plane, 1)
    await change(database, "UPDATE brokers SET expires_ms = 0 WHERE broker_id = 1")
    assert [broker.alive for broker in await plane.brokers.all()] == [True, False, True]
    assert await register(plane) == 1


async def test_a_broker_renews_only_what_is_its_own(plane: ControlPlane) -> None:
    mine, stranger = uuid4(), uuid4()
    info = await plane.brokers.register(
        None, host="here", port=1, rack="a", incarnation=mine, lease_ms=0
    )
    assert [broker.alive for broker in await plane.brokers.all()] == [False]
    assert await plane.brokers.renew(info.broker_id, mine, lease_ms=60_000)
    assert not await plane.brokers.renew(info.broker_id, stranger, lease_ms=60_000)
    [broker] = await plane.brokers.all()
    assert broker == info
    await plane.brokers.remove(info.broker_id, stranger)
    assert await plane.brokers.all() == [info]
    await plane.brokers.remove(info.broker_id, mine)
    assert await plane.brokers.all() == []


async def test_registering_again_keeps_the_id(plane: ControlPlane) -> None:
    await register(plane, port=9092)
    mine = uuid4()
    ids = []
    for port in (1, 2):
        info = await plane.brokers.register(
            None, host="here", port=port, rack=None, incarnation=mine, lease_ms=60_000
        )
        ids.append(info.broker_id)
    assert ids == [1, 1]
    assert [broker.port for broker in await plane.brokers.all()] == [9092, 2]


async def test_a_broker_at_an_address_ends_the_one_that_was_there_before(
    plane: ControlPlane,
) -> None:
    assert await register(plane, port=1) == 0
    assert await register(plane, port=2) == 1
    assert await register(plane, port=1) == 0
    assert [broker.port for broker in await plane.brokers.all()] == [1, 2]
    assert await register(plane, 0, port=1) == 0
