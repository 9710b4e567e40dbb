"""The Kafka listener of a node. It is bound before the broker joins the cluster, because the
cluster's list must name its port, and serves clients when all parts behind it run."""

import socket
from dataclasses import dataclass

from stratalog.kafka.registry import dispatcher
from stratalog.kafka.server.components import Components
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
    settings = ground.settings.broker
    server = Server(
        settings=settings,
        max_inflight_bytes=ground.settings.block.max_inflight_bytes,
        clock=ground.clock,
        metrics=ground.metrics,
    )

    async def drain() -> None:
        # Fetches that wait for new records are answered first. Otherwise each of them would keep
        # its connection open for as long as it may wait.
        reader.stop()
        await server.stop(settings.shutdown_timeout_ms)

    bound = server.bind()
    await parts.start(Part(name="the Kafka listener", stops_in=Phase.DRAIN, stop=drain))
    return Listener(server=server, bound=bound, advertised=_advertised(settings, bound))


async def serve_clients(ground: Ground, listener: Listener, components: Components) -> None:
    acceptor = dispatcher(
        components,
        clock=ground.clock,
        metrics=components.metrics,
        workplace=listener.server.workplace,
    )
    await listener.server.start(acceptor)


def _advertised(settings: BrokerSettings, bound: Address) -> Address:
    """Return an address at which clients can reach this broker. The addresses that stand for all
    interfaces are none."""
    if settings.advertise is None:
        anywhere = bound.host in ("0.0.0.0", "::")
        return Address(socket.gethostname(), bound.port) if anywhere else bound
    host, port = parse_address(settings.advertise)
    return Address(host, port or bound.port)
