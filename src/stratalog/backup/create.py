"""Making a backup of a control plane.

1. All tables are written from one snapshot into a temporary folder. A crash leaves nothing.
2. The members are uploaded. A crash leaves objects without a manifest, which `create` removes the
   next time that it prunes, once they are a day old.
3. The manifest is put. From here on the backup exists.

The store's half of the pair is no copy: objects that the snapshot names stay in the store for
`janitor.backup_window_ms`, whatever the pipeline and the janitor do after the snapshot.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from stratalog.backup.manifest import MANIFEST_NAME, BackupManifest, Member, encode_manifest
from stratalog.backup.spool import Spool, file_parts, opened_lines
from stratalog.checks.report import Progress
from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.sql.database import Database
from stratalog.control.sql.dump import as_mappings, dump
from stratalog.ids import Entropy, system_entropy
from stratalog.objects.store import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSource:
    """The control plane to back up, and the store whose objects it names."""

    database: Database
    objects_url: str
    window_ms: int
    """How long the store keeps objects that were replaced, grace included."""


async def create_backup(
    source: BackupSource,
    target: ObjectStore,
    *,
    progress: Progress,
    clock: Clock = SYSTEM_CLOCK,
    entropy: Entropy = system_entropy,
) -> BackupManifest:
    """Write a backup into the target, and return its manifest."""
    # Before the snapshot: objects that were marked after this time are surely kept long enough.
    created_ms = clock.now_ms()
    with TemporaryDirectory(prefix="stratalog-backup-") as name:
        folder = Path(name) / "members"
        spool = Spool(folder)
        migrations = await dump(source.database, spool)
        spool.close()
        manifest = _manifest(source, folder, spool.members, migrations, created_ms, entropy)
        for done, member in enumerate(manifest.members):
            progress("tables", done, len(manifest.members))
            await target.put_stream(manifest.key_of(member), file_parts(folder / member.file_name))
        await target.put(manifest.prefix + MANIFEST_NAME, [encode_manifest(manifest)])
    return manifest


def _manifest(
    source: BackupSource,
    folder: Path,
    members: list[Member],
    migrations: list[int],
    created_ms: int,
    entropy: Entropy,
) -> BackupManifest:
    [cluster] = _rows(folder, members, "cluster")
    return BackupManifest(
        name=f"{_time_name(created_ms)}-{entropy(4).hex()}",
        created_ms=created_ms,
        window_ms=source.window_ms,
        cluster_id=UUID(cluster["cluster_id"]),
        generation=cluster["generation"],
        cluster=cluster,
        writers=_rows(folder, members, "writers"),
        newest_object=_newest_object(folder, members),
        migrations=migrations,
        control_url=source.database.url,
        objects_url=source.objects_url,
        members=members,
    )


def _rows(folder: Path, members: list[Member], table: str) -> list[dict[str, Any]]:
    for member in members:
        if member.table == table:
            with opened_lines(folder, member) as lines:
                return list(as_mappings(member.columns, lines))
    return []


def _newest_object(folder: Path, members: list[Member]) -> UUID | None:
    """Return the last row's id: the members are in the order of their keys."""
    newest = None
    for member in members:
        if member.table == "objects":
            with opened_lines(folder, member) as lines:
                for line in lines:
                    newest = line
            if newest is not None:
                [row] = as_mappings(member.columns, [newest])
                return UUID(row["object_id"])
    return None


def _time_name(now_ms: int) -> str:
    return f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y%m%dT%H%M%SZ}"
