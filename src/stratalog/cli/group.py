"""`stratalog group`: list, describe, reset and delete consumer groups, over the wire."""

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

from stratalog.cli.client import Admin, as_our_error
from stratalog.cli.errors import BrokerRefusedError, GroupInUseError, NoSuchGroupError
from stratalog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, examples
from stratalog.cli.output import note, print_json, print_table, say
from stratalog.cli.reading import Edge, FromOffset, FromTime, Reading, Span, Start
from stratalog.cli.when import parse_when
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

Place = tuple[str, int]
"""A topic and one of its partitions."""


class Progress(NamedTuple):
    """How far a group has come in one partition. A member without partitions has a row too."""

    topic: str | None
    partition: int | None
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None
    client: str | None
    host: str | None


class Move(NamedTuple):
    """What a reset does to one partition."""

    partition: int
    committed: int | None
    new: int
    end: int
    lag: int


@app.command("list", epilog=examples("stratalog group list", "stratalog group list --json"))
def list_(json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List all groups with their state, their type and the number of their members."""
    admin = Admin(bootstrap)
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
    """Show how far a group has come in each partition, and which member reads it.

    The lag is the number of offsets between what was committed and the partition's end.
    """
    admin = Admin(bootstrap)
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
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic to go on in elsewhere.")],
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="This partition only.")
    ] = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first record there is.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end: what is there already is skipped.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option(help="To this offset; negative counts back from the end.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help='To the first record since "10m ago", an ISO date and time, or epoch ms.',
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it. Without this, the plan is only shown.")
    ] = False,
    json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Move the place where a group goes on reading a topic.

    It shows what would change, and changes it only with --execute.

    The group must have no members then: they would go on from where they are.

    A group that does not exist is created.
    """
    start = _start(to_earliest, to_latest, to_offset, to_time)
    admin = Admin(bootstrap)
    admin.topic(topic)
    members = _describe(admin, [group])[group].members
    if execute:
        _check_unused(group, members)
    moves = plan(_spans(topic, bootstrap, start, partition), topic, _committed(admin, group))
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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete a group without members, and all offsets that it has committed."""
    admin = Admin(bootstrap)
    _check_unused(group, _group(admin, group).members)
    if not yes:
        count = len(_committed(admin, group))
        typer.confirm(f"Delete {group} with its offsets in {count} partitions?", abort=True)
    (future,) = admin.client.delete_consumer_groups([group]).values()
    _answer(admin, group, future)
    say(f"Deleted group {escape(group)}.")


def progress(
    members: Sequence[MemberDescription],
    committed: Mapping[Place, int],
    ends: Mapping[Place, int],
) -> list[Progress]:
    """A row for each partition that is committed or assigned, then the members without any."""
    readers = {place: member for member in members for place in _places(member)}
    rows = [
        _progress(place, committed.get(place), ends.get(place), readers.get(place))
        for place in sorted(committed.keys() | readers.keys())
    ]
    idle = [member for member in members if not member.assignment.topic_partitions]
    return rows + [_progress((None, None), None, None, member) for member in idle]


def _progress(
    place: tuple[str | None, int | None],
    committed: int | None,
    end: int | None,
    member: MemberDescription | None,
) -> Progress:
    # Kafka keeps the commits of a deleted topic: made anew, it can end before them.
    lag = None if committed is None or end is None else max(0, end - committed)
    reader: tuple[str | None, str | None, str | None] = (None, None, None)
    if member is not None:
        reader = (member.member_id, member.client_id, member.host.removeprefix("/"))
    return Progress(*place, committed, end, lag, *reader)


def plan(spans: Sequence[Span], topic: str, committed: Mapping[Place, int]) -> list[Move]:
    return [
        Move(
            partition=span.partition,
            committed=committed.get((topic, span.partition)),
            new=span.start,
            end=span.end,
            lag=span.end - span.start,
        )
        for span in spans
    ]


def _start(to_earliest: bool, to_latest: bool, to_offset: int | None, to_time: str | None) -> Start:
    if to_earliest + to_latest + (to_offset is not None) + (to_time is not None) != 1:
        raise typer.BadParameter("one of --to-earliest, --to-latest, --to-offset and --to-time")
    if to_time is not None:
        return FromTime(parse_when(to_time, SYSTEM_CLOCK.now_ms()))
    if to_offset is not None:
        return FromOffset(to_offset)
    return Edge.BEGINNING if to_earliest else Edge.END


def _spans(topic: str, bootstrap: str, start: Start, partition: int | None) -> list[Span]:
    reading = Reading(topic, bootstrap)
    try:
        return reading.spans(start, partition=partition)
    finally:
        reading.close()


def _execute(admin: Admin, group: str, topic: str, moves: Sequence[Move]) -> None:
    wanted = [TopicPartition(topic, move.partition, move.new) for move in moves]
    request = ConsumerGroupTopicPartitions(group, wanted)
    (future,) = admin.client.alter_consumer_group_offsets([request]).values()
    for place in _answer(admin, group, future).topic_partitions:
        if place.error is not None:
            raise _named(group, place.error, admin.bootstrap)


def _outcome(group: str, members: Sequence[MemberDescription], executed: bool) -> str:
    if executed:
        return f"Reset group {escape(group)}."
    if members:
        return (
            f"Nothing is changed yet. Group {escape(group)} has {_count(members)}: "
            "stop them before you add --execute."
        )
    return "Nothing is changed yet: add --execute to do it."


def _check_unused(group: str, members: Sequence[MemberDescription]) -> None:
    if members:
        first = members[0]
        raise GroupInUseError(
            f'group "{group}" has {_count(members)}, such as {first.client_id} '
            f"at {first.host.removeprefix('/')}: stop them first"
        )


def _count(members: Sequence[MemberDescription]) -> str:
    return "1 member" if len(members) == 1 else f"{len(members)} members"


def _group_ids(admin: Admin) -> list[str]:
    admin.topics()  # Finds an unreachable broker in seconds; asking for groups waits for a minute.
    found = admin.answer(admin.client.list_consumer_groups())
    for error in found.errors:
        raise as_our_error(error.args[0], admin.bootstrap)
    return [listed.group_id for listed in found.valid]


def _describe(admin: Admin, group_ids: Sequence[str]) -> dict[str, ConsumerGroupDescription]:
    if not group_ids:
        return {}
    answers = admin.client.describe_consumer_groups(list(group_ids))
    return {group: _answer(admin, group, future) for group, future in answers.items()}


def _group(admin: Admin, group: str) -> ConsumerGroupDescription:
    """A group that exists. Describing one that does not is no error in Kafka: it is dead."""
    known = _group_ids(admin)
    if group not in known:
        raise no_such_group(group, known)
    return _describe(admin, [group])[group]


def no_such_group(name: str, known: Sequence[str]) -> NoSuchGroupError:
    close = get_close_matches(name, known, n=1)
    hint = (
        f'did you mean "{close[0]}"?' if close else "`stratalog group list` shows those there are"
    )
    return NoSuchGroupError(f'there is no group "{name}": {hint}')


def _committed(admin: Admin, group: str) -> dict[Place, int]:
    request = ConsumerGroupTopicPartitions(group)
    (future,) = admin.client.list_consumer_group_offsets([request]).values()
    return {
        (place.topic, place.partition): place.offset
        for place in _answer(admin, group, future).topic_partitions
        if place.offset >= 0
    }


def _ends(
    admin: Admin, members: Sequence[MemberDescription], committed: Mapping[Place, int]
) -> dict[Place, int]:
    """The ends of all partitions that still exist."""
    topics = admin.topics()
    wanted = {
        TopicPartition(topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
        for topic, partition in {*committed, *(at for one in members for at in _places(one))}
        if topic in topics and partition in topics[topic].partitions
    }
    answers = admin.client.list_offsets(wanted) if wanted else {}
    return {
        (place.topic, place.partition): admin.answer(future).offset
        for place, future in answers.items()
    }


def _places(member: MemberDescription) -> list[Place]:
    return [(place.topic, place.partition) for place in member.assignment.topic_partitions]


def _state(group: ConsumerGroupDescription) -> str:
    """The client knows no name for what only the newer kind of groups goes through."""
    return STATES.get(group.state, "Unknown")


def _dashes(row: Sequence[object]) -> list[object]:
    return ["-" if cell is None else cell for cell in row]


def _answer(admin: Admin, group: str, future: Any) -> Any:
    try:
        return admin.answer(future)
    except BrokerRefusedError as error:
        cause = error.__cause__
        if isinstance(cause, KafkaException):
            raise _named(group, cause.args[0], admin.bootstrap) from error
        raise


def _named(group: str, error: KafkaError, bootstrap: str) -> Exception:
    """The broker's refusal, with the group's name. Members may have come since we looked."""
    if error.code() in (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID):
        return GroupInUseError(f'group "{group}" has members now: stop them first')
    ours = as_our_error(error, bootstrap)
    return BrokerRefusedError(f"{group}: {ours}") if isinstance(ours, BrokerRefusedError) else ours
