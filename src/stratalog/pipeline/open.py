"""Opening a driver from settings, with the control plane and the object store, without a broker."""

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeAlias
from uuid import UUID

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.plane import ControlPlane
from stratalog.control.writers.model import WriterKind
from stratalog.ids import WriterTag
from stratalog.metrics import Metrics
from stratalog.opening.cluster import OpenCluster, Rights, open_cluster
from stratalog.opening.stores import Wrap, unwrapped
from stratalog.opening.writers import announced_writer
from stratalog.pipeline.driver import Driver
from stratalog.pipeline.jobs import Jobs
from stratalog.pipeline.kinds.segment_finisher import SegmentFinisher
from stratalog.pipeline.store_cleaner import StoreCleaner
from stratalog.pipeline.workplace import counted_effort
from stratalog.segment.errors import KeyMissingError
from stratalog.segment.reader import SegmentReader
from stratalog.settings import Settings

OpenJobsFor: TypeAlias = Callable[[UUID | None, WriterTag], AbstractAsyncContextManager[Jobs]]
"""Starts Spark for this cluster: its workers check that the stores they see belong to it, and
upload as this writer."""


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
    counts = (Metrics(), Metrics())
    async with AsyncExitStack() as closing:
        # The driver checks the stores itself, before each run.
        cluster = await open_cluster(
            settings,
            Rights.CHANGE,
            checked=False,
            clock=clock,
            metrics=counts[0],
            segment_metrics=counts[1],
            wrap=wrap,
            control=control,
        )
        closing.push_async_callback(cluster.close)
        _check_private_key(cluster)
        reader = cluster.segment_reader()
        closing.push_async_callback(reader.close)
        yield Driver(
            control=cluster.control,
            objects=cluster.objects,
            finisher=_finisher(cluster, reader, clock),
            open_jobs=partial(_opened_jobs, open_jobs, cluster),
            settings=settings,
            clock=clock,
            holder=holder or here(),
            check_store=cluster.check_stores,
            clean=_cleaner(cluster, clock).clean if clean else None,
            effort=lambda: counted_effort(counts, 0),
        )


def _cleaner(cluster: OpenCluster, clock: Clock) -> StoreCleaner:
    return StoreCleaner(
        control=cluster.control,
        store=cluster.objects,
        segments=cluster.segments,
        settings=cluster.settings,
        clock=clock,
    )


def _check_private_key(cluster: OpenCluster) -> None:
    keys = cluster.keys
    if keys.active is not None and not keys.can_open(keys.active):
        raise KeyMissingError(
            f"the pipeline needs the private key {keys.active!r}, too: the indexes of a segment are"
            " encrypted with the data key of its records; add it to remote.private_keys"
        )


def _finisher(cluster: OpenCluster, reader: SegmentReader, clock: Clock) -> SegmentFinisher:
    return SegmentFinisher(
        control=cluster.control,
        metadata=cluster.control.segments,
        stores=cluster.segments,
        reader=reader,
        keys=cluster.keys,
        clock=clock,
        producer_expiry_ms=cluster.settings.janitor.producer_expiry_ms,
    )


@asynccontextmanager
async def _opened_jobs(open_jobs: OpenJobsFor, cluster: OpenCluster) -> AsyncIterator[Jobs]:
    async with (
        announced_writer(cluster.control, WriterKind.PIPELINE) as writer,
        open_jobs(await cluster.claimed_by(), writer) as jobs,
    ):
        yield jobs


def here() -> str:
    """Name the host and the process, for people."""
    return f"{socket.gethostname()}:{os.getpid()}"
