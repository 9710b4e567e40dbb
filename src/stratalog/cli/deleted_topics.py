"""`stratalog topic undelete` and `topic purge`: deleted topics that are still kept."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from stratalog.admin.principal import ANONYMOUS
from stratalog.cli.admin import opened_admin, opened_cluster_admin
from stratalog.cli.options import Config, Control, Data, Objects, Set, examples, settings_from
from stratalog.cli.output import counted, note, print_json, print_table, say
from stratalog.cli.timestamps import format_time
from stratalog.ids import kafka_base64
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.control.topics.model import DeletedTopic

UNDELETE_EPILOG = examples(
    "stratalog topic undelete orders --data ./data",
    "stratalog topic undelete orders --as orders-of-monday --data ./data",
)
PURGE_EPILOG = examples("stratalog topic purge orders --data ./data")

Deleted = Annotated[str, typer.Argument(metavar="TOPIC", help="The name that the topic had.")]
Id = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="The topic's id, if several had the name."),
]


def undelete(
    topic: Deleted,
    id_: Id = None,
    as_: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="A new name, if the old one is taken again."),
    ] = None,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Bring a deleted topic back, with its records, offsets, configs and the offsets of its groups.

    A deleted topic is kept for `janitor.deleted_topic_window_ms`, a day by default.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    asyncio.run(_undelete(settings, topic, id_, as_))
    say(f"Undeleted topic {escape(topic)}" + (f" as {escape(as_)}." if as_ else "."))


def purge(
    topic: Deleted,
    id_: Id = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Give a deleted topic up before its window ends, to free its space. This is final.

    The janitor of a broker removes it with its next run.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    found = asyncio.run(_find(settings, topic, id_))
    if not yes:
        size = f"{counted(found.size_bytes, 'byte')} and {counted(found.offsets, 'offset')}"
        typer.confirm(f"Remove deleted topic {topic} with {size} for good?", abort=True)
    asyncio.run(_purge(settings, topic, kafka_base64(found.id)))
    say(f"Topic {escape(topic)} is removed with the janitor's next run.")


def list_deleted(settings: Settings, *, json: bool) -> None:
    topics, window_ms = asyncio.run(_all(settings))
    lines = [
        {
            "topic": topic.name,
            "id": kafka_base64(topic.id),
            "partitions": topic.partition_count,
            "offsets": topic.offsets,
            "bytes": topic.size_bytes,
            "deleted": format_time(topic.deleted_ms),
            "kept_until": "being removed"
            if topic.purge_ms is not None
            else format_time(topic.deleted_ms + window_ms),
        }
        for topic in topics
    ]
    if json:
        print_json(lines)
    elif lines:
        titles = [name.replace("_", " ") for name in lines[0]]
        print_table(titles, [list(line.values()) for line in lines])
    else:
        note("No deleted topic is kept.")


async def _all(settings: Settings) -> "tuple[list[DeletedTopic], int]":
    """Return the deleted topics, and how long the cluster keeps them."""
    async with opened_admin(settings) as admin:
        in_force = await admin.cluster_settings.in_force(settings)
        topics = await admin.deleted_topics.all(ANONYMOUS)
        return topics, in_force.janitor.deleted_topic_window_ms


async def _find(settings: Settings, name: str, topic_id: str | None) -> "DeletedTopic":
    async with opened_admin(settings) as admin:
        return await admin.deleted_topics.find(ANONYMOUS, name, topic_id)


async def _undelete(
    settings: Settings, name: str, topic_id: str | None, new_name: str | None
) -> None:
    # The store gets a note, so that the topic stays undeleted after a restore of the control plane.
    async with opened_cluster_admin(settings) as admin:
        found = await admin.deleted_topics.find(ANONYMOUS, name, topic_id)
        await admin.deleted_topics.undelete(ANONYMOUS, found, name=new_name)


async def _purge(settings: Settings, name: str, topic_id: str) -> None:
    async with opened_admin(settings) as admin:
        found = await admin.deleted_topics.find(ANONYMOUS, name, topic_id)
        await admin.deleted_topics.purge(ANONYMOUS, [found])
