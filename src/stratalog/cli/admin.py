"""The admin of a cluster, for commands that need no broker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from stratalog.clock import SYSTEM_CLOCK
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.admin.admin import Admin
    from stratalog.control.plane import ControlPlane
    from stratalog.recovery.deletion_notes import DeletionNotes


@asynccontextmanager
async def opened_admin(settings: Settings) -> "AsyncIterator[Admin]":
    # Imported late: --help should not wait for databases.
    from stratalog.opening.cluster import opened_control

    async with opened_control(settings) as control:
        yield admin_of(control, settings)


@asynccontextmanager
async def opened_cluster_admin(settings: Settings) -> "AsyncIterator[Admin]":
    """Open an admin whose deletions and undeletions are noted in the store."""
    from stratalog.opening.cluster import Rights, opened_cluster
    from stratalog.recovery.deletion_notes import DeletionNotes

    async with opened_cluster(settings, Rights.APPEND) as cluster:
        notes = DeletionNotes(cluster.objects, clock=SYSTEM_CLOCK)
        yield admin_of(cluster.control, settings, notes)


def admin_of(
    control: "ControlPlane", settings: Settings, notes: "DeletionNotes | None" = None
) -> "Admin":
    from stratalog.admin.admin import Admin
    from stratalog.topic.catalog import TopicCatalog

    catalog = TopicCatalog(control=control, clock=SYSTEM_CLOCK)
    return Admin(control=control, catalog=catalog, settings=settings, notes=notes)
