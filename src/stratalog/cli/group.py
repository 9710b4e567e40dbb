"""`stratalog group`: list, describe, reset and delete consumer groups, as a Kafka client."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Annotated, Any, NamedTuple

import typer
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Public, but not marked so.
    ConsumerGroupDescription,
    MemberDescription,
    OffsetSpec,
)
from rich.markup import escape

from stratalog.admin.errors import GroupInUseError
from stratalog.admin.group_reset import (
    Move,
    Reader,
    Target,
    check_unused,
    count_of,
    plan_reset,
)
from stratalog.cli.client import KafkaAdmin, as_our_error
from stratalog.cli.errors import BrokerRefusedError, NoSuchGroupError
from stratalog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, examples
from stratalog.cli.output import note, print_json, print_table, say
from stratalog.cli.record_reader import Edge, FromOffset, FromTime, RecordReader, Start
from stratalog.cli.timestamps import parse_time
from stratalog.clock import SYSTEM_CLOCK

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="List, describe, reset and delete consumer groups.",
    epilog=examples(
        "stratalog group list",
        "stratalog group describe billing",
        "stratalog group reset billing --topic orders --to-earliest",
        "stratalog group delete billing",
    ),
)

Group = Annotated[str, typer.Argument(help="The group's name.")]

STATES: dict[Enum, str] = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
"""Kafka's own words, which people search for and scripts compare with."""

Partition = tuple[str, int]
"""A topic's name and the index of one of its partitions."""


class Progress(NamedTuple):
    """The progress of a group in one partition. A member without partitions has a row, too."""

    topic: str | None
    partition: int | None
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None
    client: str | None
    host: str | None


@app.command("list", epilog=examples("stratalog group list", "stratalog group list --json"))
def list_(json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List all groups with their state, their type and the number of their members."""
    admin = KafkaAdmin(bootstrap)
    described = _describe(admin, _group_ids(admin)).values()
    rows = [
        {
            "group": each.group_id,
            "state": _state(each),
            "type": each.type.name.lower(),
            "members": len(each.members),
        }
        for each in sorted(described, key=lambda each: each.group_id)
    ]
    if json:
        print_json(rows)
    else:
        columns = ["group", "state", "type", "members"]
        print_table(columns, [list(row.values()) for row in rows])


@app.command(
    epilog=examples("stratalog group describe billing", "stratalog group describe billing --json")
)
def describe(group: Group, json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show a group's progress in each partition, and the member that reads the partition.

    The lag is the number of offsets from the committed offset to the end of the partition.
    """
    admin = KafkaAdmin(bootstrap)
    found = _group(admin, group)
    committed = _committed(admin, group)
    rows = progress(found.members, committed, _ends(admin, found.members, committed))
    summary = {
        "group": group,
        "state": _state(found),
        "type": found.type.name.lower(),
        "assignor": found.partition_assignor,
        "coordinator": f"{found.coordinator.host}:{found.coordinator.port}",
        "members": len(found.members),
    }
    if json:
        print_json({**summary, "partitions": [row._asdict() for row in rows]})
        return
    print_table(Progress._fields, [_dashes(row) for row in rows])
    say("")
    for name, value in summary.items():
        say(f"{name}: {escape(str(value) or '-')}")


ResetTopic = Annotated[str, typer.Option("--topic", "-t", help="The topic to reset.")]
ResetPartition = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, help="Only this partition. Default: all."),
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="Go to the first record.")]
ToLatest = Annotated[
    bool, typer.Option("--to-latest", help="Go to the end, and skip all present records.")
]
ToOffset = Annotated[
    int | None,
    typer.Option(help="Go to this offset. A negative number counts back from the end."),
]
ToTime = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help='Go to the first record since "10m ago", an ISO date and time, or epoch ms.',
    ),
]
Execute = Annotated[
    bool, typer.Option("--execute", help="Commit the new offsets. Without it they are only shown.")
]


