"""`stratalog segments`: list segments, adopt those of a Kafka cluster, tell Kafka about ours."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from stratalog.cli import segments_find, segments_import
from stratalog.cli.control import opened_control, topic_named
from stratalog.cli.errors import NoSuchPartitionError
from stratalog.cli.options import (
    Config,
    Control,
    Data,
    Json,
    Objects,
    Set,
    examples,
    prose,
    settings_from,
)
from stratalog.cli.output import counted, note, print_json, print_table, say
from stratalog.cli.segments_import import KafkaBootstrap, KafkaOption
from stratalog.cli.topic import Topic, parse_pairs
from stratalog.clock import SYSTEM_CLOCK
from stratalog.ids import Offset, PartitionIndex, TopicPartition, kafka_base64
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.control.plane import ControlPlane
    from stratalog.control.segments.model import Segment
    from stratalog.segment.metadata import SegmentMetadata

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="List the segments of topics, adopt those of a Kafka cluster, tell Kafka about ours.",
    epilog=examples(
        "stratalog segments list orders",
        "stratalog segments find orders 0 5000",
        "stratalog segments import orders --kafka-bootstrap kafka:9092 --kafka-objects s3://tiered",
        "stratalog segments export orders --output metadata.jsonl",
        "stratalog segments own orders",
    ),
)
app.command("import", help=prose(segments_import.import_), epilog=segments_import.EPILOG)(
    segments_import.import_
)
app.command("find", help=prose(segments_find.find), epilog=segments_find.EPILOG)(segments_find.find)

_PAGE = 1000
_KAFKA_CONFIGS = "remote.log.copy.disable=true, retention.ms=-1 and retention.bytes=-1"


@app.command(
    "list",
    epilog=examples(
        "stratalog segments list orders",
        "stratalog segments list orders --partition 3 --json",
        "stratalog segments list orders --all",
    ),
)
def list_(
    topic: Topic,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="This partition only.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that are not yet, or no more, a part of it.")
    ] = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Show the segments of a topic: their offsets, sizes, states and where they lie."""
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    found = asyncio.run(_list(settings, topic, partition, everything=everything))
    rows = [_as_dict(segment) for segment in found]
    if json:
        print_json(rows)
    elif rows:
        print_table([name.replace("_", " ") for name in rows[0]], [list(r.values()) for r in rows])
    else:
        note(f"{escape(topic)} has no segments.")


