"""The workplace of a task: the stores and keys that it works with, and their use so far."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Self
from uuid import UUID

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.ids import Entropy, WriterTag, system_entropy, tagged_uuid7, uuid7
from stratalog.metrics import Metrics
from stratalog.objects.store import ObjectStore
from stratalog.opening.stores import Wrap, unwrapped
from stratalog.opening.workers import WorkerAccess, WorkerKeys, worker_access
from stratalog.pipeline.kinds.source_reader import Pace
from stratalog.pipeline.plan.tasks import Effort
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.key_ring import KeyRing
from stratalog.settings import Settings

_REQUESTS = "stratalog_objects_requests_total"
_BYTES = "stratalog_objects_bytes_total"
_READS = ("get", "get_ranges")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """The settings that every executor needs to run tasks.

    They travel in the pickled function, never in the rows of a plan, because the access may hold
    credentials. The repr shows none.
    """

    access: WorkerAccess
    task_bytes_per_second: int = 0
    """The most that a task reads; 0 is no limit."""

    def of_cluster(self, cluster_id: UUID | None, writer: WriterTag | None = None) -> Self:
        """Return a copy for executors that refuse stores without this cluster's marker, and whose
        objects belong to this writer."""
        return replace(self, access=replace(self.access, cluster_id=cluster_id, writer=writer))


def workplace_of(settings: Settings, *, gently: bool = False) -> Workplace:
    """Return the settings for executors, with the text of the key that they encrypt for."""
    return Workplace(
        access=worker_access(settings, WorkerKeys.SEALING),
        task_bytes_per_second=settings.tiering.task_bytes_per_second if gently else 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWorkplace:
    objects: ObjectStore
    segments: ObjectStore
    segments_prefix: str
    encoding: Encoding
    keys: KeyRing
    clock: Clock
    entropy: Entropy
    pace: Pace
    writer: WriterTag | None = None
    """None only where nothing sweeps."""
    metrics: tuple[Metrics, ...] = ()

    def new_id(self) -> UUID:
        """Return an id for a new object, by which the sweeper knows its writer."""
        now_ms = self.clock.now_ms()
        if self.writer is None:
            return uuid7(now_ms, self.entropy)
        return tagged_uuid7(now_ms, self.writer, self.entropy)

    def effort(self, seconds: float) -> Effort:
        """Return the requests and bytes that the stores have counted so far."""
        return counted_effort(self.metrics, seconds)


@asynccontextmanager
async def opened(
    workplace: Workplace,
    *,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
    wrap: Wrap = unwrapped,
) -> AsyncIterator[OpenWorkplace]:
    clock = clock or SYSTEM_CLOCK
    access = workplace.access
    of_blocks, of_segments = Metrics(), Metrics()
    stores = access.open_stores(
        clock=clock, entropy=entropy, metrics=of_blocks, segment_metrics=of_segments, wrap=wrap
    )
    try:
        yield OpenWorkplace(
            objects=stores.objects,
            segments=stores.segments.own,
            segments_prefix=access.segments_prefix,
            encoding=access.encoding,
            keys=access.keys.ring(entropy),
            clock=clock,
            entropy=entropy,
            pace=Pace(workplace.task_bytes_per_second, clock),
            writer=access.writer,
            metrics=(of_blocks, of_segments),
        )
    finally:
        await stores.close()


def counted_effort(counts: Sequence[Metrics], seconds: float) -> Effort:
    """Return the requests and bytes of the stores that count with these metrics."""
    counted = [sample for metrics in counts for sample in _samples(metrics)]
    sizes = [(operation, n) for name, operation, n in counted if name == _BYTES]
    return Effort(
        bytes_read=sum(n for operation, n in sizes if operation in _READS),
        bytes_written=sum(n for operation, n in sizes if operation not in _READS),
        requests=sum(n for name, _, n in counted if name == _REQUESTS),
        seconds=seconds,
    )


def _samples(metrics: Metrics) -> Iterator[tuple[str, str, int]]:
    for metric in metrics.registry.collect():
        for sample in metric.samples:
            if sample.name in (_REQUESTS, _BYTES):
                yield sample.name, sample.labels["operation"], int(sample.value)
