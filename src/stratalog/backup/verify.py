"""The check that a backup can be restored, and that the store still has everything it names.

The backup is loaded into a temporary SQLite file, whatever database it was made from, and checked
as `fsck` checks a cluster. Two findings of `fsck` are no fault of a backup: newer objects, which it
cannot know, and the marker, which has moved on.
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from stratalog.backup.load import load_backup
from stratalog.backup.manifest import BackupManifest
from stratalog.checks.fsck import run_fsck
from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.report import Finding, Progress, Promise, Report, Severity
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.sqlite import SqliteDatabase
from stratalog.ids import system_entropy
from stratalog.objects.store import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedStores:
    """The stores that a backup's rows point into."""

    objects: ObjectStore
    tier: RemoteTier


async def verify_backup(
    manifest: BackupManifest,
    source: ObjectStore,
    stores: CheckedStores,
    *,
    deep: bool,
    progress: Progress,
) -> Report:
    """Load the backup aside and check it against the store. Changes nothing."""
    with TemporaryDirectory(prefix="stratalog-verify-") as name:
        database = await SqliteDatabase.open(f"sqlite:{Path(name) / 'control.db'}")
        try:
            await load_backup(manifest, source, database, progress=progress)
            control = ControlPlane(database, system_entropy)
            report = await run_fsck(
                control, stores.objects, deep=deep, progress=progress, tier=stores.tier
            )
        finally:
            await database.close()
    report.findings = [each for each in report.findings if _concerns_backup(each, stores)]
    return report


def _concerns_backup(finding: Finding, stores: CheckedStores) -> bool:
    if finding.problem.severity is not Severity.DAMAGE:
        return False
    markers = (stores.objects.url, stores.tier.stores.own.url)
    return finding.problem.promise is not Promise.HOLDERS or finding.where not in markers
