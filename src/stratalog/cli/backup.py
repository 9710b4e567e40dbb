"""`stratalog backup`: back up the control plane, check backups, and restore one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from stratalog.cli.options import Config, Control, Data, Json, Objects, Set, examples, settings_from
from stratalog.cli.output import counted, note, print_json, print_table, progress_line, say
from stratalog.clock import SYSTEM_CLOCK
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.backup.manifest import BackupManifest
    from stratalog.checks.report import Report
    from stratalog.objects.store import ObjectStore
    from stratalog.opening.cluster import OpenCluster

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Back up the control plane, check backups, and restore one.",
    epilog=examples(
        "stratalog backup create --config stratalog.toml --keep 7",
        "stratalog backup list --config stratalog.toml",
        "stratalog backup verify --config stratalog.toml",
    ),
)

Place = Annotated[
    str | None,
    typer.Option(
        "--to",
        "--from",
        metavar="URL",
        help="The store of the backups. Default: the cluster's own store of blocks.",
    ),
]
Name = Annotated[
    str | None,
    typer.Argument(help="The name of a backup. Default: the newest.", show_default=False),
]


@app.command(
    epilog=examples(
        "stratalog backup create",
        "stratalog backup create --config stratalog.toml --keep 7",
        "stratalog backup create --to s3://other-bucket/stratalog",
    )
)
def create(
    to: Place = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", min=1, help="Afterwards delete all but the newest N backups."),
    ] = None,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Write a snapshot of the control plane into the store. Brokers may be running.

    The objects that the snapshot names are not copied: they stay in the store for
    janitor.backup_window_ms after they were replaced or freed, so that the backup can be restored
    in full for that long.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    manifest, pruned = asyncio.run(_create(settings, to, keep))
    if json:
        print_json(_as_dict(manifest, settings) | {"pruned": [each.name for each in pruned]})
        return
    say(
        f"Backup {manifest.name}: {counted(manifest.rows, 'row')}, {manifest.size_bytes:,} bytes;"
        f" restorable in full until {_until(manifest, settings)}."
    )
    for each in pruned:
        say(f"Deleted backup {escape(each.name)}.")


@app.command("list", epilog=examples("stratalog backup list --config stratalog.toml"))
def list_(
    to: Place = None,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """List the backups of a store, and until when each can be restored in full.

    After that time objects that the backup names may be deleted. A restore still recovers all that
    the store holds, and names the rest.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    manifests = asyncio.run(_list(settings, to))
    if json:
        print_json([_as_dict(manifest, settings) for manifest in manifests])
        return
    print_table(
        ["name", "rows", "bytes", "from", "restorable in full until"],
        [
            [
                manifest.name,
                f"{manifest.rows:,}",
                f"{manifest.size_bytes:,}",
                manifest.control_url,
                _until(manifest, settings),
            ]
            for manifest in manifests
        ],
    )
    if not manifests:
        note("There is no backup: `stratalog backup create` makes one.")


@app.command(
    epilog=examples(
        "stratalog backup verify",
        "stratalog backup verify 20261118T203000Z-1f2e3d4c --deep",
    )
)
def verify(
    name: Name = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte of every batch.")] = False,
    to: Place = None,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Load a backup aside, and check it against the store as fsck does. Nothing is changed.

    The exit code is 1 if the backup is damaged, or if objects that it names are missing.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    manifest, report = asyncio.run(_verify(settings, name, to, deep=deep))
    if json:
        print_json({"name": manifest.name, **report.as_dict()})
    else:
        counts = ", ".join(f"{count:,} {noun}" for noun, count in report.counts.items())
        say(f"Backup {escape(manifest.name)}: {counts}.")
        for finding in report.findings:
            say(f"[red]damage[/] {escape(str(finding))}")
        if not report.findings:
            say("It can be restored, and the store has all that it names.")
    if report.findings:
        raise typer.Exit(1)


async def _create(
    settings: Settings, to: str | None, keep: int | None
) -> "tuple[BackupManifest, Sequence[BackupManifest]]":
    # Imported late: --help should not wait for databases and object stores.
    from stratalog.backup.catalog import prune_backups
    from stratalog.backup.create import BackupSource, create_backup
    from stratalog.opening.cluster import Rights, opened_cluster

    async with (
        opened_cluster(settings, Rights.CHANGE) as cluster,
        _backups_of(cluster, to) as target,
    ):
        source = BackupSource(
            database=cluster.control.database,
            objects_url=cluster.objects.url,
            window_ms=_window_ms(settings),
        )
        with progress_line("backing up") as progress:
            manifest = await create_backup(source, target, progress=progress.update)
        if keep is None:
            return manifest, []
        pruned = await prune_backups(
            target, manifest.cluster_id, keep=keep, now_ms=SYSTEM_CLOCK.now_ms()
        )
    return manifest, pruned


async def _list(settings: Settings, to: str | None) -> "list[BackupManifest]":
    from stratalog.backup.catalog import list_backups

    async with opened_backups(settings, to) as store:
        return await list_backups(store)


async def _verify(
    settings: Settings, name: str | None, to: str | None, *, deep: bool
) -> "tuple[BackupManifest, Report]":
    from stratalog.backup.catalog import find_backup
    from stratalog.backup.verify import CheckedStores, verify_backup
    from stratalog.checks.remote_tier import RemoteTier
    from stratalog.opening.keys import load_private_keys
    from stratalog.opening.stores import ClusterStores, store_addresses

    stores = ClusterStores(store_addresses(settings), clock=SYSTEM_CLOCK)
    try:
        async with opened_backups(settings, to) as source:
            manifest = await find_backup(source, name)
            tier = RemoteTier(
                stores=stores.segments,
                keys=load_private_keys(settings.remote),
                prefix=settings.remote.prefix,
            )
            checked = CheckedStores(objects=stores.objects, tier=tier)
            with progress_line("checking") as progress:
                report = await verify_backup(
                    manifest, source, checked, deep=deep, progress=progress.update
                )
    finally:
        await stores.close()
    return manifest, report


@asynccontextmanager
async def opened_backups(settings: Settings, to: str | None) -> "AsyncIterator[ObjectStore]":
    """Open the store that holds the backups. It needs no control plane: that may be lost."""
    from stratalog.objects.open import absolute_url
    from stratalog.opening.stores import check_shared, store_addresses

    if to is None:
        check_shared(settings)
    url = absolute_url(to or settings.storage.objects)
    store = store_addresses(settings).open(url, clock=SYSTEM_CLOCK)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _backups_of(cluster: "OpenCluster", to: str | None) -> "AsyncIterator[ObjectStore]":
    if to is None:
        yield cluster.objects
        return
    async with opened_backups(cluster.settings, to) as store:
        yield store


def _window_ms(settings: Settings) -> int:
    return settings.janitor.grace_ms + settings.janitor.backup_window_ms


def _until(manifest: "BackupManifest", settings: Settings) -> str:
    from stratalog.cli.timestamps import format_time

    return format_time(manifest.restorable_until_ms(_window_ms(settings)))


def _as_dict(manifest: "BackupManifest", settings: Settings) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "created_ms": manifest.created_ms,
        "restorable_until_ms": manifest.restorable_until_ms(_window_ms(settings)),
        "cluster_id": str(manifest.cluster_id),
        "generation": manifest.generation,
        "control": manifest.control_url,
        "objects": manifest.objects_url,
        "rows": manifest.rows,
        "bytes": manifest.size_bytes,
        "tables": {member.table: member.rows for member in manifest.members},
    }
