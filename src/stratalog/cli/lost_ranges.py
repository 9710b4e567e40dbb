"""`stratalog topic mark-lost` and `topic lost-ranges`."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from stratalog.admin.entries import PartitionName
from stratalog.admin.principal import ANONYMOUS
from stratalog.cli.admin import admin_of, opened_admin
from stratalog.cli.options import (
    Config,
    Control,
    Data,
    Json,
    Objects,
    Set,
    examples,
    settings_from,
)
from stratalog.cli.output import counted, note, print_json, print_table, say
from stratalog.cli.timestamps import format_time
from stratalog.ids import Offset
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.checks.lost_ranges import LossPlan
    from stratalog.control.lost.model import LostRange

MARK_EPILOG = examples(
    "stratalog topic mark-lost orders 0 5000 5100 --reason 'bucket lost an object' --dry-run",
    "stratalog topic mark-lost orders 0 5000 5100 --reason 'bucket lost an object'",
)
LIST_EPILOG = examples("stratalog topic lost-ranges orders --data ./data")

Topic = Annotated[str, typer.Argument(help="The topic's name.")]
_SHOWN = 10
"""Faults that are printed. More would not help."""


def mark_lost(
    topic: Topic,
    partition: Annotated[int, typer.Argument(min=0, metavar="PARTITION")],
    first: Annotated[int, typer.Argument(min=0, metavar="FIRST", help="The first lost offset.")],
    end: Annotated[int, typer.Argument(min=1, metavar="END", help="The offset behind the range.")],
    reason: Annotated[str, typer.Option("--reason", help="For the record of the loss.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which offsets would be marked.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also give up records that can be read.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Give up records that the store has lost, so that consumers go on behind them. This is final.

    The offsets stay: they have no records from then on. The range is widened to whole rows, which
    are about a megabyte at the most. Only ranges in blocks can be marked. For an object as a whole,
    also of a segment, see `stratalog store mark-lost`.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    name = PartitionName(topic, partition)
    plan = asyncio.run(_mark(settings, name, Offset(first), Offset(end)))
    _show(plan)
    if dry_run:
        return
    if not yes:
        span = f"{plan.first_offset} to {plan.end_offset - 1}"
        typer.confirm(f"Give up offsets {span} of partition {partition} of {topic}?", abort=True)
    asyncio.run(
        _mark(settings, name, plan.first_offset, plan.end_offset, reason=reason, force=force)
    )
    say(f"Marked {counted(plan.end_offset - plan.first_offset, 'offset')} as lost.")


def lost_ranges(
    topic: Topic,
    json: Json = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """List the ranges of a topic that are marked as lost."""
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    lines = [
        {
            "partition": lost.partition,
            "first": lost.first_offset,
            "end": lost.end_offset,
            "noted": format_time(lost.noted_ms),
            "by": lost.noted_by,
            "reason": lost.reason,
            "objects": list(lost.objects) if json else len(lost.objects),
        }
        for lost in asyncio.run(_all(settings, topic))
    ]
    if json:
        print_json(lines)
    elif lines:
        print_table(list(lines[0]), [list(line.values()) for line in lines])
    else:
        note("No range is marked as lost.")


def _show(plan: "LossPlan") -> None:
    say(
        f"Offsets {plan.first_offset} to {plan.end_offset - 1}:"
        f" {counted(len(plan.rows), 'row')} with {counted(plan.size_bytes, 'byte')},"
        f" {len(plan.readable)} of them can be read."
    )
    for fault in plan.faults[:_SHOWN]:
        note(escape(fault))


async def _all(settings: Settings, topic: str) -> "list[LostRange]":
    async with opened_admin(settings) as admin:
        return await admin.lost_ranges.all(ANONYMOUS, topic)


async def _mark(
    settings: Settings,
    name: PartitionName,
    first: Offset,
    end: Offset,
    *,
    reason: str | None = None,
    force: bool = False,
) -> "LossPlan":
    """Plan the range, and with a reason also mark it."""
    # Imported late: --help should not wait for databases and object stores.
    from stratalog.opening.cluster import Rights, opened_cluster

    async with opened_cluster(settings, Rights.CHANGE) as cluster:
        lost = admin_of(cluster.control, settings).lost_ranges
        plan = await lost.plan(ANONYMOUS, cluster.objects, name, first, end)
        if reason is not None:
            await lost.mark(
                ANONYMOUS, cluster.objects, name.topic, plan, reason=reason, force=force
            )
        return plan
