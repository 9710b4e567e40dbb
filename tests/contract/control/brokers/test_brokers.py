"""Brokers: ids, leases, and addresses."""

import asyncio
import itertools
from uuid import uuid4

import pytest
from tests.contract.control.building import change

from stratalog.control.brokers.errors import (
    AddressTakenError,
    BrokerAliveError,
    BrokerIdTakenError,
    BrokerNotRegisteredError,
)
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
    socket_name: str | None = None,
) -> BrokerId:
    info = await plane.brokers.register(
        None if broker_id is None else BrokerId(broker_id),
        host="here",
        port=next(_ports) if port is None else port,
        rack=None,
        incarnation=uuid4(),
        lease_ms=lease_ms,
        socket_name=socket_name,
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
        None, host="here", port=1, rack="a", incarnation=mine, lease_ms=60_000
    )
    assert await plane.brokers.renew(info.broker_id, mine, lease_ms=60_000)
    assert not await plane.brokers.renew(info.broker_id, stranger, lease_ms=60_000)
    [broker] = await plane.brokers.all()
    assert broker == info
    await plane.brokers.remove(info.broker_id, stranger)
    assert await plane.brokers.all() == [info]
    await plane.brokers.remove(info.broker_id, mine)
    assert await plane.brokers.all() == []


async def test_a_lease_that_has_ended_is_not_revived(plane: ControlPlane) -> None:
    mine = uuid4()
    info = await plane.brokers.register(
        None, host="here", port=1, rack=None, incarnation=mine, lease_ms=0
    )
    assert not await plane.brokers.renew(info.broker_id, mine, lease_ms=60_000)
    assert [broker.alive for broker in await plane.brokers.all()] == [False]
    again = await plane.brokers.register(
        None, host="here", port=1, rack=None, incarnation=mine, lease_ms=60_000
    )
    assert again.broker_id == info.broker_id
    assert await plane.brokers.renew(info.broker_id, mine, lease_ms=60_000)


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


async def test_a_broker_that_binds_its_socket_again_takes_the_place_of_the_dead_one(
    plane: ControlPlane,
) -> None:
    assert await register(plane, port=1, socket_name="here:1") == 0
    assert await register(plane, port=2, socket_name="here:2") == 1
    assert await register(plane, port=1, socket_name="here:1") == 0
    assert [broker.port for broker in await plane.brokers.all()] == [1, 2]
    assert await register(plane, 0, port=1, socket_name="here:1") == 0


@pytest.mark.parametrize("socket_name", [None, "there:1"])
async def test_the_address_of_a_live_broker_is_taken(
    plane: ControlPlane, database: Database, socket_name: str | None
) -> None:
    assert await register(plane, port=1, socket_name="here:1") == 0
    [holder] = await plane.brokers.all()
    with pytest.raises(AddressTakenError, match=r"broker 0 .* here:1") as caught:
        await register(plane, port=1, socket_name=socket_name)
    assert str(holder.incarnation) in str(caught.value)
    assert await plane.brokers.all() == [holder]
    await change(database, "UPDATE brokers SET expires_ms = 0")
    assert await register(plane, port=1, socket_name=socket_name) == 0


async def test_a_renewal_shows_that_the_broker_at_an_address_is_alive(
    plane: ControlPlane, database: Database
) -> None:
    await register(plane, port=1)
    seen = []
    for _ in range(2):
        with pytest.raises(AddressTakenError) as caught:
            await register(plane, port=1)
        seen.append(caught.value.renewals)
    await change(database, "UPDATE brokers SET expires_ms = expires_ms + 1")
    with pytest.raises(AddressTakenError) as caught:
        await register(plane, port=1)
    assert seen == [seen[0]] * 2
    assert caught.value.renewals != seen[0]


async def test_a_dead_broker_is_unregistered_and_a_live_one_is_not(
    plane: ControlPlane, database: Database
) -> None:
    assert [await register(plane) for _ in range(2)] == [0, 1]
    await change(database, "UPDATE brokers SET expires_ms = 0 WHERE broker_id = 1")
    with pytest.raises(BrokerAliveError, match="stop it first"):
        await plane.brokers.unregister(BrokerId(0))
    await plane.brokers.unregister(BrokerId(1))
    assert [broker.broker_id for broker in await plane.brokers.all()] == [0]
    with pytest.raises(BrokerNotRegisteredError):
        await plane.brokers.unregister(BrokerId(1))
