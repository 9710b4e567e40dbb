"""`stratalog store mark-lost`."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from stratalog.admin.principal import ANONYMOUS
from stratalog.cli.admin import admin_of
from stratalog.cli.options import Config, Control, Data, Objects, Set, examples, settings_from
from stratalog.cli.output import counted, note, say
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.checks.lost_objects import LostPart
    from stratalog.checks.lost_segments import SegmentLoss

MARK_OBJECT_EPILOG = examples(
    "stratalog store mark-lost blocks/2026/11/18/20/019a98c3-5a00-7c41-9b52-8f2a6d1e4c07"
    " --reason 'deleted by hand' --dry-run",
)
_SHOWN = 20
"""Ranges and faults that are printed. A block may have thousands."""


def mark_object_lost(
    key: Annotated[str, typer.Argument(help="The object's key in the store.")],
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
    """Give up all records of an object that the store has lost, in all topics. This is final.

    The offsets stay: they have no records from then on, and consumers go on behind them. Of a
    block or a split file it is `topic mark-lost` for each range of offsets in it, and can be
    repeated after a failure. Of a segment, give the key of its log.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    loss = asyncio.run(_mark(settings, key))
    _show(loss)
    if dry_run:
        return
    if not yes:
        typer.confirm(f"Give up {_extent(loss)}?", abort=True)
    loss = asyncio.run(_mark(settings, key, reason=reason, force=force))
    say(f"Marked {_extent(loss)} as lost.")


def _extent(loss: "list[LostPart] | SegmentLoss") -> str:
    if not isinstance(loss, list):
        count = loss.segment.end_offset - loss.segment.base_offset
        return f"{counted(count, 'offset')} of a segment of {escape(loss.topic_name)}"
    parts = loss
    offsets = sum(plan.end_offset - plan.first_offset for _, plan in parts)
    topics = len({topic for topic, _ in parts})
    return f"{counted(offsets, 'offset')} of {counted(topics, 'topic')}"


def _show(loss: "list[LostPart] | SegmentLoss") -> None:
    if not isinstance(loss, list):
        segment = loss.segment
        say(
            f"{escape(loss.topic_name)}-{segment.partition}, offsets {segment.base_offset} to"
            f" {segment.last_offset}: a segment with {counted(segment.size_bytes, 'byte')}, whose"
            f" log is {'' if loss.has_log else 'not '}in the store."
        )
        return
    parts = loss
    for topic, plan in parts[:_SHOWN]:
        say(
            f"{escape(topic)}-{plan.partition.partition}, offsets {plan.first_offset} to"
            f" {plan.end_offset - 1}: {counted(len(plan.rows), 'row')} with"
            f" {counted(plan.size_bytes, 'byte')}, {len(plan.readable)} of them can be read."
        )
    if len(parts) > _SHOWN:
        say(f"… and {counted(len(parts) - _SHOWN, 'more range')}")
    for fault in [fault for _, plan in parts for fault in plan.faults][:_SHOWN]:
        note(escape(fault))


async def _mark(
    settings: Settings, key: str, *, reason: str | None = None, force: bool = False
) -> "list[LostPart] | SegmentLoss":
    """Plan the offsets of the object, and with a reason also mark them."""
    # Imported late: --help should not wait for databases and object stores.
    from stratalog.checks.remote_tier import RemoteTier
    from stratalog.opening.cluster import Rights, opened_cluster
    from stratalog.opening.workers import encoding_of
    from stratalog.segment.keys import parse_segment_key

    async with opened_cluster(settings, Rights.CHANGE) as cluster:
        lost = admin_of(cluster.control, settings).lost_ranges
        prefix = settings.remote.prefix
        if parse_segment_key(key, prefix) is not None:
            tier = RemoteTier(stores=cluster.segments, keys=cluster.keys, prefix=prefix)
            loss = await lost.plan_segment(ANONYMOUS, tier, key)
            if reason is not None:
                encoding = encoding_of(settings.remote)
                await lost.mark_segment(ANONYMOUS, tier, encoding, loss, reason=reason, force=force)
            return loss
        parts = await lost.plan_object(ANONYMOUS, cluster.objects, key)
        if reason is not None:
            await lost.mark_parts(ANONYMOUS, cluster.objects, parts, reason=reason, force=force)
        return parts
