"""Starts the workers of a broker beside its first one, and takes their relayed requests."""

import shutil
import socket
import tempfile
from pathlib import Path

from stratalog.cluster.membership import Membership
from stratalog.kafka.server.dispatch import Dispatcher
from stratalog.kafka.server.relay import RelayedAcceptor
from stratalog.kafka.server.server import Server
from stratalog.node.errors import UnsharedStorageError
from stratalog.node.ground import Ground
from stratalog.node.news import News
from stratalog.node.parts import Part, Parts
from stratalog.node.phases import Phase
from stratalog.node.workers.link import Orders
from stratalog.node.workers.team import Workers
from stratalog.settings import Settings


def check_shareable(settings: Settings) -> None:
    if settings.broker.workers > 1 and settings.storage.objects.startswith("memory:"):
        raise UnsharedStorageError(
            "several workers cannot share objects in memory, which belong to one process:"
            " name a folder or a bucket, or leave broker.workers at 1"
        )


async def start_workers(
    parts: Parts,
    ground: Ground,
    *,
    server: Server,
    dispatcher: Dispatcher,
    membership: Membership,
    news: News,
) -> None:
    """Start the workers, if more than one is set. `ground` has the settings of one worker."""
    if ground.settings.broker.workers == 1:
        return
    relays = await _listen_for_relays(parts, server, dispatcher)

    def orders(number: int) -> Orders:
        return Orders(
            number=number,
            settings=ground.settings,
            cluster_id=membership.cluster_id,
            broker=membership.own,
            relays=relays,
        )

    workers = Workers(
        range(2, ground.settings.broker.workers + 1),
        orders=orders,
        listening=server.listening,
        on_committed=news.committed_by_worker,
        fence=ground.fence,
        clock=ground.clock,
        stop_s=ground.settings.broker.shutdown_timeout_ms / 1000,
    )
    # They stop before this worker's listener, which takes their relayed requests until then.
    await parts.start(
        Part(name="the workers", stops_in=Phase.DRAIN, start=workers.start, stop=workers.stop)
    )
    news.reach_workers(workers)


async def _listen_for_relays(parts: Parts, server: Server, dispatcher: Dispatcher) -> Path:
    """Listen in a folder that only this user may enter: a relay introduces its client, and is
    believed."""
    folder = Path(tempfile.mkdtemp(prefix="stratalog-"))
    await parts.start(
        Part(
            name="the folder of relays",
            stops_in=Phase.RELEASE,
            stop=lambda: shutil.rmtree(folder, ignore_errors=True),
        )
    )
    path = folder / "relays"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()
    server.start_relays(listening, RelayedAcceptor(dispatcher))
    return path
