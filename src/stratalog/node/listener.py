"""The Kafka listener of a node. It is bound before the broker joins the cluster, because the
cluster's list must name its port, and serves clients when all parts behind it run."""

import socket
from dataclasses import dataclass

from stratalog.kafka.registry import dispatcher
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.dispatch import Dispatcher
from stratalog.kafka.server.server import Address, Server, parse_address
from stratalog.node.ground import Ground
from stratalog.node.parts import Part, Parts
from stratalog.node.phases import Phase
from stratalog.settings import BrokerSettings
from stratalog.topic.read import TopicReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    server: Server
    bound: Address
    """The address that the broker listens on."""
    advertised: Address
    """The address that clients connect to."""


async def bind_listener(parts: Parts, ground: Ground, reader: TopicReader) -> Listener:
    """Bind the listening socket. Clients that connect wait until `serve_clients` is called."""
    server = _server(ground)
    bound = server.bind()
    await _start(parts, ground, server, reader)
    advertised = _advertised(ground.settings.broker, bound)
    return Listener(server=server, bound=bound, advertised=advertised)


async def take_listener(
    parts: Parts, ground: Ground, reader: TopicReader, listening: socket.socket
) -> Server:
    """Share the listening socket that another process of this broker has bound."""
    server = _server(ground)
    server.take(listening)
    await _start(parts, ground, server, reader)
    return server


def _server(ground: Ground) -> Server:
    return Server(
        settings=ground.settings.broker,
        max_inflight_bytes=ground.settings.block.max_inflight_bytes,
        clock=ground.clock,
        metrics=ground.metrics,
    )


async def _start(parts: Parts, ground: Ground, server: Server, reader: TopicReader) -> None:
    async def drain() -> None:
        # Fetches that wait for new records are answered first. Otherwise each of them would keep
        # its connection open for as long as it may wait.
        reader.stop()
        await server.stop(ground.settings.broker.shutdown_timeout_ms)

    await parts.start(Part(name="the Kafka listener", stops_in=Phase.DRAIN, stop=drain))


async def serve_clients(ground: Ground, listener: Listener, components: Components) -> Dispatcher:
    acceptor = dispatcher(
        components,
        clock=ground.clock,
        metrics=components.metrics,
        workplace=listener.server.workplace,
    )
    await listener.server.start(acceptor)
    return acceptor


def _advertised(settings: BrokerSettings, bound: Address) -> Address:
    """Return an address at which clients can reach this broker. The addresses that stand for all
    interfaces are none."""
    if settings.advertise is None:
        anywhere = bound.host in ("0.0.0.0", "::")
        return Address(socket.gethostname(), bound.port) if anywhere else bound
    host, port = parse_address(settings.advertise)
    return Address(host, port or bound.port)
