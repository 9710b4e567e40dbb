"""Announced ids: the objects that this cluster may delete although no row names them.

An object of another cluster, of Kafka, or of a control plane that was restored to a time before the
announcement looks like garbage, too, because no row names it. So only an id of version 7 whose
writer was announced here, and that was not made before the announcement, may be swept.
"""

from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

from stratalog.control.plane import ControlPlane
from stratalog.ids import uuid7_time_ms, writer_tag_of
from stratalog.settings import MINUTE_MS

CLOCK_MARGIN_MS = 15 * MINUTE_MS
"""An announcement has the time of the database's clock, an id that of its writer, and the two need
not agree. S3 refuses writers whose clock is off by more than 15 minutes, so that no working writer
is further off."""

Id = TypeVar("Id", bound=UUID)


async def announced_ids(control: ControlPlane, ids: Iterable[Id]) -> set[Id]:
    """Return the ids that announced writers of this cluster have made."""
    by_id = {each: writer_tag_of(each) for each in ids if each.version == 7}
    writers = await control.writers.known(by_id.values())
    return {
        each
        for each, tag in by_id.items()
        if tag in writers and uuid7_time_ms(each) >= writers[tag].announced_ms - CLOCK_MARGIN_MS
    }
