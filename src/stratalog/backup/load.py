"""Loading of a backup into a database, from the store that holds the backup."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from stratalog.backup.errors import BackupNewerError, NotEmptyError
from stratalog.backup.manifest import BackupManifest
from stratalog.backup.spool import download, opened_lines
from stratalog.checks.report import Progress
from stratalog.control.recoveries.load import (
    TableToLoad,
    has_cluster,
    load_tables,
    unfinished_recovery,
)
from stratalog.control.recoveries.model import Recovery
from stratalog.control.sql.database import Database
from stratalog.control.sql.migrate import known_numbers
from stratalog.ids import Entropy, new_uuid, system_entropy
from stratalog.objects.store import ObjectStore


async def load_backup(
    manifest: BackupManifest,
    source: ObjectStore,
    database: Database,
    *,
    progress: Progress,
    entropy: Entropy = system_entropy,
) -> None:
    """Check the members of a backup and load them into an empty database.

    A database into which this backup was loaded, and whose recovery is not finished, is left as it
    is: the restore was cut off behind this step.
    """
    if not known_numbers(database).issuperset(manifest.migrations):
        raise BackupNewerError(
            f"backup {manifest.name} was made by a newer version: restore it with that version"
        )
    if await has_cluster(database):
        begun = await unfinished_recovery(database)
        if begun is not None and begun.ground == manifest.name:
            return
        raise NotEmptyError(
            f"{database.url} holds a cluster: restore into a new database, or remove this one"
        )
    with TemporaryDirectory(prefix="stratalog-restore-") as name:
        folder = Path(name)
        for done, member in enumerate(manifest.members):
            progress("tables", done, len(manifest.members))
            await download(source, manifest.key_of(member), member, folder)
        tables = [
            TableToLoad(
                name=member.table,
                columns=member.columns,
                lines=partial(opened_lines, folder, member),
            )
            for member in manifest.members
        ]
        begun = Recovery(
            recovery_id=new_uuid(entropy),
            ground=manifest.name,
            begun_ms=manifest.created_ms,
            finished_ms=None,
            report=None,
        )
        await load_tables(database, tables, manifest.migrations, begun)
