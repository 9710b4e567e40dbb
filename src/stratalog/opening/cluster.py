"""Opening a cluster: its control plane, its object stores and the keys of its segments.

Every program that works on a cluster opens it here, and declares its rights:

| right | control plane | store of blocks | store of segments |
|---|---|---|---|
| MAKE | created if missing | claimed | claimed |
| CHANGE | must exist | must be this cluster's | must be this cluster's |
| APPEND | must exist | must be this cluster's | not used |
| READ | must exist | not asked | must be the one that is noted |

A reader does not ask for the marker, which would be one more request for each plan of a scan: in a
wrong store it finds no object, and never a wrong one.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum, auto
from functools import cached_property
from uuid import UUID

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.identity.model import StoreRole
from stratalog.control.open import open_control_plane, open_database, open_existing
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.ids import Entropy, WriterTag, system_entropy
from stratalog.metrics import Metrics
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import (
    check_running,
    check_segments,
    check_store,
    claim_anew,
    claim_segments,
    claim_store,
)
from stratalog.opening.keys import load_keys, load_private_keys
from stratalog.opening.recovered import check_recovered
from stratalog.opening.segment_store import are_apart, check_segments_noted
from stratalog.opening.stores import ClusterStores, Wrap, check_shared, store_addresses, unwrapped
from stratalog.opening.workers import WorkerAccess, WorkerKeys, worker_access
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.settings import Settings


class Rights(Enum):
    MAKE = auto()
    """For a broker, which is the only program that creates a cluster."""
    CHANGE = auto()
    """For the pipeline and for repairs, which write objects of every kind."""
    APPEND = auto()
    """For sinks, which write blocks."""
    READ = auto()
    """For scans and checks."""


class OpenCluster:
    """A cluster that was opened. `close` closes everything that was opened for it."""

    def __init__(
        self,
        settings: Settings,
        rights: Rights,
        control: ControlPlane,
        stores: ClusterStores,
        *,
        owns_control: bool = True,
    ) -> None:
        self.settings = settings
        self.rights = rights
        self.control = control
        self._stores = stores
        self._owns_control = owns_control

    @property
    def objects(self) -> ObjectStore:
        """The store of the blocks."""
        return self._stores.objects

    @property
    def segments(self) -> SegmentStores:
        return self._stores.segments

    @cached_property
    def keys(self) -> KeyRing:
        """The keys of encrypted segments. Their files are read when they are first needed."""
        remote = self.settings.remote
        return load_private_keys(remote) if self.rights is Rights.READ else load_keys(remote)

    def segment_reader(self, metrics: Metrics | None = None) -> SegmentReader:
        """Make a reader of this cluster's segments. The caller closes it."""
        return SegmentReader(
            stores=self.segments, keys=self.keys, settings=self.settings.remote, metrics=metrics
        )

    async def check_stores(self) -> None:
        """Raise unless the stores are this cluster's, as the rights require, or if the rights are
        to write and the cluster is halted."""
        if self.rights is not Rights.READ:
            await check_running(self.control)
            await check_recovered(self.control)
        match self.rights:
            case Rights.MAKE:
                await claim_store(self.control, self.objects)
                await claim_segments(self.control, self.objects, self.segments.own)
            case Rights.CHANGE:
                await check_store(self.control, self.objects)
                await check_segments(self.control, self.objects, self.segments.own)
            case Rights.APPEND:
                await check_store(self.control, self.objects)
            case Rights.READ:
                await check_segments_noted(self.control, self.objects, self.segments.own)

    async def claim_anew(self) -> list[str]:
        """Give the stores their markers where they have none, and return the addresses of these.

        For an operator who knows that the settings name the right stores."""
        claimed: list[str] = []
        if await claim_anew(self.control, self.objects):
            claimed.append(self.objects.url)
        own = self.segments.own
        if are_apart(self.objects, own) and await claim_anew(self.control, own, StoreRole.SEGMENTS):
            claimed.append(own.url)
        return claimed

    async def for_workers(
        self, keys: WorkerKeys = WorkerKeys.NONE, *, writer: WriterTag | None = None
    ) -> WorkerAccess:
        """Return all that executors need to reach the stores, and to know them for the right ones.

        The value is pickled; its repr shows no secret."""
        cluster_id = await self.claimed_by()
        return worker_access(self.settings, keys, cluster_id=cluster_id, writer=writer)

    async def claimed_by(self) -> UUID | None:
        """Return the id that the markers of the stores hold. None before the first broker's claim,
        when there are no markers yet."""
        cluster = await self.control.identity.cluster()
        return cluster.cluster_id if cluster.generation else None

    async def close(self) -> None:
        try:
            await self._stores.close()
        finally:
            if self._owns_control:
                await self.control.close()


async def open_cluster(
    settings: Settings,
    rights: Rights,
    *,
    checked: bool = True,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
    metrics: Metrics | None = None,
    segment_metrics: Metrics | None = None,
    wrap: Wrap = unwrapped,
    control: ControlPlane | None = None,
    objects: ObjectStore | None = None,
) -> OpenCluster:
    """Open a cluster. A failure closes all that was opened, so that the call may be repeated.

    The stores are checked, unless the caller does it itself before each use. `metrics` count the
    requests to the store of the blocks, `segment_metrics` those to a separate store of segments. A
    control plane that is given is used instead of opened, and remains the caller's; a store of
    blocks that is given is closed with the cluster.
    """
    if rights is not Rights.MAKE and objects is None:
        check_shared(settings)
    plane = control or await _open_control(settings, rights)
    try:
        stores = ClusterStores(
            store_addresses(settings),
            clock=clock or SYSTEM_CLOCK,
            entropy=entropy,
            metrics=metrics,
            segment_metrics=segment_metrics,
            wrap=wrap,
            objects=objects,
        )
    except BaseException:
        if control is None:
            await plane.close()
        raise
    cluster = OpenCluster(settings, rights, plane, stores, owns_control=control is None)
    try:
        if checked:
            await cluster.check_stores()
    except BaseException:
        await cluster.close()
        raise
    return cluster


@asynccontextmanager
async def opened_cluster(
    settings: Settings,
    rights: Rights,
    *,
    checked: bool = True,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
    segment_metrics: Metrics | None = None,
    wrap: Wrap = unwrapped,
    control: ControlPlane | None = None,
) -> AsyncIterator[OpenCluster]:
    """Open a cluster for the duration of a block. It takes the arguments of `open_cluster`."""
    cluster = await open_cluster(
        settings,
        rights,
        checked=checked,
        clock=clock,
        metrics=metrics,
        segment_metrics=segment_metrics,
        wrap=wrap,
        control=control,
    )
    try:
        yield cluster
    finally:
        await cluster.close()


async def open_control(settings: Settings) -> ControlPlane:
    """Open only the control plane, for programs that need no object. It must exist."""
    return await _open_control(settings, Rights.READ)


@asynccontextmanager
async def opened_control(settings: Settings) -> AsyncIterator[ControlPlane]:
    """Open only the control plane for the duration of a block. It must exist."""
    control = await open_control(settings)
    try:
        yield control
    finally:
        await control.close()


@asynccontextmanager
async def opened_database(settings: Settings) -> AsyncIterator[Database]:
    """Open the database of the control plane, which may be empty, for a restore."""
    database = await open_database(settings.storage.control)
    try:
        yield database
    finally:
        await database.close()


async def _open_control(settings: Settings, rights: Rights) -> ControlPlane:
    url, connections = settings.storage.control, settings.storage.control_connections
    if rights is Rights.MAKE:
        return await open_control_plane(url, connections=connections)
    return await open_existing(url, connections=connections)
