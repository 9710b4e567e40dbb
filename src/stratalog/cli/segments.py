"""`stratalog segments`: list segments, adopt a Kafka cluster's, export ours to Kafka."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from stratalog.admin.principal import ANONYMOUS
from stratalog.cli import segments_find, segments_import
from stratalog.cli.admin import admin_of, opened_admin
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
from stratalog.ids import PartitionIndex, kafka_base64
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.admin.segments import ExportedRecord
    from stratalog.control.segments.model import Segment

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="List segments, adopt the segments of a Kafka cluster, export segments to Kafka.",
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
    unchained: Annotated[
        bool,
        typer.Option("--all", help="Also list segments that do not, or no longer, serve reads."),
    ] = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Show the segments of a topic: offsets, sizes, states and location."""
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    found = asyncio.run(_list(settings, topic, partition, unchained=unchained))
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
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the records here. Default: standard output.",
        ),
    ] = None,
    kafka_bootstrap: KafkaBootstrap = None,
    kafka_option: KafkaOption = None,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Write the records that tell Kafka about a topic's segments, two for each segment.

    A file holds one JSON object per line, as `stratalog segments import --dump` and `stratalog
    produce --json` read them. With --kafka-bootstrap the records go to the metadata topic of that
    cluster. Its brokers then read the segments, if they have the topic under the same id and the
    objects in the store of the plugin. The objects still belong to this cluster: keep Kafka from
    deleting them, with remote.log.copy.disable=true, retention.ms=-1 and retention.bytes=-1 on its
    topic.
    """
    if output is not None and kafka_bootstrap is not None:
        raise typer.BadParameter("give --output or --kafka-bootstrap, not both")
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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Take ownership of the objects of an adopted topic: from now on they are deleted here.

    Without ownership the objects stay when their records expire or the topic is deleted, because
    another cluster may still read them. Ownership cannot be given back.
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
    """Note that the cluster's own segments were moved to the store that these settings name.

    Run it after you have copied the segments into a store of their own (remote.objects), or back
    beside the blocks, with all brokers and pipelines stopped. It first checks that every segment
    is there.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    count = asyncio.run(_note_moved(settings))
    say(f"Found {counted(count, 'segment')}, and noted the store.")


async def _note_moved(settings: Settings) -> int:
    # Imported late: --help should not wait for databases and object stores.
    from stratalog.opening.cluster import Rights, opened_cluster

    # The check of the stores would refuse, until the new place is noted.
    async with opened_cluster(settings, Rights.READ, checked=False) as cluster:
        admin = admin_of(cluster.control, settings)
        return await admin.segments.note_moved(ANONYMOUS, cluster.objects, cluster.segments.own)


async def _list(
    settings: Settings, name: str, partition: int | None, *, unchained: bool
) -> "list[Segment]":
    index = None if partition is None else PartitionIndex(partition)
    async with opened_admin(settings) as admin:
        return await admin.segments.list_segments(ANONYMOUS, name, index, unchained=unchained)


async def _export(settings: Settings, name: str) -> "list[ExportedRecord]":
    async with opened_admin(settings) as admin:
        return await admin.segments.export(ANONYMOUS, name)


async def _own(settings: Settings, name: str) -> int:
    async with opened_admin(settings) as admin:
        return await admin.segments.own(ANONYMOUS, name)


def _write(records: "Sequence[ExportedRecord]", output: Path | None) -> None:
    from stratalog.cli.metadata_dump import dump_line
    from stratalog.segment.remote_log_metadata import metadata_partition

    lines = [dump_line(metadata_partition(one.partition), one.value) + "\n" for one in records]
    if output is None:
        typer.echo("".join(lines), nl=False)
    else:
        output.write_text("".join(lines))


def _send(records: "Sequence[ExportedRecord]", bootstrap: str, options: dict[str, str]) -> None:
    from stratalog.cli.foreign_cluster import ForeignCluster
    from stratalog.segment.remote_log_metadata import metadata_partition

    cluster = ForeignCluster(bootstrap, options)
    count = cluster.metadata_partition_count()
    cluster.append_metadata(
        [(metadata_partition(one.partition, count), one.value) for one in records]
    )


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
