"""Opening a driver from settings, with the control plane and the object store, without a broker."""

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.open import open_existing
from stratalog.control.plane import ControlPlane
from stratalog.objects.open import absolute_url, open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import check_segments, check_store
from stratalog.pipeline.driver import Driver
from stratalog.pipeline.errors import PrivateStoreError
from stratalog.pipeline.jobs import Jobs
from stratalog.pipeline.kinds.segment_finisher import SegmentFinisher
from stratalog.pipeline.store_cleaner import StoreCleaner
from stratalog.pipeline.workplace import OpenWorkplace, Workplace, Wrap, opened, unwrapped
from stratalog.segment.errors import KeyFileError, KeyMissingError
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.settings import RemoteSettings, Settings

OpenJobsFor: TypeAlias = Callable[[UUID | None], AbstractAsyncContextManager[Jobs]]
"""Starts Spark for this cluster: its workers check that the stores they see belong to it."""


def workplace_of(settings: Settings, *, gently: bool = False) -> Workplace:
    """Return the settings for executors, with the text of the key that they encrypt for."""
    storage, remote = settings.storage, settings.remote
    return Workplace(
        objects_url=absolute_url(storage.objects),
        segments_url=absolute_url(remote.objects or ""),
        segments_prefix=remote.prefix,
        chunk_bytes=remote.chunk_bytes,
        compress=remote.compression,
        encryption_key=remote.encryption_key,
        task_bytes_per_second=settings.tiering.task_bytes_per_second if gently else 0,
        object_options=dict(storage.object_options),
        public_keys_pem=_public_keys(remote),
    )


@asynccontextmanager
async def opened_driver(
    settings: Settings,
    open_jobs: OpenJobsFor,
    *,
    clock: Clock | None = None,
    control: ControlPlane | None = None,
    holder: str | None = None,
    clean: bool = False,
    wrap: Wrap = unwrapped,
) -> AsyncIterator[Driver]:
    """Open a driver that is ready to run.

    A control plane that is given is used instead of opening one. `clean` is for a pipeline that
    runs without a broker's janitor.
    """
    clock = clock or SYSTEM_CLOCK
    _check_shared(settings)
    async with AsyncExitStack() as closing:
        if control is None:
            control = await open_existing(settings.storage.control)
            closing.push_async_callback(control.close)
        place = await closing.enter_async_context(
            opened(workplace_of(settings), clock=clock, wrap=wrap)
        )
        stores = _segment_stores(settings, place)
        closing.push_async_callback(stores.close)
        keys = _key_ring(settings.remote)
        reader = SegmentReader(stores=stores, keys=keys, settings=settings.remote)
        closing.push_async_callback(reader.close)
        cleaner = StoreCleaner(
            control=control, store=place.objects, segments=stores, settings=settings, clock=clock
        )
        yield Driver(
            control=control,
            objects=place.objects,
            finisher=_finisher(control, stores, reader, keys, clock, settings),
            open_jobs=partial(_opened_jobs, open_jobs, control),
            settings=settings,
            clock=clock,
            holder=holder or here(),
            check_store=partial(_check_stores, control, place),
            clean=cleaner.clean if clean else None,
            effort=lambda: place.effort(0),
        )


def _finisher(
    control: ControlPlane,
    stores: SegmentStores,
    reader: SegmentReader,
    keys: KeyRing,
    clock: Clock,
    settings: Settings,
) -> SegmentFinisher:
    return SegmentFinisher(
        control=control,
        metadata=control.segments,
        stores=stores,
        reader=reader,
        keys=keys,
        clock=clock,
        producer_expiry_ms=settings.janitor.producer_expiry_ms,
    )


def _check_shared(settings: Settings) -> None:
    if settings.storage.objects.startswith("memory:"):
        raise PrivateStoreError(
            "storage.objects is in the memory of one process, where the pipeline's workers cannot"
            " reach it: use a folder or a bucket"
        )


async def _check_stores(control: ControlPlane, place: OpenWorkplace) -> None:
    await check_store(control, place.objects)
    await check_segments(control, place.objects, place.segments)


@asynccontextmanager
async def _opened_jobs(open_jobs: OpenJobsFor, control: ControlPlane) -> AsyncIterator[Jobs]:
    cluster = await control.identity.cluster()
    async with open_jobs(cluster.cluster_id if cluster.generation else None) as jobs:
        yield jobs


def here() -> str:
    """Name the host and the process, for people."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _segment_stores(settings: Settings, place: OpenWorkplace) -> SegmentStores:
    storage = settings.storage

    def open_other(url: str) -> ObjectStore:
        same_kind = url.partition(":")[0] == storage.objects.partition(":")[0]
        return open_store(url, storage.object_options if same_kind else {}, clock=place.clock)

    return SegmentStores(place.segments, open_other)


def _key_ring(remote: RemoteSettings) -> KeyRing:
    keys = KeyRing.load(remote.public_keys, remote.private_keys, remote.encryption_key)
    if keys.active is not None and not keys.can_open(keys.active):
        raise KeyMissingError(
            f"the pipeline needs the private key {keys.active!r}, too: the indexes of a segment are"
            " encrypted with the data key of its records; add it to remote.private_keys"
        )
    return keys


def _public_keys(remote: RemoteSettings) -> dict[str, str]:
    active = remote.encryption_key
    if active is None or active not in remote.public_keys:
        return {}
    path = Path(remote.public_keys[active])
    try:
        return {active: path.read_text()}
    except OSError as error:
        raise KeyFileError(
            f"cannot read {path}, the public key {active!r}: {error.strerror}"
        ) from None
