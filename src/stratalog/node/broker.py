"""A broker, put together: what it is made of, the order it starts in and the order it stops in.

Start: control plane, stores, the claims on them, the readers of both tiers, the listening socket,
membership, the block writer, clients, janitor. Stop is the reverse, except that the broker leaves
the cluster's list first, so that clients turn elsewhere: it takes no more requests, commits and
answers those that it has, and closes.

A control plane or a store that is away, or asks to slow down, is waited for. To end instead would
only have the broker started again, and make the trouble of a store that is overloaded worse.
"""

import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

from stratalog.admin.admin import BrokerAdmin
from stratalog.block.batch_index import BatchIndex
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.reader import BlockReader
from stratalog.block.writer import Advanced, BlockWriter
from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.cluster.hints import Hints
from stratalog.cluster.membership import Membership
from stratalog.control.log.model import WriteTier
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.errors import OutcomeUnknownError, RetriableError
from stratalog.groups.classic_groups import ClassicGroups
from stratalog.groups.consumer.groups import ConsumerGroups
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.ids import BrokerId, new_uuid, system_entropy
from stratalog.janitor.service import Janitor
from stratalog.kafka.registry import dispatcher
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.metrics import RequestMetrics
from stratalog.kafka.server.read_failures import ReadFailures
from stratalog.kafka.server.server import Address, Server, parse_address
from stratalog.metrics import Metrics
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import claim_segments, claim_store
from stratalog.retry import Backoff, retry
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores, open_other_store
from stratalog.settings import Settings
from stratalog.topic.aborted import AbortedTransactions
from stratalog.topic.append import TopicAppender
from stratalog.topic.catalog import TopicCatalog
from stratalog.topic.offsets import TopicOffsets
from stratalog.topic.open_tiers import open_tiers
from stratalog.topic.read import TopicReader
from stratalog.topic.retention import retention_by
from stratalog.topic.times import RecordTimes
from stratalog.topic.watermarks import Watermarks

log = logging.getLogger(__name__)

T = TypeVar("T")

_BACKOFF = Backoff(first_s=0.5, longest_s=5.0)


