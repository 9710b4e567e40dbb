"""Brokers to test against: one by itself, or two that share PostgreSQL and an S3 server."""

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.support.proxy import Proxy, running_proxy
from tests.support.servers import PostgresServer, S3Server
from tests.support.wire import connected

from stratalog.settings import (
    BlockSettings,
    BrokerSettings,
    FetchSettings,
    JanitorSettings,
    Settings,
    StorageSettings,
)
from stratalog.testing import Broker

_MEET_SECONDS = 20.0

BASE = Settings(
    # The lease decides how soon brokers notice each other: three times within it.
    broker=BrokerSettings(listen="127.0.0.1:0", lease_ms=1500, default_partitions=2),
    block=BlockSettings(window_ms=5, retry_ms=10_000),
    janitor=JanitorSettings(interval_ms=0, backup_window_ms=0),
)


@dataclass(frozen=True, slots=True)
class Cluster:
    addresses: Sequence[str]
    """Where clients reach each broker: its proxy, if it has one."""
    proxies: Sequence[Proxy] = ()

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses)

    def other_than(self, address: str) -> str:
        return next(each for each in self.addresses if each != address)

    def leader_of(self, topic: str, partition: int = 0) -> str:
        with connected(self.addresses[0]) as wire:
            return wire.leaders(topic)[partition]


def fresh_topic(name: str) -> str:
    """A topic that no other test has touched."""
    return f"{name}-{uuid4().hex[:8]}"


def create(cluster: Cluster, topic: str, *, partitions: int = 1, **configs: str) -> str:
    """Create a topic; configs are named with underscores for dots."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    dotted = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, config=dotted)])[topic].result(30)
    return topic


def folder_storage(folder: Path) -> StorageSettings:
    return StorageSettings(
        objects=f"file:{folder / 'objects'}", control=f"sqlite:{folder / 'control.db'}"
    )


def shared_storage(dsn: str, s3: S3Server) -> StorageSettings:
    return StorageSettings(objects=s3.fresh_url(), control=dsn, object_options=s3.options)


@contextmanager
def one_broker(folder: Path, *, base: Settings = BASE, proxied: bool = False) -> Iterator[Cluster]:
    with running_cluster([replace(base, storage=folder_storage(folder))], proxied=proxied) as ready:
        yield ready


@contextmanager
def two_brokers(
    postgres: PostgresServer, s3: S3Server, *, base: Settings = BASE, proxied: bool = False
) -> Iterator[Cluster]:
    dsn = postgres.create_database()
    settings = replace(base, storage=shared_storage(dsn, s3))
    try:
        with running_cluster([settings, settings], proxied=proxied) as ready:
            yield ready
    finally:
        postgres.drop_database(dsn)


@contextmanager
def running_cluster(settings: Sequence[Settings], *, proxied: bool = False) -> Iterator[Cluster]:
    with ExitStack() as stack:
        proxies = [stack.enter_context(running_proxy()) for _ in settings] if proxied else []
        brokers = []
        for place, each in enumerate(settings):
            behind = _behind(each, proxies[place]) if proxied else each
            brokers.append(stack.enter_context(Broker(behind)))
        addresses = [broker.bootstrap for broker in brokers]
        wait_until_met(addresses)
        yield Cluster(addresses, proxies)


def _behind(settings: Settings, proxy: Proxy) -> Settings:
    """The broker tells clients to come through the proxy, and listens where that leads to."""
    proxy.target = ("127.0.0.1", _free_port())
    listen = f"127.0.0.1:{proxy.target[1]}"
    broker = replace(settings.broker, listen=listen, advertise=proxy.address)
    return replace(settings, broker=broker)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait_until_met(addresses: Sequence[str]) -> None:
    """Until every broker knows of every other one."""
    deadline = time.monotonic() + _MEET_SECONDS
    for address in addresses:
        with connected(address) as wire:
            while wire.broker_count() < len(addresses):
                assert time.monotonic() < deadline, f"{address} does not see the other broker"
                time.sleep(0.05)


def with_poll_ms(settings: Settings, poll_ms: int) -> Settings:
    return replace(settings, fetch=FetchSettings(poll_ms=poll_ms))
