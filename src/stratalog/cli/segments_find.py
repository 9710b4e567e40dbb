"""`stratalog segments find`: the tier and the object that hold an offset."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from stratalog.admin.principal import ANONYMOUS
from stratalog.cli.admin import opened_admin
from stratalog.cli.options import Config, Control, Data, Json, Objects, Set, examples, settings_from
from stratalog.cli.output import print_json, say
from stratalog.cli.topic import Topic
from stratalog.ids import Offset, PartitionIndex
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.admin.segments import StoredRange

EPILOG = examples(
    "stratalog segments find orders 0 5000",
    "stratalog segments find orders 0 5000 --json",
)


def find(
    topic: Topic,
    partition: Annotated[
        int,
        typer.Argument(
            min=0, metavar="PARTITION", show_default=False, help="The partition's number."
        ),
    ],
    offset: Annotated[
        int,
        typer.Argument(min=0, metavar="OFFSET", show_default=False, help="The offset to look for."),
    ],
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Show the tier and the object that hold an offset, and the leader epoch of its record.

    The tier is remote (segments), block, local, or none for an offset that is deleted or not yet
    written.
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
    async with opened_admin(settings) as admin:
        found = await admin.segments.locate(ANONYMOUS, name, partition, offset)
    return {
        "tier": found.tier.value,
        "log_start": found.state.log_start,
        "high_watermark": found.state.high_watermark,
        **({} if found.stored is None else _as_dict(found.stored)),
    }


def _as_dict(stored: "StoredRange") -> dict[str, object]:
    described: dict[str, object] = {
        "leader_epoch": stored.leader_epoch,
        "first": stored.first,
        "last": stored.last,
        "store": stored.store_url or "own",
        "object": stored.object_key,
    }
    if stored.byte_offset is not None:
        described |= {"byte_offset": stored.byte_offset, "byte_size": stored.byte_size}
    return described
