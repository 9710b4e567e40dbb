"""`--dry-run` of deletions and of a lowered retention, and `stratalog topic delete-records`."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from confluent_kafka import TopicPartition
from rich.markup import escape

from stratalog.admin.entries import PartitionName
from stratalog.admin.principal import ANONYMOUS
from stratalog.cli.admin import opened_admin
from stratalog.cli.client import REQUEST_SECONDS, KafkaAdmin, as_our_error
from stratalog.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Config,
    Control,
    Data,
    Objects,
    Set,
    examples,
    settings_from,
)
from stratalog.cli.output import counted, say
from stratalog.cli.timestamps import format_time
from stratalog.ids import Offset
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.admin.dry_runs import EarlierLimit
    from stratalog.control.log.dry_runs import WouldGo

DELETE_RECORDS_EPILOG = examples(
    "stratalog topic delete-records orders 0 5000 --dry-run --data ./data",
    "stratalog topic delete-records orders 0 5000",
)

DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Only say how much would go. Needs the control plane: --data, --control."
    ),
]


def delete_records(
    topic: Annotated[str, typer.Argument(help="The topic's name.")],
    partition: Annotated[int, typer.Argument(min=0, metavar="PARTITION")],
    before: Annotated[
        int, typer.Argument(min=0, metavar="BEFORE", help="The first offset that remains.")
    ],
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Delete the records of a partition before an offset. This is final."""
    if dry_run:
        settings = settings_from(config, overrides, data=data, objects=objects, control=control)
        name = PartitionName(topic, partition)
        show(asyncio.run(_records(settings, name, Offset(before))))
        return
    if not yes:
        question = f"Delete the records before offset {before} of partition {partition} of {topic}?"
        typer.confirm(question, abort=True)
    admin = KafkaAdmin(bootstrap)
    [done] = admin.client.delete_records([TopicPartition(topic, partition, before)]).values()
    error = done.exception(REQUEST_SECONDS)
    if error is not None:
        raise as_our_error(error.args[0], bootstrap)
    say(f"Partition {partition} of {escape(topic)} begins at {done.result().low_watermark}.")


def dry_run_deletion(settings: Settings, topic: str) -> None:
    show(asyncio.run(_deletion(settings, topic)))


def dry_run_retention(settings: Settings, topic: str, changes: Mapping[str, str | None]) -> None:
    show(asyncio.run(_retention(settings, topic, changes)))


def show_earlier_limits(settings: Settings, topic: str) -> None:
    for limit in asyncio.run(_earlier_limits(settings, topic)):
        was = "the default" if limit.value is None else limit.value
        say(
            f"{limit.name} was {escape(was)} until {format_time(limit.until_ms)}, which counts"
            f" until {format_time(limit.counts_until_ms)}"
        )


def show(would_go: "WouldGo") -> None:
    least = "" if would_go.complete else "at least "
    text = f"Would go: {least}{counted(would_go.offsets, 'offset')}, "
    text += f"{least}{counted(would_go.size_bytes, 'byte')}"
    if would_go.oldest_ms is not None and would_go.newest_ms is not None:
        text += f", from {format_time(would_go.oldest_ms)} to {format_time(would_go.newest_ms)}"
    say(text + ".")


async def _records(settings: Settings, name: PartitionName, before: Offset) -> "WouldGo":
    async with opened_admin(settings) as admin:
        return await admin.dry_runs.record_deletion(ANONYMOUS, name, before)


async def _deletion(settings: Settings, topic: str) -> "WouldGo":
    async with opened_admin(settings) as admin:
        return await admin.dry_runs.topic_deletion(ANONYMOUS, topic)


async def _retention(
    settings: Settings, topic: str, changes: Mapping[str, str | None]
) -> "WouldGo":
    async with opened_admin(settings) as admin:
        defaults = (await admin.cluster_settings.in_force(settings)).topic
        return await admin.dry_runs.retention(ANONYMOUS, topic, changes, defaults=defaults)


async def _earlier_limits(settings: Settings, topic: str) -> "list[EarlierLimit]":
    async with opened_admin(settings) as admin:
        in_force = await admin.cluster_settings.in_force(settings)
        return await admin.dry_runs.earlier_limits(
            ANONYMOUS, topic, window_ms=in_force.janitor.retention_window_ms
        )
