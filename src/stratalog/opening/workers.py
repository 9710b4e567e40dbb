"""Access of workers: the one value that tells a Spark executor how to reach a cluster's bytes.

Executors never reach the control plane, so its address is not in here.

The driver has checked the stores' markers from its own machine. On another machine a folder may not
be mounted, or an endpoint may lead elsewhere. To a worker there, every block would seem to be lost,
which counts as a failure of its partition, and its own writes would be lost on all readers. So a
worker checks the markers, too.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from uuid import UUID

from stratalog.clock import Clock
from stratalog.ids import Entropy, WriterTag, system_entropy
from stratalog.metrics import Metrics
from stratalog.objects.open import folder_of
from stratalog.opening.errors import MarkerDamagedError, WorkerStoreError, WrongStoreError
from stratalog.opening.keys import KeyTexts, opening_keys, sealing_keys
from stratalog.opening.marker import MARKER_KEY, read_marker
from stratalog.opening.stores import (
    ClusterStores,
    StoreAddresses,
    Wrap,
    check_shared,
    store_addresses,
    unwrapped,
)
from stratalog.segment.chunk_encoding import Encoding
from stratalog.settings import RemoteSettings, Settings

_checked: set[tuple[str, UUID]] = set()
"""Stores whose markers this process has found to be right: it reads each marker once, not once for
every task."""


class WorkerKeys(Enum):
    """The keys that workers get. A private key goes only to workers that open segments with it."""

    NONE = auto()
    SEALING = auto()
    """The active public key, to encrypt new segments."""
    OPENING = auto()
    """The private keys, to read encrypted segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAccess:
    """Addresses, credentials and keys for executors. Pickled; its repr shows no secret."""

    stores: StoreAddresses
    keys: KeyTexts = field(default_factory=KeyTexts)
    segments_prefix: str = RemoteSettings().prefix
    encoding: Encoding = field(default_factory=lambda: Encoding(chunk_bytes=4 * 1024 * 1024))
    """How new segments are written."""
    cluster_id: UUID | None = None
    """The cluster whose marker the stores must have. None if no broker has claimed them yet."""
    writer: WriterTag | None = None
    """The announced writer that the objects of the workers belong to. None for readers."""

    def open_stores(
        self,
        *,
        clock: Clock,
        entropy: Entropy = system_entropy,
        metrics: Metrics | None = None,
        segment_metrics: Metrics | None = None,
        wrap: Wrap = unwrapped,
    ) -> ClusterStores:
        return ClusterStores(
            self.stores,
            clock=clock,
            entropy=entropy,
            metrics=metrics,
            segment_metrics=segment_metrics,
            wrap=wrap,
        )

    async def check_stores(self, clock: Clock) -> None:
        """Raise if a store is not the cluster's, before anything in it is opened or created."""
        await self.check_block_store(clock)
        if self.stores.segments_url:
            await self._check(self.stores.segments_url, clock)

    async def check_block_store(self, clock: Clock) -> None:
        """Raise as `check_stores` does, for workers that use only the store of the blocks."""
        await self._check(self.stores.objects_url, clock)

    async def _check(self, url: str, clock: Clock) -> None:
        if self.cluster_id is None:
            return
        # Each time, because opening a folder that is no longer mounted would create it.
        _check_folder(url)
        if (url, self.cluster_id) not in _checked:
            await _check_marker(self.stores, url, self.cluster_id, clock)
            _checked.add((url, self.cluster_id))


def worker_access(
    settings: Settings,
    keys: WorkerKeys = WorkerKeys.NONE,
    *,
    cluster_id: UUID | None = None,
    writer: WriterTag | None = None,
) -> WorkerAccess:
    """Return the access that these settings give. Reads key files, because workers have none."""
    check_shared(settings)
    remote = settings.remote
    return WorkerAccess(
        stores=store_addresses(settings),
        keys=_key_texts(remote, keys),
        segments_prefix=remote.prefix,
        encoding=encoding_of(remote),
        cluster_id=cluster_id,
        writer=writer,
    )


def encoding_of(remote: RemoteSettings) -> Encoding:
    """Return the encoding of new segments."""
    return Encoding(
        chunk_bytes=remote.chunk_bytes,
        compress=remote.compression,
        encrypt=remote.encryption_key is not None,
    )


def _key_texts(remote: RemoteSettings, keys: WorkerKeys) -> KeyTexts:
    match keys:
        case WorkerKeys.NONE:
            return KeyTexts()
        case WorkerKeys.SEALING:
            return sealing_keys(remote)
        case WorkerKeys.OPENING:
            return opening_keys(remote)


def _check_folder(url: str) -> None:
    folder = folder_of(url)
    if folder is not None and not _is_file(folder / MARKER_KEY, url):
        raise WorkerStoreError(url, f"there is no {MARKER_KEY}")


def _is_file(path: Path, url: str) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise WorkerStoreError(url, f"{MARKER_KEY}: {error.strerror}") from None


async def _check_marker(
    addresses: StoreAddresses, url: str, cluster_id: UUID, clock: Clock
) -> None:
    """Read the marker with a client of its own, which counts toward no task's cost: there is one
    such read for each worker, and a plan does not know their number."""
    store = addresses.open(url, clock=clock)
    try:
        found = await read_marker(store)
    except (MarkerDamagedError, WrongStoreError) as error:
        raise WorkerStoreError(url, str(error)) from None
    finally:
        await store.close()
    if found is None:
        raise WorkerStoreError(url, f"there is no {MARKER_KEY}")
    if found[0].cluster_id != cluster_id:
        raise WorkerStoreError(url, f"it belongs to cluster {found[0].cluster_id}")
