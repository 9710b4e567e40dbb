"""`stratalog backup restore` and `stratalog control rebuild`, and the recovery behind them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from stratalog.cli.backup import Name, Place, opened_backups
from stratalog.cli.options import Config, Control, Data, Json, Objects, Set, examples, settings_from
from stratalog.cli.output import print_json, progress_line, say
from stratalog.clock import SYSTEM_CLOCK
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.recovery.completion import RecoveryStores
    from stratalog.recovery.report import RecoveryReport

SkipUnproven = Annotated[
    bool,
    typer.Option(
        "--skip-unproven",
        help="Go on without the records of offsets that cannot be proven. The offsets are noted as"
        " lost and are not used again.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only report the result; change nothing.")]
RESTORE_EPILOG = examples(
    "stratalog backup restore --config stratalog.toml --dry-run",
    "stratalog backup restore --objects s3://bucket/stratalog --control sqlite:restored.db",
)
REBUILD_EPILOG = examples(
    "stratalog control rebuild --config stratalog.toml --dry-run",
    "stratalog control rebuild --config stratalog.toml",
)
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def restore(
    name: Name = None,
    to: Place = None,
    skip_unproven: SkipUnproven = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Load a backup into an empty database, and recover newer records from the store.

    The database is the one of storage.control, SQLite or PostgreSQL, whatever the backup was made
    from. Stop all brokers and pipelines of the cluster first. After a crash run the command again.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    confirm_stopped(settings, yes or dry_run)
    print_report(asyncio.run(_restore(settings, name, to, skip_unproven, dry_run)), json)


def rebuild(
    skip_unproven: SkipUnproven = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Make a control plane from the object store, into an empty database.

    The newest backup in the store is the ground, if there is one. Otherwise topics, partitions and
    offsets come from the objects alone: configs, committed offsets and earlier deletes are lost.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    confirm_stopped(settings, yes or dry_run)
    print_report(asyncio.run(_rebuild(settings, skip_unproven, dry_run)), json)


def confirm_stopped(settings: Settings, yes: bool) -> None:
    if not yes:
        typer.confirm(
            f"Are all brokers and pipelines of the cluster in {settings.storage.objects} stopped?",
            abort=True,
        )


def print_report(report: "RecoveryReport", json: bool) -> None:
    if json:
        print_json(report.as_dict())
    else:
        for line in report.lines():
            say(escape(line))
        if not report.partitions:
            say("The store holds no records that the control plane does not know.")


async def _restore(
    settings: Settings, name: str | None, to: str | None, skip_unproven: bool, dry_run: bool
) -> "RecoveryReport":
    # Imported late: --help should not wait for databases and object stores.
    from stratalog.backup.catalog import find_backup
    from stratalog.backup.restore import preview_restore, restore_backup
    from stratalog.opening.cluster import opened_database

    async with _opened_stores(settings) as stores, opened_backups(settings, to) as source:
        manifest = await find_backup(source, name)
        with progress_line("restoring") as progress:
            if dry_run:
                return await preview_restore(manifest, source, stores, progress=progress.update)
            async with opened_database(settings) as database:
                return await restore_backup(
                    manifest,
                    source,
                    database,
                    stores,
                    skip_unproven=skip_unproven,
                    progress=progress.update,
                )


async def _rebuild(settings: Settings, skip_unproven: bool, dry_run: bool) -> "RecoveryReport":
    from stratalog.backup.restore import preview_rebuild, rebuild_control_plane
    from stratalog.opening.cluster import opened_database

    async with _opened_stores(settings) as stores:
        with progress_line("rebuilding") as progress:
            if dry_run:
                return await preview_rebuild(stores, progress=progress.update)
            async with opened_database(settings) as database:
                return await rebuild_control_plane(
                    database, stores, skip_unproven=skip_unproven, progress=progress.update
                )


async def accept_recovered(
    settings: Settings, skip_unproven: bool, dry_run: bool
) -> "RecoveryReport":
    from stratalog.opening.cluster import Rights, opened_cluster
    from stratalog.recovery.completion import complete_recovery
    from stratalog.recovery.recover import plan_recovery

    # The check of the stores would refuse: the marker may be ahead.
    async with (
        _opened_stores(settings) as stores,
        opened_cluster(settings, Rights.READ, checked=False) as cluster,
    ):
        control = cluster.control
        with progress_line("recovering") as progress:
            if dry_run:
                plan = await plan_recovery(
                    control, stores.objects, stores.tier, progress=progress.update
                )
                return plan.report
            return await complete_recovery(
                control,
                stores,
                await control.recoveries.begin("its own past"),
                skip_unproven=skip_unproven,
                progress=progress.update,
                may_create_markers=False,
            )


@asynccontextmanager
async def _opened_stores(settings: Settings) -> "AsyncIterator[RecoveryStores]":
    from stratalog.checks.remote_tier import RemoteTier
    from stratalog.opening.keys import load_private_keys
    from stratalog.opening.stores import ClusterStores, check_shared, store_addresses
    from stratalog.recovery.completion import RecoveryStores

    check_shared(settings)
    stores = ClusterStores(store_addresses(settings), clock=SYSTEM_CLOCK)
    try:
        tier = RemoteTier(
            stores=stores.segments,
            keys=load_private_keys(settings.remote),
            prefix=settings.remote.prefix,
        )
        yield RecoveryStores(objects=stores.objects, tier=tier)
    finally:
        await stores.close()
