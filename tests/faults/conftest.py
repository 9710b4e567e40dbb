"""A partition whose boundary moves, in a folder that is quick to write."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.faults.moving_boundary import (
    CLOCK,
    PARTITIONS,
    Scene,
    Watching,
)

from stratalog.control.open import open_control_plane
from stratalog.objects.open import open_store
from stratalog.opening.claim import claim_store


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: processes die here, machines do not, and waiting for
    a disk would leave time for a tenth of the crossings."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(prefix="stratalog-", dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
async def scene(quick_folder: Path) -> AsyncIterator[Scene]:
    control = await open_control_plane(f"sqlite:{quick_folder / 'control.db'}")
    reading = Watching(await open_control_plane(f"sqlite:{quick_folder / 'control.db'}"))
    store = open_store(f"file:{quick_folder / 'objects'}", clock=CLOCK)
    await claim_store(control, store)
    topic = await control.topics.create("moving", partition_count=PARTITIONS, configs={})
    yield Scene(quick_folder, control, reading, store, topic)
    await store.close()
    await reading.inner.close()
    await control.close()
