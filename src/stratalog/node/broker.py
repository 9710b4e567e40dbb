"""A broker: the parts of a node, in the order in which they start.

Storage comes first, because all other parts use it. The listening socket is bound before the broker
joins the cluster, so that its address is known, and clients are served when all parts behind the
socket run. The phases of stopping are in `node/phases.py`.
"""

import logging
from dataclasses import replace
from importlib.metadata import version
from platform import python_version

from stratalog.admin.admin import BrokerAdmin
from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.cluster.membership import Membership
from stratalog.control.plane import ControlPlane
from stratalog.ids import BrokerId
from stratalog.kafka.fetches.sessions import FetchSessions
from stratalog.kafka.registry import served
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.metrics import RequestMetrics
from stratalog.kafka.server.read_failures import ReadFailures
from stratalog.kafka.server.server import Address
from stratalog.metrics import Metrics
from stratalog.node.background import start_janitor, start_pipeline
from stratalog.node.ground import Ground
from stratalog.node.groups import Groups, start_groups
from stratalog.node.listener import bind_listener, serve_clients
from stratalog.node.membership import join_cluster, start_hints
from stratalog.node.news import News
from stratalog.node.parts import Parts
from stratalog.node.reading import start_reading
from stratalog.node.storage import open_storage
from stratalog.node.workers.share import share_of
from stratalog.node.workers.start import check_shareable, start_workers
from stratalog.node.writing import start_writing
from stratalog.objects.store import ObjectStore
from stratalog.opening.cluster import OpenCluster
from stratalog.opening.cluster_settings import ClusterSettings
from stratalog.recovery.deletion_notes import DeletionNotes
from stratalog.settings import Settings
from stratalog.topic.catalog import TopicCatalog

log = logging.getLogger(__name__)


class Broker:
    """One running broker. Make it with `start`, end it with `stop`."""

    def __init__(
        self,
        *,
        ground: Ground,
        parts: Parts,
        address: Address,
        membership: Membership,
    ) -> None:
        self.parts = parts
        self.fence = ground.fence
        self.address = address
        """The address that clients connect to."""
        self._ground = ground
        self._membership = membership

    @classmethod
    async def start(
        cls,
        settings: Settings,
        *,
        clock: Clock = SYSTEM_CLOCK,
        store: ObjectStore | None = None,
        control: ControlPlane | None = None,
        with_pipeline: bool = False,
    ) -> "Broker":
        """Start a broker. On return it serves clients.

        A store or a control plane that is given is used instead of opened, and closed with the
        broker. A start that fails or is cancelled stops the parts that had started.
        """
        ground = Ground(settings=settings, clock=clock)
        parts = Parts()
        check_shareable(settings)
        async with parts.undone_on_failure():
            cluster = await open_storage(parts, ground, control=control, objects=store)
            shared = ClusterSettings(cluster.control, settings)
            in_force = await shared.found(by=f"broker at {settings.broker.listen}")
            ground = replace(ground, settings=in_force.settings)
            broker = await _start_serving(parts, ground, cluster, shared)
            await start_janitor(parts, ground, cluster, shared)
            if with_pipeline:
                await start_pipeline(parts, ground)
            await _log_start(broker, cluster)
        return broker

    @property
    def settings(self) -> Settings:
        return self._ground.settings

    @property
    def metrics(self) -> Metrics:
        return self._ground.metrics

    @property
    def broker_id(self) -> BrokerId:
        return self._membership.broker_id

    async def stop(self) -> None:
        """Commit and answer the requests that were accepted, then end."""
        log.info("Broker %d stops.", self.broker_id)
        await self.parts.stop()
        log.info("Broker %d has stopped.", self.broker_id)


async def _log_start(broker: Broker, cluster: OpenCluster) -> None:
    identity = await cluster.control.identity.cluster()
    log.info(
        "Stratalog %s on Python %s: broker %d serves %s:%d, cluster %s, control plane %s,"
        " objects %s, segments %s.",
        version("stratalog"),
        python_version(),
        broker.broker_id,
        *broker.address,
        identity.cluster_id,
        cluster.control.url,
        cluster.objects.url,
        cluster.segments.own.url,
    )


async def _start_serving(
    parts: Parts, ground: Ground, cluster: OpenCluster, shared: ClusterSettings
) -> Broker:
    control = cluster.control
    catalog = TopicCatalog(control=control, clock=ground.clock)
    worker = replace(ground, settings=share_of(ground.settings))
    reading = await start_reading(parts, worker, cluster)
    news = News(reading.watermarks)
    listener = await bind_listener(parts, worker, reading.reader)
    membership = await join_cluster(parts, ground, control, listener.advertised, listener.bound)
    news.reach_brokers(
        await start_hints(parts, ground, control, membership, listener.bound, on_hint=news.hinted)
    )
    appender = await start_writing(
        parts,
        worker,
        cluster,
        catalog=catalog,
        fresh_blocks=reading.fresh_blocks,
        broker_id=lambda: membership.broker_id,
        on_commit=news.committed,
    )
    groups = await start_groups(parts, ground, control, membership, catalog)
    components = Components(
        settings=ground.settings,
        metrics=RequestMetrics(ground.metrics, served()),
        failures=ReadFailures(ground.clock),
        fetch_sessions=FetchSessions(worker.settings, clock=ground.clock, metrics=ground.metrics),
        admin=_admin(ground, cluster, catalog, membership, groups, shared),
        membership=membership,
        control=control,
        catalog=catalog,
        appender=appender,
        reader=reading.reader,
        offsets=reading.offsets,
        groups=groups.coordinator,
        classic_groups=groups.classic,
        consumer_groups=groups.consumer,
    )
    acceptor = await serve_clients(worker, listener, components)
    await start_workers(
        parts,
        worker,
        server=listener.server,
        dispatcher=acceptor,
        membership=membership,
        news=news,
    )
    return Broker(ground=ground, parts=parts, address=listener.advertised, membership=membership)


def _admin(
    ground: Ground,
    cluster: OpenCluster,
    catalog: TopicCatalog,
    membership: Membership,
    groups: Groups,
    shared: ClusterSettings,
) -> BrokerAdmin:
    return BrokerAdmin(
        control=cluster.control,
        catalog=catalog,
        settings=ground.settings,
        membership=membership,
        groups=groups.coordinator,
        consumer_groups=groups.consumer,
        shared_settings=shared,
        notes=DeletionNotes(cluster.objects, clock=ground.clock, entropy=ground.entropy),
    )
