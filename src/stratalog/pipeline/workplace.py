"""The workplace of a task: the stores and keys that it works with, and their use so far."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from Crypto.PublicKey import RSA

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.ids import Entropy, system_entropy
from stratalog.metrics import Metrics
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.pipeline.kinds.source_reader import Pace
from stratalog.pipeline.plan.tasks import Effort
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.errors import KeyFileError
from stratalog.segment.key_ring import KeyRing

_REQUESTS = "stratalog_objects_requests_total"
_BYTES = "stratalog_objects_bytes_total"
_READS = ("get", "get_ranges")

Wrap = Callable[[ObjectStore], ObjectStore]
"""Wraps a store that was opened. Tests put their faults in here."""


def unwrapped(store: ObjectStore) -> ObjectStore:
    return store


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """The settings that every executor needs to open its stores.

    They travel in the pickled function, never in the rows of a plan, because the options may hold
    credentials. The repr shows none.
    """

    objects_url: str
    segments_url: str
    """Empty if segments are kept in the same store."""
    segments_prefix: str
    chunk_bytes: int
    compress: bool
    encryption_key: str | None
    task_bytes_per_second: int = 0
    """The most that a task reads; 0 is no limit."""
    cluster_id: UUID | None = None
    """The cluster that the stores must belong to; None if no cluster has claimed them yet."""
    object_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    public_keys_pem: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The text of the PEM files: executors may not have the files."""


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
    metrics: tuple[Metrics, ...] = ()

    def effort(self, seconds: float) -> Effort:
        """Return the requests and bytes that the stores have counted so far."""
        counted = [sample for metrics in self.metrics for sample in _samples(metrics)]
        sizes = [(operation, n) for name, operation, n in counted if name == _BYTES]
        return Effort(
            bytes_read=sum(n for operation, n in sizes if operation in _READS),
            bytes_written=sum(n for operation, n in sizes if operation not in _READS),
            requests=sum(n for name, _, n in counted if name == _REQUESTS),
            seconds=seconds,
        )


@asynccontextmanager
async def opened(
    workplace: Workplace,
    *,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
    wrap: Wrap = unwrapped,
) -> AsyncIterator[OpenWorkplace]:
    clock = clock or SYSTEM_CLOCK
    metrics = [Metrics()]
    async with AsyncExitStack() as closing:
        objects = wrap(open_store_of(workplace.objects_url, workplace, clock, entropy, metrics[0]))
        closing.push_async_callback(objects.close)
        segments = objects
        if workplace.segments_url:
            metrics.append(Metrics())
            segments = wrap(
                open_store_of(workplace.segments_url, workplace, clock, entropy, metrics[1])
            )
            closing.push_async_callback(segments.close)
        yield OpenWorkplace(
            objects=objects,
            segments=segments,
            segments_prefix=workplace.segments_prefix,
            encoding=Encoding(
                chunk_bytes=workplace.chunk_bytes,
                compress=workplace.compress,
                encrypt=workplace.encryption_key is not None,
            ),
            keys=_key_ring(workplace, entropy),
            clock=clock,
            entropy=entropy,
            pace=Pace(workplace.task_bytes_per_second, clock),
            metrics=tuple(metrics),
        )


def open_store_of(
    url: str,
    workplace: Workplace,
    clock: Clock,
    entropy: Entropy = system_entropy,
    metrics: Metrics | None = None,
) -> ObjectStore:
    """Open one of the workplace's stores."""
    # The options belong to the store of objects. Another kind of store would not understand them.
    same_kind = url.partition(":")[0] == workplace.objects_url.partition(":")[0]
    options = workplace.object_options if same_kind else {}
    return open_store(url, options, clock=clock, entropy=entropy, metrics=metrics)


def _key_ring(workplace: Workplace, entropy: Entropy) -> KeyRing:
    """Hold the active public key only: executors encrypt and never decrypt."""
    active = workplace.encryption_key
    if active is None:
        return KeyRing()
    try:
        public_key = RSA.import_key(workplace.public_keys_pem[active])
    except (KeyError, ValueError, IndexError, TypeError):
        raise KeyFileError(
            f"the public key {active!r} did not reach this executor as an RSA key in PEM"
        ) from None
    return KeyRing({active: public_key}, active=active, entropy=entropy)


def _samples(metrics: Metrics) -> Iterator[tuple[str, str, int]]:
    for metric in metrics.registry.collect():
        for sample in metric.samples:
            if sample.name in (_REQUESTS, _BYTES):
                yield sample.name, sample.labels["operation"], int(sample.value)
