"""`stratalog topic`: create, list, describe, alter, migrate and delete topics.

Most commands are a Kafka client's. The tiers of a topic, and migrations, have no place in Kafka's
protocol, so these commands work on the control plane.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Any

import typer
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Public, but not marked so.
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicMetadata,
)
from rich.markup import escape

from stratalog.admin.principal import ANONYMOUS
from stratalog.cli.admin import admin_of, opened_admin
from stratalog.cli.client import REQUEST_SECONDS, KafkaAdmin, as_our_error
from stratalog.cli.deleted_topics import (
    PURGE_EPILOG,
    UNDELETE_EPILOG,
    list_deleted,
    purge,
    undelete,
)
from stratalog.cli.dry_runs import (
    DELETE_RECORDS_EPILOG,
    DryRun,
    delete_records,
    dry_run_deletion,
    dry_run_retention,
    show_earlier_limits,
)
from stratalog.cli.errors import (
    BrokerRefusedError,
    NothingToAlterError,
    OtherClusterError,
    PairError,
)
from stratalog.cli.lost_ranges import LIST_EPILOG, MARK_EPILOG, lost_ranges, mark_lost
from stratalog.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Config,
    Control,
    Data,
    Json,
    Objects,
    Set,
    examples,
    settings_from,
)
from stratalog.cli.output import print_json, print_table, say
from stratalog.ids import kafka_base64
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.control.log.model import PartitionState

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Create, list, describe, alter, migrate and delete topics.",
    epilog=examples(
        "stratalog topic create orders --partitions 12",
        "stratalog topic list",
        "stratalog topic describe orders",
        "stratalog topic alter orders --set retention.ms=3600000",
        "stratalog topic delete orders",
    ),
)

Topic = Annotated[str, typer.Argument(help="The topic's name.")]

_BROKERS_CHOICE = -1
"""Kafka's number for the broker's default."""


def parse_pairs(texts: Sequence[str] | None, option: str) -> list[tuple[str, str]]:
    """`name=value` texts, as several options take them."""
    pairs = []
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise PairError(f'{option} "{text}": write it as name=value')
        pairs.append((name, value))
    return pairs


@app.command(
    epilog=examples(
        "stratalog topic create orders --partitions 12",
        "stratalog topic create logs --config retention.ms=86400000 --if-not-exists",
    )
)
def create(
    topic: Topic,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="How many partitions. Default: the broker's."
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="A topic config. Repeatable."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists already.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create a topic."""
    admin = KafkaAdmin(bootstrap)
    new = NewTopic(
        topic,
        num_partitions=partitions or _BROKERS_CHOICE,
        replication_factor=_BROKERS_CHOICE,
        config=dict(parse_pairs(config, "--config")),
    )
    admin.topics()  # Finds an unreachable broker in seconds. Creating takes a minute.
    error = admin.client.create_topics([new])[topic].exception()
    if error is None:
        say(f"Created topic {escape(topic)}.")
    elif if_not_exists and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
        say(f"Topic {escape(topic)} exists already.")
    else:
        raise _named(topic, error.args[0], bootstrap)


