"""`stratalog segments find`: which tier, and which object, holds an offset."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from stratalog.cli.control import opened_control, topic_named
from stratalog.cli.errors import NoSuchPartitionError
from stratalog.cli.options import Config, Control, Data, Json, Objects, Set, examples, settings_from
from stratalog.cli.output import print_json, say
from stratalog.cli.topic import Topic
from stratalog.ids import Offset, PartitionIndex, TopicPartition
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.control.plane import ControlPlane

EPILOG = examples(
    "stratalog segments find orders 0 5000",
    "stratalog segments find orders 0 5000 --json",
)


def find(
    topic: Topic,
    partition: Annotated[
        int, typer.Argument(min=0, metavar="PARTITION", show_default=False, help="Its number.")
    ],
    offset: Annotated[
        int, typer.Argument(min=0, metavar="OFFSET", show_default=False, help="Of a record.")
    ],
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Show which tier holds an offset, in which leader epoch it was written, and where it lies.

    The tier is remote (segments), block, local, or none: deleted, or not yet written.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    place = PartitionIndex(partition)
    found = asyncio.run(_find(settings, topic, place, Offset(offset)))
    if json:
        print_json(found)
        return
    for name, value in found.items():
        say(escape(f"{name.replace('_', ' ')}: {value}"))


async def _find(
    settings: Settings, name: str, partition: PartitionIndex, offset: Offset
) -> dict[str, object]:
    from stratalog.control.topics.migration_state import Tier, tier_of

    async with opened_control(settings) as control:
        topic = await topic_named(control, name)
        key = TopicPartition(topic.id, partition)
        state = (await control.log.partitions([key])).get(key)
        if state is None:
            raise NoSuchPartitionError(
                f"{name} has no partition {partition}, only 0 to {topic.partition_count - 1}"
            )
        tier = tier_of(state, offset)
        held: dict[str, object] = {}
        if tier is Tier.REMOTE:
            held = await _in_segments(control, key, offset)
        elif tier is Tier.BLOCK:
            held = await _in_blocks(control, key, offset)
    return {
        "tier": tier.value,
        "log_start": state.log_start,
        "high_watermark": state.high_watermark,
        **held,
    }


async def _in_segments(
    control: "ControlPlane", key: TopicPartition, offset: Offset
) -> dict[str, object]:
    from stratalog.control.segments.lifecycle import epoch_at
    from stratalog.segment.object_keys import LOG_SUFFIX

    epoch = epoch_at(await control.log.epochs(key), offset)
    segment = None if epoch is None else await control.segments.find(key, epoch, offset)
    if segment is None:
        return {}
    return {
        "leader_epoch": epoch,
        "first": segment.base_offset,
        "last": segment.last_offset,
        "store": segment.store_url or "own",
        "object": segment.key_base + LOG_SUFFIX,
    }


async def _in_blocks(
    control: "ControlPlane", key: TopicPartition, offset: Offset
) -> dict[str, object]:
    rows = await control.log.all_coordinates(key, after=Offset(offset - 1), limit=1)
    if not rows or rows[0].base_offset > offset:
        return {}
    [row] = rows
    return {
        "leader_epoch": row.leader_epoch,
        "first": row.base_offset,
        "last": row.last_offset,
        "store": "own",
        "object": row.object_key,
        "byte_offset": row.byte_offset,
        "byte_size": row.byte_size,
    }
