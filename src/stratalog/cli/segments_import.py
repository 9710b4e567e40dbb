"""`stratalog segments import`: adopt a tiered topic of a Kafka cluster where its objects lie."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from stratalog.cli.control import opened_control
from stratalog.cli.errors import BadOptionError, NotSealedError
from stratalog.cli.options import Config, Control, Data, Json, Objects, Set, examples, settings_from
from stratalog.cli.output import counted, note, print_json, print_table, progress_line, say
from stratalog.cli.topic import Topic, parse_pairs
from stratalog.clock import SYSTEM_CLOCK
from stratalog.errors import CallError
from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition, kafka_base64
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.objects.store import ObjectStore
    from stratalog.topic.adopt import AdoptionPlan
    from stratalog.topic.adoption_source import SourceTopic

EPILOG = examples(
    "stratalog segments import orders --kafka-bootstrap kafka:9092 --kafka-objects s3://tiered "
    "--dry-run",
    "stratalog segments import orders --kafka-bootstrap kafka:9092 --kafka-objects s3://tiered "
    "--key-prefix prod/",
    "stratalog segments import orders --dump metadata.jsonl --kafka-objects s3://tiered --sealed",
)

_KEPT_FOR_EVER = {"retention.ms": "-1"}
"""A dump does not tell how long the topic keeps its records. The default would be a week."""

_MANY_DIGITS = 100
"""No number that means something has as many, zeros in front of it included."""

KafkaBootstrap = Annotated[
    str | None,
    typer.Option(
        "--kafka-bootstrap", metavar="HOST:PORT", help="The Kafka cluster, if it is running."
    ),
]
KafkaOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka-option",
        metavar="NAME=VALUE",
        help="An option of its client, such as security.protocol=SASL_SSL. Repeatable.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The source, and what there is to say about how it was found."""

    source: "SourceTopic"
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the options say beside where the source is."""

    lose_untiered: bool
    accept_open_transactions: bool
    read_only: bool
    dry_run: bool


def import_(
    topic: Topic,
    kafka_objects: Annotated[
        str,
        typer.Option(
            "--kafka-objects", metavar="URL", help="The store that holds the plugin's objects."
        ),
    ],
    kafka_bootstrap: KafkaBootstrap = None,
    kafka_option: KafkaOption = None,
    dump: Annotated[
        Path | None,
        typer.Option(
            "--dump",
            metavar="FILE",
            help="Records of __remote_log_metadata, instead of a running cluster.",
        ),
    ] = None,
    key_prefix: Annotated[
        str, typer.Option("--key-prefix", metavar="TEXT", help="The plugin's key.prefix.")
    ] = "",
    sealed: Annotated[
        bool,
        typer.Option(
            "--sealed", help="With --dump: nobody writes to the topic, and all of it is tiered."
        ),
    ] = False,
    lose_untiered: Annotated[
        bool, typer.Option("--lose-untiered", help="Leave records behind that are in no segment.")
    ] = False,
    accept_open_transactions: Annotated[
        bool,
        typer.Option(
            "--accept-open-transactions",
            help="Take the records of transactions that did not end as committed.",
        ),
    ] = False,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="With --dump: how many partitions the topic has."
        ),
    ] = None,
    log_start: Annotated[
        list[str] | None,
        typer.Option(
            "--log-start",
            metavar="PARTITION=OFFSET",
            help="With --dump: where a partition begins. Repeatable.",
        ),
    ] = None,
    topic_id: Annotated[
        str | None,
        typer.Option("--topic-id", metavar="ID", help="With --dump: which topic of that name."),
    ] = None,
    topic_config: Annotated[
        list[str] | None,
        typer.Option(
            "--topic-config", metavar="NAME=VALUE", help="A config for the topic. Repeatable."
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Do not open the topic for writes yet.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and show it, change nothing.")
    ] = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Adopt a tiered topic of a Kafka cluster, without copying a byte.

    The topic gets the same id, offsets and leader epochs here, and its records are read where
    Aiven's plugin put them. Give --kafka-bootstrap if the cluster is running, else --dump. The
    topic must be sealed: what is in no segment is not adopted. Producers go on with their
    sequences, new records go into blocks. Adopted objects are never deleted until `stratalog
    segments own`.
    """
    if (dump is None) == (kafka_bootstrap is None):
        raise typer.BadParameter("one of --kafka-bootstrap and --dump is needed")
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    configs = dict(parse_pairs(topic_config, "--topic-config"))
    wanted = Wanted(
        lose_untiered=lose_untiered,
        accept_open_transactions=accept_open_transactions,
        read_only=read_only,
        dry_run=dry_run,
    )
    if kafka_bootstrap is not None:
        _refuse_with_live(
            sealed=sealed or None, partitions=partitions, log_start=log_start, topic_id=topic_id
        )
        options = dict(parse_pairs(kafka_option, "--kafka-option"))

        def find() -> Found:
            return _find_live(topic, kafka_bootstrap, options, configs)
    else:
        assert dump is not None
        if not sealed and not dry_run:
            raise NotSealedError(
                "a dump does not tell whether the topic is sealed: stop its producers, have all of"
                " it tiered, make the dump then, and say so with --sealed"
            )
        starts = parse_starts(log_start)

        def find() -> Found:
            return _find_in_dump(
                topic, dump, configs, _parse_topic_id(topic_id), partitions, starts
            )

    with progress_line("reading metadata") as progress:
        plan = asyncio.run(
            _import(settings, kafka_objects, key_prefix, find, wanted, progress.update)
        )
    _report(plan, wanted, json=json)


