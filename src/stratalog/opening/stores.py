"""The object stores of a cluster, opened: the store of blocks, and the stores of segments.

This is the one door through which addresses, credentials and other options of object stores pass.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from stratalog.clock import Clock
from stratalog.ids import Entropy, system_entropy
from stratalog.metrics import Metrics
from stratalog.objects.open import absolute_url, open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening.errors import PrivateStoreError
from stratalog.segment.stores import SegmentStores
from stratalog.settings import Settings

Wrap = Callable[[ObjectStore], ObjectStore]
"""Puts a wrapper around a store that was opened. Tests use it to inject faults."""


def unwrapped(store: ObjectStore) -> ObjectStore:
    return store


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddresses:
    """The addresses of a cluster's stores. Its repr leaves the options out: they hold secrets."""

    objects_url: str
    segments_url: str = ""
    """Empty if segments are kept in the store of the blocks."""
    object_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def open(
        self,
        url: str,
        *,
        clock: Clock,
        entropy: Entropy = system_entropy,
        metrics: Metrics | None = None,
    ) -> ObjectStore:
        """Open one store of the cluster, or another store that its segments refer to."""
        # The options belong to the blocks' store. Another kind of store would refuse them.
        same_kind = _scheme(url) == _scheme(self.objects_url)
        options = self.object_options if same_kind else {}
        return open_store(url, options, clock=clock, entropy=entropy, metrics=metrics)


def store_addresses(settings: Settings) -> StoreAddresses:
    """Return the addresses that the settings name, with folders as absolute paths."""
    return StoreAddresses(
        objects_url=absolute_url(settings.storage.objects),
        segments_url=absolute_url(settings.remote.objects or ""),
        object_options=dict(settings.storage.object_options),
    )


def check_shared(settings: Settings) -> None:
    """Raise if no other process can reach the object store."""
    if _scheme(settings.storage.objects) == "memory":
        raise PrivateStoreError(
            "storage.objects is in the memory of one process, where no other process can reach it:"
            " use a folder or a bucket"
        )


class ClusterStores:
    """The stores of a cluster. The segments' own store is opened when it is first asked for."""

    def __init__(
        self,
        addresses: StoreAddresses,
        *,
        clock: Clock,
        entropy: Entropy = system_entropy,
        metrics: Metrics | None = None,
        segment_metrics: Metrics | None = None,
        wrap: Wrap = unwrapped,
        objects: ObjectStore | None = None,
    ) -> None:
        """`objects`, if given, is used as the store of the blocks instead of opening one."""
        self._addresses = addresses
        self._open = partial(addresses.open, clock=clock, entropy=entropy)
        self._segment_metrics = segment_metrics
        self._wrap = wrap
        self.objects = objects or wrap(self._open(addresses.objects_url, metrics=metrics))
        self._segments: SegmentStores | None = None

    @property
    def segments(self) -> SegmentStores:
        if self._segments is None:
            self._segments = SegmentStores(self._own_segments(), self._open)
        return self._segments

    def _own_segments(self) -> ObjectStore:
        if not self._addresses.segments_url:
            return self.objects
        return self._wrap(self._open(self._addresses.segments_url, metrics=self._segment_metrics))

    async def close(self) -> None:
        if self._segments is not None:
            await self._segments.close()
            if self._segments.own is not self.objects:
                await self._segments.own.close()
        await self.objects.close()


def _scheme(url: str) -> str:
    return url.partition(":")[0]
