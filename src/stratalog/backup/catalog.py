"""The backups of a store: listing, finding one by name, removing old ones."""

from collections.abc import Sequence
from uuid import UUID

from stratalog.backup.errors import NoBackupError
from stratalog.backup.manifest import MANIFEST_NAME, PREFIX, BackupManifest, parse_manifest
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectInfo, ObjectStore
from stratalog.settings import DAY_MS


async def list_backups(store: ObjectStore) -> list[BackupManifest]:
    """Return the backups of the store, the oldest first."""
    keys = [info.key async for info in store.list(PREFIX) if _is_manifest(info.key)]
    found = [await _read(store, key) for key in keys]
    return sorted(found, key=lambda manifest: (manifest.created_ms, manifest.name))


async def find_backup(store: ObjectStore, name: str | None) -> BackupManifest:
    """Return the backup of this name; without a name, the newest."""
    if name is not None:
        try:
            return await _read(store, f"{PREFIX}{name}/{MANIFEST_NAME}")
        except ObjectNotFoundError as error:
            raise NoBackupError(
                f"{store.url} has no backup {name}: `stratalog backup list` shows the backups"
            ) from error
    backups = await list_backups(store)
    if not backups:
        raise NoBackupError(f"{store.url} has no backup: `stratalog backup create` makes one")
    return backups[-1]


async def prune_backups(
    store: ObjectStore, cluster_id: UUID, *, keep: int, now_ms: int
) -> list[BackupManifest]:
    """Delete all backups of the cluster but the newest `keep`, and the remains of backups that were
    cut off.

    The manifest goes first, so that a crash leaves remains, not a backup that lacks members.
    """
    backups = await list_backups(store)
    own = [manifest for manifest in backups if manifest.cluster_id == cluster_id]
    old = own[: max(len(own) - keep, 0)]
    for manifest in old:
        await store.delete(manifest.keys[:1])
        await store.delete(manifest.keys[1:])
    await store.delete(await _remains(store, backups, now_ms))
    return old


async def _remains(store: ObjectStore, backups: Sequence[BackupManifest], now_ms: int) -> list[str]:
    whole = tuple(manifest.prefix for manifest in backups)
    # A backup that is being made has no manifest yet.
    return [
        info.key
        async for info in store.list(PREFIX)
        if not info.key.startswith(whole) and _is_old(info, now_ms)
    ]


def _is_old(info: ObjectInfo, now_ms: int) -> bool:
    return info.modified_ms < now_ms - DAY_MS


def _is_manifest(key: str) -> bool:
    parts = key.removeprefix(PREFIX).split("/")
    return len(parts) == 2 and parts[1] == MANIFEST_NAME


async def _read(store: ObjectStore, key: str) -> BackupManifest:
    return parse_manifest((await store.get(key)).data, key)
