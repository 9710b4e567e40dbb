"""The restore of a backup, and the rebuild of a control plane from a store.

1. The backup is loaded into an empty database, with a note that its recovery is begun (`load.py`).
   Without any backup, the database gets the identity of the cluster alone.
2. The recovery is completed from the store (`recovery/completion.py`), which ends with its note.

Brokers refuse a control plane whose recovery is not finished. After a crash at any step the same
command goes on.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from stratalog.backup.catalog import list_backups
from stratalog.backup.errors import NotEmptyError
from stratalog.backup.load import load_backup
from stratalog.backup.manifest import BackupManifest
from stratalog.checks.report import Progress
from stratalog.control.plane import ControlPlane
from stratalog.control.recoveries.load import found_cluster, has_cluster, unfinished_recovery
from stratalog.control.recoveries.model import Recovery
from stratalog.control.sql.database import Database
from stratalog.control.sql.migrate import migrate
from stratalog.control.sql.sqlite import SqliteDatabase
from stratalog.ids import Entropy, new_uuid, system_entropy
from stratalog.objects.store import ObjectStore
from stratalog.opening.marker import read_marker
from stratalog.recovery.completion import RecoveryStores, complete_recovery
from stratalog.recovery.recover import plan_recovery
from stratalog.recovery.report import RecoveryReport

STORE_ALONE = "the store alone"
"""The ground of a rebuild without a backup."""


async def restore_backup(
    manifest: BackupManifest,
    source: ObjectStore,
    database: Database,
    stores: RecoveryStores,
    *,
    skip_unproven: bool,
    progress: Progress,
    entropy: Entropy = system_entropy,
) -> RecoveryReport:
    """Load a backup into an empty database, and complete it from the store."""
    await load_backup(manifest, source, database, progress=progress, entropy=entropy)
    return await _complete(database, stores, skip_unproven, progress, entropy)


async def rebuild_control_plane(
    database: Database,
    stores: RecoveryStores,
    *,
    skip_unproven: bool,
    progress: Progress,
    entropy: Entropy = system_entropy,
) -> RecoveryReport:
    """Make a control plane from the store, on the ground of the newest backup if there is one."""
    marker = await read_marker(stores.objects)
    cluster_id = None if marker is None else marker[0].cluster_id
    ground = await _newest_backup(stores.objects, cluster_id)
    if ground is not None:
        report = await restore_backup(
            ground, stores.objects, database, stores,
            skip_unproven=skip_unproven, progress=progress, entropy=entropy,
        )  # fmt: skip
        report.remarks.insert(0, f"The ground is backup {ground.name}.")
        return report
    if await has_cluster(database):
        begun = await unfinished_recovery(database)
        if begun is None or begun.ground != STORE_ALONE:
            raise NotEmptyError(
                f"{database.url} holds a cluster: rebuild into a new database, or remove this one"
            )
    else:
        begun = Recovery(
            recovery_id=new_uuid(entropy),
            ground=STORE_ALONE,
            begun_ms=0,
            finished_ms=None,
            report=None,
        )
        await found_cluster(database, cluster_id or new_uuid(entropy), begun)
    return await _complete(database, stores, skip_unproven, progress, entropy)


async def preview_restore(
    manifest: BackupManifest, source: ObjectStore, stores: RecoveryStores, *, progress: Progress
) -> RecoveryReport:
    """Report the outcome of a restore, which is tried on a temporary file."""
    async with _temporary_database() as database:
        await load_backup(manifest, source, database, progress=progress)
        return await _preview(database, stores, progress)


async def preview_rebuild(stores: RecoveryStores, *, progress: Progress) -> RecoveryReport:
    """Report the outcome of a rebuild, which is tried on a temporary file."""
    marker = await read_marker(stores.objects)
    ground = await _newest_backup(stores.objects, None if marker is None else marker[0].cluster_id)
    if ground is not None:
        return await preview_restore(ground, stores.objects, stores, progress=progress)
    async with _temporary_database() as database:
        await migrate(database)
        return await _preview(database, stores, progress)


@asynccontextmanager
async def _temporary_database() -> AsyncIterator[Database]:
    with TemporaryDirectory(prefix="stratalog-preview-") as name:
        database = await SqliteDatabase.open(f"sqlite:{Path(name) / 'control.db'}")
        try:
            yield database
        finally:
            await database.close()


async def _preview(
    database: Database, stores: RecoveryStores, progress: Progress
) -> RecoveryReport:
    control = ControlPlane(database, system_entropy)
    plan = await plan_recovery(control, stores.objects, stores.tier, progress=progress)
    return plan.report


async def _newest_backup(store: ObjectStore, cluster_id: UUID | None) -> BackupManifest | None:
    backups = await list_backups(store)
    own = [each for each in backups if cluster_id in (None, each.cluster_id)]
    return own[-1] if own else None


async def _complete(
    database: Database,
    stores: RecoveryStores,
    skip_unproven: bool,
    progress: Progress,
    entropy: Entropy,
) -> RecoveryReport:
    begun = await unfinished_recovery(database)
    assert begun is not None, "a database that was just loaded has an unfinished recovery"
    return await complete_recovery(
        ControlPlane(database, entropy),
        stores,
        begun,
        skip_unproven=skip_unproven,
        progress=progress,
    )
