"""The promises of both server-side assignors, and the additional ones of the uniform assignor."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.groups.consumer.assignment import AssignedMember, AssignmentTask, Assignor
from stratalog.groups.consumer.assignors import ASSIGNORS
from stratalog.groups.consumer.model import Partitions
from stratalog.groups.consumer.range_assignor import assign_ranges
from stratalog.groups.consumer.uniform_assignor import assign_uniformly
from stratalog.ids import PartitionIndex, TopicId, TopicPartition

TOPICS = [TopicId(UUID(int=number)) for number in range(1, 6)]
MEMBERS = [f"member-{number}" for number in range(8)]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12))
subscriptions = st.frozensets(st.sampled_from(TOPICS))
every_assignor = pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS.keys())


@st.composite
def tasks(draw: st.DrawFn, *, alike: bool = False) -> AssignmentTask:
    """Groups of which the last target may be anything that is disjoint."""
    partition_counts = draw(counts)
    ids = draw(st.lists(st.sampled_from(MEMBERS), unique=True, min_size=1))
    wanted = draw(subscriptions) if alike else None
    current: dict[str, set[TopicPartition]] = {member_id: set() for member_id in ids}
    for partition in draw(st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 14)))):
        owner = draw(st.sampled_from(ids))
        current[owner].add(TopicPartition(partition[0], PartitionIndex(partition[1])))
    return AssignmentTask(
        members={
            member_id: AssignedMember(
                topic_ids=draw(subscriptions) if wanted is None else wanted,
                current=frozenset(current[member_id]),
                instance_id=draw(st.none() | st.just(f"instance-{member_id}")),
            )
            for member_id in ids
        },
        partition_counts=partition_counts,
    )


def wanted_partitions(task: AssignmentTask) -> set[TopicPartition]:
    return {each for topic_id in task.subscribed for each in task.partitions_of(topic_id)}


def again(task: AssignmentTask, given: dict[str, Partitions]) -> AssignmentTask:
    """The same task, asked after its answer was put into force."""
    return AssignmentTask(
        members={
            key: AssignedMember(
                topic_ids=member.topic_ids, current=given[key], instance_id=member.instance_id
            )
            for key, member in task.members.items()
        },
        partition_counts=task.partition_counts,
    )


@every_assignor
@given(task=tasks())
def test_every_subscribed_partition_goes_to_exactly_one_subscriber(
    assign: Assignor, task: AssignmentTask
) -> None:
    given = assign(task)
    assert given.keys() == task.members.keys()
    everything = [partition for partitions in given.values() for partition in partitions]
    assert len(everything) == len(set(everything))
    assert set(everything) == wanted_partitions(task)
    for member_id, partitions in given.items():
        assert {each.topic_id for each in partitions} <= task.members[member_id].topic_ids


@every_assignor
@given(task=tasks())
def test_what_was_assigned_stays_while_nothing_changes(
    assign: Assignor, task: AssignmentTask
) -> None:
    given = assign(task)
    assert assign(again(task, given)) == given


@given(task=tasks(alike=True))
def test_uniform_loads_differ_by_one_and_no_more_moves_than_that_needs(
    task: AssignmentTask,
) -> None:
    given = assign_uniformly(task)
    loads = [len(partitions) for partitions in given.values()]
    assert max(loads) - min(loads) <= 1
    kept = sum(len(given[key] & member.current) for key, member in task.members.items())
    assert kept == most_that_can_stay(task)


def most_that_can_stay(task: AssignmentTask) -> int:
    """Every member keeps as much as an even share allows; the larger shares go where they save
    most."""
    least, odd = divmod(len(wanted_partitions(task)), len(task.members))
    had = sorted((len(task.may_keep(each)) for each in task.members.values()), reverse=True)
    return sum(min(size, least + (place < odd)) for place, size in enumerate(had))


@given(task=tasks())
def test_uniform_leaves_no_two_members_that_one_move_would_even_out(task: AssignmentTask) -> None:
    given = assign_uniformly(task)
    for giver, partitions in given.items():
        for partition in partitions:
            for taker, member in task.members.items():
                if partition.topic_id in member.topic_ids:
                    assert len(given[giver]) - len(given[taker]) <= 1


@given(task=tasks(alike=True), count=st.integers(1, 12))
def test_range_gives_like_partitions_of_like_topics_to_one_member(
    task: AssignmentTask, count: int
) -> None:
    even = AssignmentTask(members=task.members, partition_counts=dict.fromkeys(TOPICS, count))
    given = assign_ranges(even)
    for partitions in given.values():
        by_topic = {
            topic_id: {each.partition for each in partitions if each.topic_id == topic_id}
            for topic_id in even.subscribed
        }
        assert len({frozenset(indexes) for indexes in by_topic.values()}) <= 1
        for indexes in by_topic.values():
            assert not indexes or max(indexes) - min(indexes) == len(indexes) - 1


def test_range_does_not_move_static_members_when_their_ids_change() -> None:
    def task(*ids: str) -> AssignmentTask:
        members = {
            member_id: AssignedMember(topic_ids=frozenset(TOPICS[:1]), instance_id=f"i{place}")
            for place, member_id in enumerate(ids)
        }
        return AssignmentTask(members=members, partition_counts={TOPICS[0]: 5})

    before, after = assign_ranges(task("a", "b")), assign_ranges(task("z", "b"))
    assert before["a"] == after["z"]
    assert before["b"] == after["b"]