def parse_starts(texts: Sequence[str] | None) -> dict[PartitionIndex, Offset]:
    from stratalog.control.topics.model import ADOPTED_OFFSETS_END, MAX_PARTITIONS

    starts = {}
    for partition, offset in parse_pairs(texts, "--log-start"):
        given = f'--log-start "{partition}={offset}"'
        if not (partition.isdecimal() and offset.isdecimal()):
            raise BadOptionError(f"{given}: write it as 3=5000")
        if not _is_up_to(partition, MAX_PARTITIONS - 1):
            raise BadOptionError(f"{given}: a topic has up to {MAX_PARTITIONS} partitions")
        if not _is_up_to(offset, ADOPTED_OFFSETS_END):
            raise BadOptionError(f"{given}: no partition begins beyond {ADOPTED_OFFSETS_END}")
        starts[PartitionIndex(int(partition))] = Offset(int(offset))
    return starts


def _is_up_to(digits: str, most: int) -> bool:
    # Python itself refuses to read numbers of thousands of digits.
    return len(digits) < _MANY_DIGITS and int(digits) <= most


def _parse_topic_id(text: str | None) -> TopicId | None:
    from stratalog.segment.object_keys import parse_uuid_text

    if text is None:
        return None
    found = parse_uuid_text(text)
    if found is None:
        raise BadOptionError(f'--topic-id "{text}" is not an id as Kafka prints them')
    return TopicId(found)


