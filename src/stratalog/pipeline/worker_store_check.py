"""The check that a worker finds the cluster's store at the store's address.

The driver has looked at the store's marker, from its own machine. On another one a folder may not
be mounted, or an endpoint may lead elsewhere. To such a worker every block would seem to be lost,
which counts as a failure of its partition.
"""

from pathlib import Path
from uuid import UUID

from stratalog.clock import Clock
from stratalog.objects.open import folder_of
from stratalog.opening.errors import MarkerDamagedError, WrongStoreError
from stratalog.opening.marker import MARKER_KEY, read_marker
from stratalog.pipeline.errors import StrangeStoreError
from stratalog.pipeline.workplace import Workplace, open_store_of

_checked: set[tuple[str, UUID]] = set()
"""Stores that this process has found to be right, and their clusters, so that it reads a marker
once and not for every task."""


async def check_own_stores(workplace: Workplace, clock: Clock) -> None:
    """Raise if a store is not the cluster's, before anything in it is opened or made."""
    cluster_id = workplace.cluster_id
    if cluster_id is None:
        return
    for url in filter(None, (workplace.objects_url, workplace.segments_url)):
        # For every task: opening a folder that is not mounted any more would make it.
        _check_folder(url)
        if (url, cluster_id) not in _checked:
            await _check_marker(url, workplace, cluster_id, clock)
            _checked.add((url, cluster_id))


def _check_folder(url: str) -> None:
    folder = folder_of(url)
    if folder is not None and not _is_file(folder / MARKER_KEY, url):
        raise StrangeStoreError(url, f"there is no {MARKER_KEY}")


def _is_file(path: Path, url: str) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise StrangeStoreError(url, f"{MARKER_KEY}: {error.strerror}") from None


async def _check_marker(url: str, workplace: Workplace, cluster_id: UUID, clock: Clock) -> None:
    """Read the marker, with one small request.

    The request does not count in a run's cost, nor does the driver's own look: there are as many
    as there are workers, which no plan knows.
    """
    store = open_store_of(url, workplace, clock)
    try:
        found = await read_marker(store)
    except (MarkerDamagedError, WrongStoreError) as error:
        raise StrangeStoreError(url, str(error)) from None
    finally:
        await store.close()
    if found is None:
        raise StrangeStoreError(url, f"there is no {MARKER_KEY}")
    if found[0].cluster_id != cluster_id:
        raise StrangeStoreError(url, f"it belongs to cluster {found[0].cluster_id}")