@app.command(
    "list",
    epilog=examples(
        "stratalog topic list",
        "stratalog topic list --json",
        "stratalog topic list --deleted --data ./data",
    ),
)
def list_(
    json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    deleted: Annotated[
        bool,
        typer.Option(
            "--deleted", help="List the deleted topics that are kept, from the control plane."
        ),
    ] = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """List all topics, or the deleted ones that can be undeleted."""
    if deleted:
        settings = settings_from(config, overrides, data=data, objects=objects, control=control)
        list_deleted(settings, json=json)
        return
    topics = sorted(KafkaAdmin(bootstrap).topics().items())
    if json:
        print_json([{"topic": name, "partitions": len(it.partitions)} for name, it in topics])
    else:
        print_table(["topic", "partitions"], [(name, len(it.partitions)) for name, it in topics])


@app.command(
    epilog=examples(
        "stratalog topic describe orders",
        "stratalog topic describe orders --json",
        "stratalog topic describe orders --tiers --data /var/lib/stratalog",
    )
)
def describe(
    topic: Topic,
    json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    tiers: Annotated[
        bool,
        typer.Option(
            "--tiers", help="Also show the offsets that each tier holds, from the control plane."
        ),
    ] = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Show a topic's partitions, their leaders, offsets and bytes, and the configs set on it.

    The tiers are shown with --tiers, or if an option names the control plane: segments hold the
    offsets from the log start to the tiered end, blocks the offsets from the block start to the
    high watermark.
    """
    admin = KafkaAdmin(bootstrap)
    found = admin.topic(topic)
    partitions = _describe_partitions(admin, found)
    settings = None
    if tiers or data or objects or control or config or overrides:
        settings = settings_from(config, overrides, data=data, objects=objects, control=control)
        _add_tiers(partitions, asyncio.run(_states(settings, topic, admin.cluster_id())))
    configs = _set_configs(admin, topic)
    if json:
        print_json({"topic": topic, "partitions": partitions, "configs": configs})
        return
    titles = [name.replace("_", " ") for name in partitions[0]]
    print_table(titles, [list(partition.values()) for partition in partitions])
    say("")
    for name, value in configs.items() or [("configs", "none set")]:
        say(f"{escape(name)} = {escape(value)}" if configs else f"{name}: {value}")
    if settings is not None:
        show_earlier_limits(settings, topic)


@app.command(
    epilog=examples(
        "stratalog topic migrate orders",
        "stratalog topic migrate orders --abort",
    )
)
def migrate(
    topic: Topic,
    abort: Annotated[
        bool,
        typer.Option("--abort", help="Take back a migration that has begun and is not finished."),
    ] = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Open an adopted topic for writes: new records go into blocks, behind its segments.

    The command can be repeated after a failure. A finished migration is final: --abort takes back
    only a migration that has not switched the topic yet.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    say(escape(asyncio.run(_migrate(settings, topic, abort=abort))))


@app.command(
    epilog=examples(
        "stratalog topic alter orders --set retention.ms=3600000",
        "stratalog topic alter orders --unset retention.ms --partitions 24",
    )
)
def alter(
    topic: Topic,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set a topic config. Repeatable."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", metavar="NAME", help="Reset a topic config to its default. Repeatable."
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="Grow to this many partitions. Topics never shrink."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
) -> None:
    """Change a topic's configs and its number of partitions. Brokers follow within seconds.

    With --dry-run, say how much would go by the retention, and change nothing.
    """
    if dry_run:
        settings = settings_from(config, None, data=data, objects=objects, control=control)
        changes = dict(parse_pairs(set_, "--set")) | dict.fromkeys(unset or [])
        dry_run_retention(settings, topic, changes)
        return
    entries = _entries(parse_pairs(set_, "--set"), unset or [])
    if not entries and partitions is None:
        raise NothingToAlterError("nothing to alter: give --set, --unset or --partitions")
    admin = KafkaAdmin(bootstrap)
    admin.topic(topic)
    if entries:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        _done(topic, admin.client.incremental_alter_configs([resource]), bootstrap)
    if partitions is not None:
        _done(topic, admin.client.create_partitions([NewPartitions(topic, partitions)]), bootstrap)
    say(f"Altered topic {escape(topic)}.")


@app.command(
    epilog=examples("stratalog topic delete orders", "stratalog topic delete orders --yes")
)
def delete(
    topic: Topic,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Delete a topic and all its records. `topic undelete` brings it back for a day."""
    if dry_run:
        settings = settings_from(config, overrides, data=data, objects=objects, control=control)
        dry_run_deletion(settings, topic)
        return
    admin = KafkaAdmin(bootstrap)
    count = len(admin.topic(topic).partitions)
    if not yes:
        question = f"Delete {topic} with {count} partitions and all its records?"
        typer.confirm(question, abort=True)
    error = admin.client.delete_topics([topic])[topic].exception()
    if error is not None:
        raise _named(topic, error.args[0], bootstrap)
    say(f"Deleted topic {escape(topic)}.")


app.command(epilog=UNDELETE_EPILOG)(undelete)
app.command(epilog=PURGE_EPILOG)(purge)
app.command("delete-records", epilog=DELETE_RECORDS_EPILOG)(delete_records)
app.command("mark-lost", epilog=MARK_EPILOG)(mark_lost)
app.command("lost-ranges", epilog=LIST_EPILOG)(lost_ranges)


def _entries(wanted: Sequence[tuple[str, str]], unset: Sequence[str]) -> list[ConfigEntry]:
    changes: list[tuple[str, str | None, AlterConfigOpType]] = [
        *((name, value, AlterConfigOpType.SET) for name, value in wanted),
        *((name, None, AlterConfigOpType.DELETE) for name in unset),
    ]
    return [
        ConfigEntry(name, value, incremental_operation=operation)
        for name, value, operation in changes
    ]


def _done(topic: str, futures: Mapping[Any, Future[Any]], bootstrap: str) -> None:
    for future in futures.values():
        error = future.exception(REQUEST_SECONDS)
        if error is not None:
            raise _named(topic, error.args[0], bootstrap)


def _named(topic: str, error: KafkaError, bootstrap: str) -> Exception:
    """The broker's refusal, with the topic's name unless the broker said it."""
    ours = as_our_error(error, bootstrap)
    if isinstance(ours, BrokerRefusedError) and topic not in str(ours):
        return BrokerRefusedError(f"{topic}: {ours}")
    return ours


def _describe_partitions(admin: KafkaAdmin, topic: TopicMetadata) -> list[dict[str, int | str]]:
    indexes = sorted(topic.partitions)
    earliest = _offsets(admin, str(topic.topic), indexes, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    latest = _offsets(admin, str(topic.topic), indexes, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    # Imported late: --help should not wait for the schemas of the protocol.
    from stratalog.cli.partition_sizes import partition_sizes

    sizes = partition_sizes(admin.brokers(), str(topic.topic), indexes)
    return [
        {
            "partition": index,
            "leader": topic.partitions[index].leader,
            "earliest": earliest[index],
            "latest": latest[index],
            "bytes": sizes.get(index, "?"),
        }
        for index in indexes
    ]


def _offsets(admin: KafkaAdmin, topic: str, indexes: list[int], spec: OffsetSpec) -> dict[int, int]:
    wanted = {TopicPartition(topic, index): spec for index in indexes}
    answers = admin.client.list_offsets(wanted)
    return {place.partition: admin.answer(future).offset for place, future in answers.items()}


def _set_configs(admin: KafkaAdmin, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    (future,) = admin.client.describe_configs([resource]).values()
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {
        name: str(entry.value)
        for name, entry in sorted(admin.answer(future).items())
        if entry.source == own
    }


async def _states(settings: Settings, name: str, cluster_id: str | None) -> "list[PartitionState]":
    # Imported late: --help should not wait for databases.
    from stratalog.opening.cluster import opened_control

    async with opened_control(settings) as control:
        # A folder that happens to be here may belong to another cluster with such a topic.
        own_id = kafka_base64((await control.identity.cluster()).cluster_id)
        if cluster_id != own_id:
            raise OtherClusterError(
                f"the broker belongs to cluster {cluster_id}, the control plane at {control.url} to"
                f" cluster {own_id}: name the right broker with --bootstrap, or the right control"
                " plane with --data or --control"
            )
        return await admin_of(control, settings).topics.partition_states(ANONYMOUS, name)


def _add_tiers(partitions: list[dict[str, int | str]], states: "Sequence[PartitionState]") -> None:
    from stratalog.control.topics.migration_state import migration_state

    for partition, state in zip(partitions, states, strict=False):
        partition |= {
            "state": str(migration_state(state)),
            "log_start": state.log_start,
            "tiered_end": state.remote_end,
            "block_start": state.block_start,
            "high_watermark": state.high_watermark,
        }


async def _migrate(settings: Settings, name: str, *, abort: bool) -> str:
    from stratalog.admin.migration import MigrationOutcome

    async with opened_admin(settings) as admin:
        if abort:
            await admin.migration.abort(ANONYMOUS, name)
            return f"{name} can be read, not written: no migration is under way."
        outcome = await admin.migration.open_for_writes(ANONYMOUS, name)
        if outcome is MigrationOutcome.ALREADY_OPEN:
            return f"{name} takes writes already: its new records go into blocks."
        return f"{name} takes writes: new records go into blocks, behind its segments."