def _refuse_with_live(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            option = name.replace("_", "-")
            raise typer.BadParameter(f"--{option} goes with --dump: the cluster tells it itself")


def _find_live(
    name: str, bootstrap: str, options: Mapping[str, str], configs: Mapping[str, str]
) -> Found:
    from stratalog.cli.kafka_cluster import KafkaCluster
    from stratalog.segment.metadata_fold import fold_records
    from stratalog.segment.remote_log_metadata import metadata_partition
    from stratalog.topic.adoption_source import SourcePartition, SourceTopic, usable_configs

    cluster = KafkaCluster(bootstrap, options)
    live = cluster.topic(name)
    count = cluster.metadata_partition_count()
    places = [TopicPartition(live.topic_id, index) for index in live.offsets]
    values = cluster.metadata_values({metadata_partition(place, count) for place in places})
    folded = fold_records(values)
    known, left_out = usable_configs({**live.configs, **configs})
    source = SourceTopic(
        name=name,
        topic_id=live.topic_id,
        partitions=[
            SourcePartition(
                partition=place.partition,
                metadata=folded.partitions.get(place),
                **live.offsets[place.partition]._asdict(),
            )
            for place in places
        ],
        configs=known,
    )
    notes = [f"left out: {reason}" for reason in left_out]
    if any(live.configs.get(limit, "-1") != "-1" for limit in ("retention.ms", "retention.bytes")):
        notes.append(
            f"{bootstrap} goes on deleting segments of {name} that expire there: set retention.ms"
            " and retention.bytes to -1 in that cluster, or stop it"
        )
    return Found(source=source, notes=notes)


def _find_in_dump(
    name: str,
    dump: Path,
    configs: Mapping[str, str],
    topic_id: TopicId | None,
    count: int | None,
    starts: Mapping[PartitionIndex, Offset],
) -> Found:
    from stratalog.cli.metadata_dump import read_dump
    from stratalog.segment.metadata_fold import fold_records
    from stratalog.topic.adoption_source import SourcePartition, SourceTopic, topic_in_metadata
    from stratalog.topic_configs import check_configs

    found, partitions = topic_in_metadata(fold_records(read_dump(dump)), name, topic_id)
    seen = max([*partitions, *starts]) + 1
    _check_count(name, count, seen)
    notes = []
    if count is None:
        notes.append(
            f"{name} has {seen} partitions, as far as the dump tells:"
            " if there are more, say so with --partitions"
        )
    if "retention.ms" not in configs:
        notes.append(
            "the dump does not tell how long records are kept, so it is for ever: change it with"
            f" `stratalog topic alter {name} --set retention.ms=...`"
        )
    source = SourceTopic(
        name=name,
        topic_id=found,
        partitions=[
            SourcePartition(
                partition=index, metadata=partitions.get(index), log_start=starts.get(index)
            )
            for index in map(PartitionIndex, range(count or seen))
        ],
        configs=check_configs({**_KEPT_FOR_EVER, **configs}),
    )
    return Found(source=source, notes=notes)


def _check_count(name: str, given: int | None, seen: int) -> None:
    from stratalog.control.topics.model import MAX_PARTITIONS

    if given is not None and given < seen:
        raise BadOptionError(
            f"--partitions {given} are too few: partition {seen - 1} of {name} is spoken of"
        )
    # Before one is made of each: a damaged dump can speak of billions.
    if max(given or 0, seen) > MAX_PARTITIONS:
        what = f"--partitions {given}" if given else f"partition {seen - 1} of {name} is spoken of"
        raise BadOptionError(f"{what}: a topic has up to {MAX_PARTITIONS} partitions")


async def _import(
    settings: Settings,
    objects: str,
    key_prefix: str,
    find: Callable[[], Found],
    wanted: Wanted,
    progress: Callable[[str, int, int], None],
) -> "AdoptionPlan":
    from stratalog.segment.key_ring import KeyRing
    from stratalog.topic.adopt import check_free, open_for_writes, plan_adoption
    from stratalog.topic.adopted_objects import AdoptedObjects, own_realms

    remote = settings.remote
    keys = KeyRing.load(remote.public_keys, remote.private_keys, remote.encryption_key)
    async with opened_control(settings) as control:
        found = await asyncio.to_thread(find)
        source = found.source
        for remark in found.notes:
            note(f"[yellow]note:[/] {escape(remark)}")
        await check_free(control, source.name, source.topic_id)
        store = open_foreign(settings, objects)
        try:
            foreign = AdoptedObjects(
                store, key_prefix=key_prefix, keys=keys, realms=own_realms(settings)
            )
            plan = await plan_adoption(source, foreign, progress)
        finally:
            await store.close()
        if wanted.dry_run:
            return plan
        if not wanted.lose_untiered:
            plan.check_sealed()
        if not wanted.accept_open_transactions:
            plan.check_transactions()
        await control.topics.adopt(plan.topic)
        if not wanted.read_only:
            await open_for_writes(control, source.topic_id)
        return plan


def open_foreign(settings: Settings, url: str) -> "ObjectStore":
    """As brokers will open it, except that a folder is not made."""
    from stratalog.segment.stores import open_other_store

    scheme, _, rest = url.partition(":")
    if scheme == "file" and not Path(rest.removeprefix("//")).is_dir():
        raise BadOptionError(f"--objects {url}: there is no such folder")
    return open_other_store(url, settings.storage, SYSTEM_CLOCK)


def _report(plan: "AdoptionPlan", wanted: Wanted, *, json: bool) -> None:
    if json:
        print_json(_as_dict(plan, adopted=not wanted.dry_run))
        return
    rows = _as_dict(plan, adopted=not wanted.dry_run)["partitions"]
    assert isinstance(rows, list)
    print_table([name.replace("_", " ") for name in rows[0]], [list(row.values()) for row in rows])
    say("")
    for line in _summary(plan, wanted):
        say(escape(line))


def _summary(plan: "AdoptionPlan", wanted: Wanted) -> list[str]:
    source = plan.source
    segments = sum(len(one.to_adopt.segments) for one in plan.partitions)
    what = (
        f"{source.name} ({kafka_base64(source.topic_id)}):"
        f" {counted(len(plan.partitions), 'partition')}, {counted(segments, 'segment')},"
        f" {counted(sum(one.size_bytes for one in plan.partitions), 'byte')}."
    )
    if wanted.dry_run:
        return [f"Would adopt {what}", *_obstacles(plan)]
    if wanted.read_only:
        then = f"It can be read. `stratalog topic migrate {source.name}` opens it for writes."
    else:
        then = "It takes writes: new records go into blocks, behind what was adopted."
    return [
        f"Adopted {what}",
        then,
        "Its objects stay where they are and are never deleted from here, until"
        f" `stratalog segments own {source.name}`.",
    ]


def _obstacles(plan: "AdoptionPlan") -> list[str]:
    obstacles = []
    for check in (plan.check_sealed, plan.check_transactions):
        try:
            check()
        except CallError as error:
            obstacles.append(f"It would be refused: {error}.")
    return obstacles


def _as_dict(plan: "AdoptionPlan", *, adopted: bool) -> dict[str, object]:
    return {
        "topic": plan.source.name,
        "topic_id": kafka_base64(plan.source.topic_id),
        "adopted": adopted,
        "configs": dict(plan.source.configs),
        "partitions": [
            {
                "partition": one.partition,
                "segments": len(one.to_adopt.segments),
                "bytes": one.size_bytes,
                "stored_bytes": one.stored_bytes,
                "log_start": one.to_adopt.log_start,
                "end": one.end_offset,
                "leader_epoch": one.to_adopt.epochs[-1].epoch if one.to_adopt.epochs else -1,
                "producers": len(one.to_adopt.producers),
                "lost_records": one.lost_records,
            }
            for one in plan.partitions
        ],
    }
