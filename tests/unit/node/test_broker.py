"""A broker as a whole: which parts it has, and how it gets them up and down."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.node.broker import Broker
from stratalog.settings import (
    BrokerSettings,
    JanitorSettings,
    Settings,
    StorageSettings,
    TieringSettings,
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        broker=BrokerSettings(listen="127.0.0.1:0"),
        storage=StorageSettings(objects="memory:", control=f"sqlite:{tmp_path / 'control.db'}"),
        janitor=JanitorSettings(interval_ms=0),
        tiering=TieringSettings(enabled=False),
    )


@pytest.fixture
async def onlooker(settings: Settings) -> AsyncIterator[ControlPlane]:
    control = await open_control_plane(settings.storage.control)
    yield control
    await control.close()


def stopping_order(broker: Broker) -> list[str]:
    return [part.name for part in broker.parts.in_stopping_order()]


async def test_a_broker_withdraws_then_answers_its_clients_then_closes_its_writers(
    settings: Settings,
) -> None:
    broker = await Broker.start(settings)
    assert stopping_order(broker) == [
        "the janitor",
        "the search for abandoned groups",
        "the group coordinator",
        "the membership",
        "the Kafka listener",
        "the watch on the count of commits",
        "the writer of blocks",
        "the witness of commits",
        "the announcement",
        "the hints",
        "the reader of segments",
        "the watch on watermarks",
        "the storage",
    ]
    await broker.stop()
    assert stopping_order(broker) == []


async def test_the_pipeline_is_a_part_of_a_broker_that_asks_for_it(settings: Settings) -> None:
    broker = await Broker.start(settings, with_pipeline=True)
    assert stopping_order(broker)[:2] == ["the pipeline", "the janitor"]
    await broker.stop()


async def test_a_control_plane_that_was_given_is_closed_last(settings: Settings) -> None:
    control = await open_control_plane(settings.storage.control)
    broker = await Broker.start(settings, control=control)
    assert stopping_order(broker)[-2:] == ["the storage", "the control plane"]
    await broker.stop()


async def test_a_broker_is_listed_while_it_runs(settings: Settings, onlooker: ControlPlane) -> None:
    broker = await Broker.start(settings)
    (listed,) = await onlooker.brokers.all()
    assert (listed.host, listed.port) == broker.address
    await broker.stop()
    assert await onlooker.brokers.all() == []


async def test_a_broker_whose_port_is_taken_starts_nothing(
    settings: Settings, onlooker: ControlPlane
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match="in use"):
            await Broker.start(replace(settings, broker=BrokerSettings(listen=listen)))
    assert await onlooker.brokers.all() == []
    assert {task.get_name() for task in asyncio.all_tasks()}.isdisjoint({"membership", "janitor"})


async def test_a_broker_that_cannot_serve_leaves_the_list_again(
    settings: Settings, onlooker: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[tuple[str, int]] = []

    async def refuse(*_: object) -> None:
        addresses.extend((each.host, each.port) for each in await onlooker.brokers.all())
        raise OSError("no more files")

    monkeypatch.setattr("stratalog.node.broker.serve_clients", refuse)
    with pytest.raises(OSError, match="no more files"):
        await Broker.start(settings)
    assert await onlooker.brokers.all() == []
    (address,) = addresses
    with socket.create_server(address):
        """The socket was closed, so that its port is free."""
