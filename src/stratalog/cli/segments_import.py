"""`stratalog segments import`: adopt a tiered topic of a Kafka cluster where its objects lie."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.markup import escape

from stratalog.admin.principal import ANONYMOUS
from stratalog.cli.admin import opened_admin
from stratalog.cli.adoption_sources import (
    DumpSource,
    LiveSource,
    parse_starts,
    parse_topic_id,
)
from stratalog.cli.errors import BadOptionError, NotSealedError
from stratalog.cli.options import Config, Control, Data, Json, Objects, Set, examples, settings_from
from stratalog.cli.output import counted, note, print_json, print_table, progress_line, say
from stratalog.cli.topic import Topic, parse_pairs
from stratalog.clock import SYSTEM_CLOCK
from stratalog.errors import CallError
from stratalog.ids import kafka_base64
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.admin.segments import AdoptionConsent
    from stratalog.objects.store import ObjectStore
    from stratalog.topic.adopt import AdoptionPlan

Source: TypeAlias = LiveSource | DumpSource

EPILOG = examples(
    "stratalog segments import orders --kafka-bootstrap kafka:9092 --kafka-objects s3://tiered "
    "--dry-run",
    "stratalog segments import orders --kafka-bootstrap kafka:9092 --kafka-objects s3://tiered "
    "--key-prefix prod/",
    "stratalog segments import orders --dump metadata.jsonl --kafka-objects s3://tiered --sealed",
)

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


KafkaObjects = Annotated[
    str,
    typer.Option(
        "--kafka-objects", metavar="URL", help="The store that holds the plugin's objects."
    ),
]
Dump = Annotated[
    Path | None,
    typer.Option(
        "--dump",
        metavar="FILE",
        help="Read the records of __remote_log_metadata from a file, not from a running cluster.",
    ),
]
KeyPrefix = Annotated[
    str, typer.Option("--key-prefix", metavar="TEXT", help="The plugin's key.prefix.")
]
Sealed = Annotated[
    bool,
    typer.Option(
        "--sealed",
        help="With --dump: confirm that nothing writes to the topic, and that all of it is tiered.",
    ),
]
LoseUntiered = Annotated[
    bool, typer.Option("--lose-untiered", help="Leave records behind that are in no segment.")
]
AcceptOpenTransactions = Annotated[
    bool,
    typer.Option(
        "--accept-open-transactions",
        help="Take the records of unfinished transactions as committed.",
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        "--partitions", "-p", min=1, help="With --dump: the number of the topic's partitions."
    ),
]
LogStart = Annotated[
    list[str] | None,
    typer.Option(
        "--log-start",
        metavar="PARTITION=OFFSET",
        help="With --dump: the first offset of a partition. Repeatable.",
    ),
]
TopicIdText = Annotated[
    str | None,
    typer.Option(
        "--topic-id",
        metavar="ID",
        help="With --dump: the id, if several topics of the dump have the name.",
    ),
]
TopicConfigs = Annotated[
    list[str] | None,
    typer.Option(
        "--topic-config", metavar="NAME=VALUE", help="A config for the topic. Repeatable."
    ),
]
ReadOnly = Annotated[
    bool, typer.Option("--read-only", help="Do not open the topic for writes yet.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check everything, show the result, change nothing.")
]


def import_(
    topic: Topic,
    kafka_objects: KafkaObjects,
    kafka_bootstrap: KafkaBootstrap = None,
    kafka_option: KafkaOption = None,
    dump: Dump = None,
    key_prefix: KeyPrefix = "",
    sealed: Sealed = False,
    lose_untiered: LoseUntiered = False,
    accept_open_transactions: AcceptOpenTransactions = False,
    partitions: Partitions = None,
    log_start: LogStart = None,
    topic_id: TopicIdText = None,
    topic_config: TopicConfigs = None,
    read_only: ReadOnly = False,
    dry_run: DryRun = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Adopt a tiered topic of a Kafka cluster, without copying a byte.

    The topic keeps its id, offsets and leader epochs, and its records are read where Aiven's
    plugin put them. Give --kafka-bootstrap if the cluster is running, else --dump. The topic must
    be sealed: records that are in no segment are not adopted. Producers go on with their
    sequences, and new records go into blocks. Adopted objects are never deleted until `stratalog
    segments own`.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    configs = dict(parse_pairs(topic_config, "--topic-config"))
    if (dump is None) == (kafka_bootstrap is None):
        raise typer.BadParameter("give either --kafka-bootstrap or --dump")
    if kafka_bootstrap is not None:
        _refuse_with_live(sealed or None, partitions, log_start, topic_id)
        source: Source = _live_source(topic, kafka_bootstrap, kafka_option, configs)
    else:
        assert dump is not None
        _check_sealed(sealed or dry_run)
        source = _dump_source(topic, dump, configs, topic_id, partitions, log_start)
    consent = _consent(lose_untiered, accept_open_transactions, read_only, dry_run)
    with progress_line("reading metadata") as progress:
        work = _import(settings, kafka_objects, key_prefix, source, consent, progress.update)
        plan = asyncio.run(work)
    _report(plan, consent, json=json)


def _refuse_with_live(
    sealed: bool | None,
    partitions: int | None,
    log_start: Sequence[str] | None,
    topic_id: str | None,
) -> None:
    given = {
        "--sealed": sealed,
        "--partitions": partitions,
        "--log-start": log_start,
        "--topic-id": topic_id,
    }
    for option, value in given.items():
        if value is not None:
            raise typer.BadParameter(f"{option} goes with --dump: a running cluster tells it")


def _check_sealed(confirmed: bool) -> None:
    if not confirmed:
        raise NotSealedError(
            "a dump does not tell whether the topic is sealed: stop its producers, have all of its"
            " records tiered, make the dump then, and confirm it with --sealed"
        )


def _live_source(
    name: str, bootstrap: str, options: Sequence[str] | None, configs: Mapping[str, str]
) -> LiveSource:
    given = dict(parse_pairs(options, "--kafka-option"))
    return LiveSource(name=name, bootstrap=bootstrap, options=given, configs=configs)


def _dump_source(
    name: str,
    dump: Path,
    configs: Mapping[str, str],
    topic_id: str | None,
    partitions: int | None,
    log_start: Sequence[str] | None,
) -> DumpSource:
    return DumpSource(
        name=name,
        dump=dump,
        configs=configs,
        topic_id=parse_topic_id(topic_id),
        partition_count=partitions,
        log_starts=parse_starts(log_start),
    )


def _consent(
    lose_untiered: bool, accept_open_transactions: bool, read_only: bool, dry_run: bool
) -> "AdoptionConsent":
    from stratalog.admin.segments import AdoptionConsent

    return AdoptionConsent(
        lose_untiered=lose_untiered,
        accept_open_transactions=accept_open_transactions,
        read_only=read_only,
        dry_run=dry_run,
    )


async def _import(
    settings: Settings,
    objects: str,
    key_prefix: str,
    source: Source,
    consent: "AdoptionConsent",
    progress: Callable[[str, int, int], None],
) -> "AdoptionPlan":
    from stratalog.opening.keys import load_keys
    from stratalog.topic.adopted_objects import AdoptedObjects, own_realms

    keys = load_keys(settings.remote)
    async with opened_admin(settings) as admin:
        found = await asyncio.to_thread(source.find)
        for remark in found.notes:
            note(f"[yellow]note:[/] {escape(remark)}")
        await admin.segments.check_adoptable(ANONYMOUS, found.topic)
        store = open_foreign(settings, objects)
        try:
            foreign = AdoptedObjects(
                store, key_prefix=key_prefix, keys=keys, realms=own_realms(settings)
            )
            return await admin.segments.adopt(ANONYMOUS, found.topic, foreign, consent, progress)
        finally:
            await store.close()


def open_foreign(settings: Settings, url: str) -> "ObjectStore":
    """Open the store as brokers will, except that a missing folder is not created."""
    from stratalog.opening.stores import store_addresses

    scheme, _, rest = url.partition(":")
    if scheme == "file" and not Path(rest.removeprefix("//")).is_dir():
        raise BadOptionError(f"--kafka-objects {url}: there is no such folder")
    return store_addresses(settings).open(url, clock=SYSTEM_CLOCK)


def _report(plan: "AdoptionPlan", consent: "AdoptionConsent", *, json: bool) -> None:
    if json:
        print_json(_as_dict(plan, adopted=not consent.dry_run))
        return
    rows = _as_dict(plan, adopted=not consent.dry_run)["partitions"]
    assert isinstance(rows, list)
    print_table([name.replace("_", " ") for name in rows[0]], [list(row.values()) for row in rows])
    say("")
    for line in _summary(plan, consent):
        say(escape(line))


def _summary(plan: "AdoptionPlan", consent: "AdoptionConsent") -> list[str]:
    source = plan.source
    segments = sum(len(one.to_adopt.segments) for one in plan.partitions)
    summary = (
        f"{source.name} ({kafka_base64(source.topic_id)}):"
        f" {counted(len(plan.partitions), 'partition')}, {counted(segments, 'segment')},"
        f" {counted(sum(one.size_bytes for one in plan.partitions), 'byte')}."
    )
    if consent.dry_run:
        return [f"Would adopt {summary}", *_obstacles(plan)]
    if consent.read_only:
        then = f"It can be read. `stratalog topic migrate {source.name}` opens it for writes."
    else:
        then = "It takes writes: new records go into blocks, behind the adopted segments."
    return [
        f"Adopted {summary}",
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