class Broker:
    """One running broker. Make it with `start`, end it with `stop`."""

    def __init__(
        self,
        *,
        settings: Settings,
        metrics: Metrics,
        address: Address,
        membership: Membership,
        stopping: AsyncExitStack,
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self.address = address
        """Where clients are told to connect."""
        self._membership = membership
        self._stopping = stopping

    @classmethod
    async def start(
        cls,
        settings: Settings,
        *,
        clock: Clock | None = None,
        store: ObjectStore | None = None,
        control: ControlPlane | None = None,
    ) -> "Broker":
        """Ready to serve on return. Components that are given are used instead of opened."""
        assembly = _Assembly(settings, clock or SYSTEM_CLOCK)
        async with assembly.stopping:
            broker = await assembly.run(store, control)
            # From here on the broker owns what was started; before, a failure undoes it.
            broker._stopping = assembly.stopping.pop_all()
        return broker

    @property
    def broker_id(self) -> BrokerId:
        return self._membership.broker_id

    async def stop(self) -> None:
        """Commit and answer what was accepted, then end."""
        await self._stopping.aclose()


class _Assembly:
    """Starts the parts one by one, noting for each how it is stopped."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = Metrics()
        self.stopping = AsyncExitStack()

    async def run(self, store: ObjectStore | None, control: ControlPlane | None) -> Broker:
        settings, clock, stopping = self._settings, self._clock, self.stopping
        if control is None:
            control = await self._patiently(
                "The control plane", lambda: open_control_plane(settings.storage.control)
            )
        stopping.push_async_callback(control.close)
        store = store or self._open_store()
        stopping.push_async_callback(store.close)
        await self._claim(control, store)
        stores = await self._segment_stores(control, store)

        catalog = TopicCatalog(control=control, clock=clock)
        watermarks = Watermarks(control=control, clock=clock, poll_ms=settings.fetch.poll_ms)
        stopping.push_async_callback(watermarks.close)
        cache = FreshBlocks(settings.block.cache_bytes)
        blocks = BlockReader(store=store, cache=cache)
        segments = self._segment_reader(stores)
        reader = TopicReader(
            control=control,
            tiers=open_tiers(blocks=blocks, segments=segments, remote_reads=settings.remote.reads),
            aborted=AbortedTransactions(metadata=control.segments, segments=segments, clock=clock),
            watermarks=watermarks,
            clock=clock,
            max_bytes=settings.fetch.max_bytes,
        )
        times = RecordTimes(
            blocks=blocks,
            index=BatchIndex(control=control, store=store),
            segments=segments,
            remote_reads=settings.remote.reads,
        )

        server = Server(
            settings=settings.broker,
            max_inflight_bytes=settings.block.max_inflight_bytes,
            clock=clock,
        )
        listening = server.bind()
        stopping.push_async_callback(server.stop, settings.broker.shutdown_timeout_ms)
        address = self._advertised(listening)
        membership = await self._join(control, address)
        hints = Hints(
            cluster_id=membership.cluster_id, others=membership.others, on_hint=watermarks.hinted
        )
        await hints.start(*listening)
        stopping.callback(hints.close)

        def committed(advanced: Advanced) -> None:
            watermarks.advanced(advanced)
            hints.send(advanced)

        writer = BlockWriter(
            store=store,
            control=control,
            cache=cache,
            broker_id=lambda: membership.broker_id,
            settings=settings.block,
            clock=clock,
            entropy=system_entropy,
            metrics=self._metrics,
            on_commit=committed,
        )
        stopping.push_async_callback(writer.close)
        appender = TopicAppender(
            appenders={WriteTier.BLOCK: writer},
            control=control,
            catalog=catalog,
            clock=clock,
            topic_defaults=settings.topic,
        )
        groups = GroupCoordinator(control=control, membership=membership, clock=clock)
        consumer_groups = ConsumerGroups(groups, catalog, settings.groups, clock=clock)
        requests = RequestMetrics(self._metrics)
        components = Components(
            metrics=requests,
            failures=ReadFailures(clock),
            admin=self._admin(control, catalog, membership, groups, consumer_groups),
            settings=settings,
            membership=membership,
            control=control,
            catalog=catalog,
            appender=appender,
            reader=reader,
            offsets=TopicOffsets(control=control, times=times),
            groups=groups,
            classic_groups=ClassicGroups(groups, settings.groups),
            consumer_groups=consumer_groups,
        )
        await server.start(dispatcher(components, clock=clock, metrics=requests))
        # Pushed again, because clients must be answered before the writer closes.
        stopping.push_async_callback(server.stop, settings.broker.shutdown_timeout_ms)
        stopping.callback(reader.stop)
        stopping.push_async_callback(membership.leave)
        # Before the broker leaves: until then nobody else may coordinate its groups.
        stopping.push_async_callback(groups.stop)
        self._start_janitor(control, store, stores)
        return Broker(
            settings=settings,
            metrics=self._metrics,
            address=address,
            membership=membership,
            stopping=stopping,
        )

    def _open_store(self) -> ObjectStore:
        storage = self._settings.storage
        return open_store(
            storage.objects, storage.object_options, clock=self._clock, metrics=self._metrics
        )

    async def _segment_stores(self, control: ControlPlane, store: ObjectStore) -> SegmentStores:
        """Where segments lie: beside the blocks, unless the settings name a store of their own."""
        own = store
        if self._settings.remote.objects is not None:
            own = self._open_other(self._settings.remote.objects)
            self.stopping.push_async_callback(own.close)
        await self._patiently("The object store", lambda: claim_segments(control, store, own))
        stores = SegmentStores(own, self._open_other)
        self.stopping.push_async_callback(stores.close)
        return stores

    def _open_other(self, url: str) -> ObjectStore:
        return open_other_store(url, self._settings.storage, self._clock)

    def _segment_reader(self, stores: SegmentStores) -> SegmentReader:
        remote = self._settings.remote
        keys = KeyRing.load(remote.public_keys, remote.private_keys, remote.encryption_key)
        reader = SegmentReader(stores=stores, keys=keys, settings=remote, metrics=self._metrics)
        self.stopping.push_async_callback(reader.close)
        return reader

    async def _patiently(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat what may be done again until it succeeds, saying why that takes so long."""

        def log_retry(error: Exception, pause_s: float) -> None:
            log.warning("%s is not ready, trying again in %.1f s: %s", what, pause_s, error)

        return await retry(
            work,
            clock=self._clock,
            failures=(RetriableError, OutcomeUnknownError),
            backoff=_BACKOFF,
            on_retry=log_retry,
        )

    async def _claim(self, control: ControlPlane, store: ObjectStore) -> None:
        await self._patiently("The object store", lambda: claim_store(control, store))

    def _advertised(self, listening: Address) -> Address:
        """Where clients can reach this broker: no address that only means "all interfaces"."""
        if self._settings.broker.advertise is None:
            anywhere = listening.host in ("0.0.0.0", "::")
            return Address(socket.gethostname(), listening.port) if anywhere else listening
        host, port = parse_address(self._settings.broker.advertise)
        return Address(host, port or listening.port)

    async def _join(self, control: ControlPlane, address: Address) -> Membership:
        wanted = self._settings.broker.id
        incarnation = new_uuid()

        def join() -> Awaitable[Membership]:
            return Membership.join(
                control=control,
                clock=self._clock,
                broker_id=None if wanted is None else BrokerId(wanted),
                host=address.host,
                port=address.port,
                rack=self._settings.broker.rack,
                incarnation=incarnation,
                lease_ms=self._settings.broker.lease_ms,
            )

        membership = await self._patiently("The control plane", join)
        self.stopping.push_async_callback(membership.leave)
        return membership

    def _admin(
        self,
        control: ControlPlane,
        catalog: TopicCatalog,
        membership: Membership,
        groups: GroupCoordinator,
        consumer_groups: ConsumerGroups,
    ) -> BrokerAdmin:
        return BrokerAdmin(
            control=control,
            catalog=catalog,
            settings=self._settings,
            membership=membership,
            groups=groups,
            consumer_groups=consumer_groups,
        )

    def _start_janitor(
        self, control: ControlPlane, store: ObjectStore, segments: SegmentStores
    ) -> None:
        janitor = Janitor(
            control=control,
            store=store,
            retention_of=retention_by(self._settings.topic),
            settings=self._settings.janitor,
            offsets_retention_ms=self._settings.groups.offsets_retention_ms,
            clock=self._clock,
            segments=segments,
            segment_prefix=self._settings.remote.prefix,
            metrics=self._metrics,
        )
        janitor.start()
        self.stopping.push_async_callback(janitor.stop)
