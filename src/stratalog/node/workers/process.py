"""The program of a worker: a process that serves clients of a broker beside its first worker.

It has the parts of a node that move records, with a control plane, a store and a block writer of
its own. It listens on the socket that the first worker has bound, and relays all requests that do
not move records. It ends when the first worker does: it answers its clients and commits their
records first.
"""

import asyncio
import logging
import signal
import socket
import sys

import uvloop

from stratalog import descriptors
from stratalog.clock import Clock
from stratalog.cluster.hints import Advanced
from stratalog.cluster.live_brokers import LiveBrokers, LiveBrokersOfWorker
from stratalog.errors import StratalogError
from stratalog.kafka.fetches.sessions import FetchSessions
from stratalog.kafka.registry import data_dispatcher, data_keys, served
from stratalog.kafka.server.components import DataComponents
from stratalog.kafka.server.metrics import RequestMetrics
from stratalog.kafka.server.read_failures import ReadFailures
from stratalog.kafka.server.relay import RelayingAcceptor
from stratalog.logs import configure_logs
from stratalog.memory import collect_garbage_by_time, collect_garbage_rarely, keep_freed_memory
from stratalog.node.ground import Ground
from stratalog.node.listener import take_listener
from stratalog.node.parts import Part, Parts
from stratalog.node.phases import Phase
from stratalog.node.reading import start_reading
from stratalog.node.storage import open_storage
from stratalog.node.workers.link import Kind, Link, Orders, advanced_of, orders_of
from stratalog.node.writing import start_writing
from stratalog.threads import share_the_lock
from stratalog.topic.catalog import TopicCatalog
from stratalog.topic.watermarks import Watermarks

log = logging.getLogger(__name__)

_REFRESHES_PER_LEASE = 3


def main() -> None:
    link_fd, listening_fd = map(int, sys.argv[1:])
    keep_freed_memory()
    collect_garbage_rarely()
    share_the_lock()
    try:
        uvloop.run(_serve(socket.socket(fileno=link_fd), socket.socket(fileno=listening_fd)))
    except StratalogError as error:
        log.error("%s", error)
        sys.exit(1)


async def _serve(link_end: socket.socket, listening: socket.socket) -> None:
    link = await Link.over(link_end)
    message = await link.receive()
    if message is None:
        return
    orders = orders_of(message[1])
    configure_logs(orders.settings.log, process=f"worker {orders.number}")
    descriptors.allow_clients(orders.settings.broker.max_connections)
    ground = Ground(settings=orders.settings)
    parts = Parts()
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    starting = asyncio.create_task(_start(parts, ground, orders, listening, link))
    ends: list[asyncio.Task[object]] = [
        asyncio.create_task(_listen(link, starting)),
        asyncio.create_task(stopping.wait()),
        asyncio.create_task(ground.fence.closed()),
    ]
    try:
        await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            link.send(Kind.SERVES)
            ends.append(asyncio.create_task(collect_garbage_by_time(ground.clock.sleep)))
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if ground.fence.error is not None:
            link.send(Kind.FENCED, str(ground.fence.error).encode())
    finally:
        for task in (starting, *ends):
            task.cancel()
        await asyncio.gather(starting, *ends, return_exceptions=True)
        await parts.stop()
        link.close()


async def _listen(link: Link, starting: "asyncio.Task[Watermarks]") -> None:
    """Work off the first worker's messages until it ends."""
    while (message := await link.receive()) is not None:
        if not starting.done():
            continue
        kind, body = message
        if kind is Kind.COMMITTED:
            starting.result().advanced(advanced_of(body))
        elif kind is Kind.HINTED:
            starting.result().hinted(advanced_of(body))


async def _start(
    parts: Parts, ground: Ground, orders: Orders, listening: socket.socket, link: Link
) -> Watermarks:
    cluster = await open_storage(parts, ground)
    catalog = TopicCatalog(control=cluster.control, clock=ground.clock)
    reading = await start_reading(parts, ground, cluster)
    server = await take_listener(parts, ground, reading.reader, listening)
    membership = LiveBrokersOfWorker(
        cluster.control, cluster_id=orders.cluster_id, own=orders.broker
    )
    await _keep_fresh(parts, ground, membership)

    def committed(advanced: Advanced) -> None:
        reading.watermarks.advanced(advanced)
        link.tell(Kind.COMMITTED, advanced)

    appender = await start_writing(
        parts,
        ground,
        cluster,
        catalog=catalog,
        fresh_blocks=reading.fresh_blocks,
        broker_id=lambda: membership.broker_id,
        on_commit=committed,
    )
    metrics = RequestMetrics(ground.metrics, served())
    components = DataComponents(
        settings=ground.settings,
        metrics=metrics,
        failures=ReadFailures(ground.clock),
        fetch_sessions=FetchSessions(ground.settings, clock=ground.clock, metrics=ground.metrics),
        membership=membership,
        control=cluster.control,
        catalog=catalog,
        appender=appender,
        reader=reading.reader,
        offsets=reading.offsets,
    )
    own = data_dispatcher(
        components, clock=ground.clock, metrics=metrics, workplace=server.workplace
    )
    await server.start(
        RelayingAcceptor(
            own, own_keys=data_keys(), socket=orders.relays, workplace=server.workplace
        )
    )
    return reading.watermarks


async def _keep_fresh(parts: Parts, ground: Ground, membership: LiveBrokers) -> None:
    await membership.refresh()
    pause_s = ground.settings.broker.lease_ms / _REFRESHES_PER_LEASE / 1000
    refresher = asyncio.create_task(
        _refresh_for_ever(membership, ground.clock, pause_s), name="live brokers"
    )
    await parts.start(
        Part(name="the list of brokers", stops_in=Phase.WITHDRAW, stop=lambda: _end(refresher))
    )


async def _refresh_for_ever(membership: LiveBrokers, clock: Clock, pause_s: float) -> None:
    while True:
        await clock.sleep(pause_s)
        try:
            await membership.refresh()
        except StratalogError as error:
            log.warning("The list of brokers was not refreshed, trying again: %s", error)


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


if __name__ == "__main__":
    main()