@app.command(
    epilog=examples(
        "stratalog group reset billing --topic orders --to-earliest",
        'stratalog group reset billing --topic orders --to-time "2h ago" --execute',
        "stratalog group reset billing --topic orders --partition 3 --to-offset 1000 --execute",
        "stratalog group reset billing --topic orders --to-latest --execute",
    )
)
def reset(
    group: Group,
    topic: ResetTopic,
    partition: ResetPartition = None,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_offset: ToOffset = None,
    to_time: ToTime = None,
    execute: Execute = False,
    json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change the offsets from which a group goes on reading a topic.

    The command shows the new offsets, and commits them only with --execute.

    To execute, the group must have no members: they would go on from their own positions.

    A group that does not exist is created.
    """
    start = _start(to_earliest, to_latest, to_offset, to_time)
    admin = KafkaAdmin(bootstrap)
    admin.topic(topic)
    members = _describe(admin, [group])[group].members
    if execute:
        _check_unused(group, members)
    committed = {
        at: offset for (name, at), offset in _committed(admin, group).items() if name == topic
    }
    moves = plan_reset(_targets(topic, bootstrap, start, partition), committed)
    if execute:
        _execute(admin, group, topic, moves)
    if json:
        print_json(
            {
                "group": group,
                "topic": topic,
                "executed": execute,
                "partitions": [move._asdict() for move in moves],
            }
        )
    else:
        print_table(Move._fields, [_dashes(move) for move in moves])
    note(_outcome(group, members, execute))


@app.command(
    epilog=examples("stratalog group delete billing", "stratalog group delete billing --yes")
)
def delete(
    group: Group,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete a group without members, and all offsets that it has committed."""
    admin = KafkaAdmin(bootstrap)
    _check_unused(group, _group(admin, group).members)
    if not yes:
        count = len(_committed(admin, group))
        typer.confirm(f"Delete {group} with its offsets in {count} partitions?", abort=True)
    (future,) = admin.client.delete_consumer_groups([group]).values()
    _answer(admin, group, future)
    say(f"Deleted group {escape(group)}.")


def progress(
    members: Sequence[MemberDescription],
    committed: Mapping[Partition, int],
    ends: Mapping[Partition, int],
) -> list[Progress]:
    """A row for each partition that is committed or assigned, then the members without any."""
    readers = {partition: member for member in members for partition in _partitions_of(member)}
    rows = [
        _progress(partition, committed.get(partition), ends.get(partition), readers.get(partition))
        for partition in sorted(committed.keys() | readers.keys())
    ]
    idle = [member for member in members if not member.assignment.topic_partitions]
    return rows + [_progress((None, None), None, None, member) for member in idle]


def _progress(
    partition: tuple[str | None, int | None],
    committed: int | None,
    end: int | None,
    member: MemberDescription | None,
) -> Progress:
    # Kafka keeps the commits of a deleted topic. A new topic of the name may end before them.
    lag = None if committed is None or end is None else max(0, end - committed)
    reader: tuple[str | None, str | None, str | None] = (None, None, None)
    if member is not None:
        reader = (member.member_id, member.client_id, member.host.removeprefix("/"))
    return Progress(*partition, committed, end, lag, *reader)


def _start(to_earliest: bool, to_latest: bool, to_offset: int | None, to_time: str | None) -> Start:
    if to_earliest + to_latest + (to_offset is not None) + (to_time is not None) != 1:
        raise typer.BadParameter(
            "give one of --to-earliest, --to-latest, --to-offset and --to-time"
        )
    if to_time is not None:
        return FromTime(parse_time(to_time, SYSTEM_CLOCK.now_ms()))
    if to_offset is not None:
        return FromOffset(to_offset)
    return Edge.BEGINNING if to_earliest else Edge.END


def _targets(topic: str, bootstrap: str, start: Start, partition: int | None) -> list[Target]:
    reading = RecordReader(topic, bootstrap)
    try:
        return [Target(*span) for span in reading.spans(start, partition=partition)]
    finally:
        reading.close()


def _execute(admin: KafkaAdmin, group: str, topic: str, moves: Sequence[Move]) -> None:
    wanted = [TopicPartition(topic, move.partition, move.new) for move in moves]
    request = ConsumerGroupTopicPartitions(group, wanted)
    (future,) = admin.client.alter_consumer_group_offsets([request]).values()
    for one in _answer(admin, group, future).topic_partitions:
        if one.error is not None:
            raise _named(group, one.error, admin.bootstrap)


def _outcome(group: str, members: Sequence[MemberDescription], executed: bool) -> str:
    if executed:
        return f"Reset group {escape(group)}."
    if members:
        return (
            f"Nothing is changed yet. Group {escape(group)} has {count_of(members)}: "
            "stop them before you add --execute."
        )
    return "Nothing is changed yet: add --execute to commit the new offsets."


def _check_unused(group: str, members: Sequence[MemberDescription]) -> None:
    check_unused(group, [Reader(one.client_id, one.host.removeprefix("/")) for one in members])


def _group_ids(admin: KafkaAdmin) -> list[str]:
    admin.topics()  # Finds an unreachable broker in seconds. Listing groups takes a minute.
    found = admin.answer(admin.client.list_consumer_groups())
    for error in found.errors:
        raise as_our_error(error.args[0], admin.bootstrap)
    return [listed.group_id for listed in found.valid]


def _describe(admin: KafkaAdmin, group_ids: Sequence[str]) -> dict[str, ConsumerGroupDescription]:
    if not group_ids:
        return {}
    answers = admin.client.describe_consumer_groups(list(group_ids))
    return {group: _answer(admin, group, future) for group, future in answers.items()}


def _group(admin: KafkaAdmin, group: str) -> ConsumerGroupDescription:
    """Describe a group that exists. Kafka would describe a missing group as dead."""
    known = _group_ids(admin)
    if group not in known:
        raise no_such_group(group, known)
    return _describe(admin, [group])[group]


def no_such_group(name: str, known: Sequence[str]) -> NoSuchGroupError:
    close = get_close_matches(name, known, n=1)
    hint = f'did you mean "{close[0]}"?' if close else "`stratalog group list` shows all groups"
    return NoSuchGroupError(f'there is no group "{name}": {hint}')


def _committed(admin: KafkaAdmin, group: str) -> dict[Partition, int]:
    request = ConsumerGroupTopicPartitions(group)
    (future,) = admin.client.list_consumer_group_offsets([request]).values()
    return {
        (one.topic, one.partition): one.offset
        for one in _answer(admin, group, future).topic_partitions
        if one.offset >= 0
    }


def _ends(
    admin: KafkaAdmin, members: Sequence[MemberDescription], committed: Mapping[Partition, int]
) -> dict[Partition, int]:
    """The ends of all partitions that still exist."""
    topics = admin.topics()
    wanted = {
        TopicPartition(topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
        for topic, partition in {*committed, *(at for one in members for at in _partitions_of(one))}
        if topic in topics and partition in topics[topic].partitions
    }
    answers = admin.client.list_offsets(wanted) if wanted else {}
    return {
        (one.topic, one.partition): admin.answer(future).offset for one, future in answers.items()
    }


def _partitions_of(member: MemberDescription) -> list[Partition]:
    return [(one.topic, one.partition) for one in member.assignment.topic_partitions]


def _state(group: ConsumerGroupDescription) -> str:
    """Name the state. The client has no name for some states of the consumer protocol."""
    return STATES.get(group.state, "Unknown")


def _dashes(row: Sequence[object]) -> list[object]:
    return ["-" if cell is None else cell for cell in row]


def _answer(admin: KafkaAdmin, group: str, future: Any) -> Any:
    try:
        return admin.answer(future)
    except BrokerRefusedError as error:
        cause = error.__cause__
        if isinstance(cause, KafkaException):
            raise _named(group, cause.args[0], admin.bootstrap) from error
        raise


def _named(group: str, error: KafkaError, bootstrap: str) -> Exception:
    """The broker's refusal, with the group's name. Members may have joined since the check."""
    if error.code() in (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID):
        return GroupInUseError(f'group "{group}" has members now: stop them first')
    ours = as_our_error(error, bootstrap)
    return BrokerRefusedError(f"{group}: {ours}") if isinstance(ours, BrokerRefusedError) else ours