@app.command(
    epilog=examples(
        "stratalog segments export orders --output metadata.jsonl",
        "stratalog segments export orders --kafka-bootstrap kafka:9092",
    )
)
def export(
    topic: Topic,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Not given, they are printed."),
    ] = None,
    kafka_bootstrap: KafkaBootstrap = None,
    kafka_option: KafkaOption = None,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Write the records by which Kafka knows a topic's segments: for each, started and finished.

    A file holds one JSON object per line, as `stratalog segments import --dump` and `stratalog
    produce --json` take them. With --kafka-bootstrap they go to that cluster's metadata topic,
    whose brokers then read these segments if they have the topic with the same id, and the objects
    in the plugin's store. The objects stay this cluster's: keep Kafka from deleting them, with
    remote.log.copy.disable=true, retention.ms=-1 and retention.bytes=-1 on its topic.
    """
    if output is not None and kafka_bootstrap is not None:
        raise typer.BadParameter("only one of --output and --kafka-bootstrap")
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    records = asyncio.run(_export(settings, topic))
    if kafka_bootstrap is not None:
        _send(records, kafka_bootstrap, dict(parse_pairs(kafka_option, "--kafka-option")))
        to = kafka_bootstrap
    else:
        _write(records, output)
        to = "stdout" if output is None else str(output)
    about = counted(len(records) // 2, "segment")
    note(f"{counted(len(records), 'record')} about {about} to {escape(to)}.")
    note(
        f"[yellow]note:[/] on the topic in Kafka set {_KAFKA_CONFIGS}: otherwise Kafka deletes"
        " objects that are read here."
    )


@app.command(epilog=examples("stratalog segments own orders", "stratalog segments own orders -y"))
def own(
    topic: Topic,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Take ownership of the objects of an adopted topic: from now on they are deleted here.

    Until then an adopted topic's objects stay when its records expire or the topic is deleted,
    because another cluster may still read them. There is no way back.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    if not yes:
        question = (
            f"From now on the objects of {topic} are deleted when its records expire or the topic"
            " is deleted. Has Kafka let go of them for good?"
        )
        typer.confirm(question, abort=True)
    count = asyncio.run(_own(settings, topic))
    say(f"Took ownership of {counted(count, 'segment')} of {escape(topic)}.")


@app.command(epilog=examples("stratalog segments moved --config broker.toml"))
def moved(
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Note that the cluster's own segments lie where these settings say from now on.

    For those who have copied them from beside the blocks into a store of their own
    (remote.objects), or back, with all brokers and pipelines stopped. It looks for each of them
    there first.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    count = asyncio.run(_note_moved(settings))
    say(f"Found {counted(count, 'segment')}, and noted where they are.")


async def _note_moved(settings: Settings) -> int:
    # Imported late: --help should not wait for databases and object stores.
    from stratalog.checks.remote_tier import open_remote_tier
    from stratalog.objects.open import open_store
    from stratalog.opening.segment_store import note_moved

    storage, clock = settings.storage, SYSTEM_CLOCK
    async with opened_control(settings) as control:
        store = open_store(storage.objects, storage.object_options, clock=clock)
        try:
            async with open_remote_tier(settings, store, clock) as tier:
                return await note_moved(control, store, tier.stores.own)
        finally:
            await store.close()


async def _list(
    settings: Settings, name: str, partition: int | None, *, everything: bool
) -> list["Segment"]:
    async with opened_control(settings) as control:
        topic = await topic_named(control, name)
        if partition is not None and partition >= topic.partition_count:
            raise NoSuchPartitionError(
                f"{name} has no partition {partition}, only 0 to {topic.partition_count - 1}"
            )
        wanted = range(topic.partition_count) if partition is None else [partition]
        keys = [TopicPartition(topic.id, PartitionIndex(index)) for index in wanted]
        if everything:
            found = [one async for one in _all(control) if one.topic_partition in keys]
            return sorted(found, key=lambda one: (one.partition, one.base_offset, one.added_ms))
        return [segment for key in keys async for segment in _chain(control.segments, key)]


async def _chain(metadata: "SegmentMetadata", key: TopicPartition) -> AsyncIterator["Segment"]:
    after: Offset | None = None
    while page := await metadata.chained(key, after=after, limit=_PAGE):
        for segment in page:
            yield segment
        after = page[-1].last_offset


async def _all(control: "ControlPlane") -> AsyncIterator["Segment"]:
    after = None
    while page := await control.segments.all(after=after, limit=_PAGE):
        for segment in page:
            yield segment
        after = page[-1].segment_id


async def _export(settings: Settings, name: str) -> list[tuple[TopicPartition, bytes]]:
    from stratalog.segment.remote_log_metadata import export_records

    async with opened_control(settings) as control:
        topic = await topic_named(control, name)
        await control.segments.mark_exported(topic.id)
        keys = [TopicPartition(topic.id, PartitionIndex(i)) for i in range(topic.partition_count)]
        return [
            (key, value)
            for key in keys
            async for segment in _chain(control.segments, key)
            for value in export_records(segment, name)
        ]


def _write(records: list[tuple[TopicPartition, bytes]], output: Path | None) -> None:
    from stratalog.cli.metadata_dump import dump_line
    from stratalog.segment.remote_log_metadata import metadata_partition

    lines = [dump_line(metadata_partition(key), value) + "\n" for key, value in records]
    if output is None:
        typer.echo("".join(lines), nl=False)
    else:
        output.write_text("".join(lines))


def _send(
    records: list[tuple[TopicPartition, bytes]], bootstrap: str, options: dict[str, str]
) -> None:
    from stratalog.cli.kafka_cluster import KafkaCluster
    from stratalog.segment.remote_log_metadata import metadata_partition

    cluster = KafkaCluster(bootstrap, options)
    count = cluster.metadata_partition_count()
    cluster.append_metadata([(metadata_partition(key, count), value) for key, value in records])


async def _own(settings: Settings, name: str) -> int:
    async with opened_control(settings) as control:
        return await control.segments.own((await topic_named(control, name)).id)


def _as_dict(segment: "Segment") -> dict[str, object]:
    return {
        "partition": segment.partition,
        "first": segment.base_offset,
        "last": segment.last_offset,
        "bytes": segment.size_bytes,
        "stored_bytes": None if segment.uploaded is None else segment.uploaded.stored_bytes,
        "state": segment.state.name.lower().replace("_", "-"),
        "chained": segment.chained,
        "owned": segment.owned,
        "segment_id": kafka_base64(segment.segment_id),
        "store": segment.store_url or "own",
        "key": segment.key_base,
    }
