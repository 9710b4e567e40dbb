from typing import Any
from uuid import UUID

import pytest
from tests.unit.admin.office import ALICE, Office

from stratalog.admin.entries import DONE
from stratalog.admin.errors import (
    DuplicateEntryError,
    InvalidTopicNameError,
    PartitionAssignmentError,
    ReplicationFactorError,
    TopicLimitError,
    UnknownTopicIdError,
)
from stratalog.admin.replica_assignments import AssignedPartition
from stratalog.admin.topics import CreatedTopic, NewTopic, PartitionGrowth, TopicName
from stratalog.control.topics.errors import (
    PartitionCountError,
    TopicExistsError,
    UnknownTopicError,
)
from stratalog.control.topics.model import MAX_PARTITIONS, Topic
from stratalog.errors import CallError, TopicConfigError


async def names(office: Office) -> list[str]:
    return [topic.name for topic in await office.control.topics.all()]


async def partition_count(office: Office) -> int:
    return (await office.admin.topics.find(ALICE, "orders")).partition_count


async def test_a_topic_is_created_with_the_defaults_of_the_settings(office: Office) -> None:
    [created] = (await office.admin.topics.create(ALICE, [NewTopic(name="new")])).values()
    assert isinstance(created, CreatedTopic)
    [stored] = await office.control.topics.named(["new"])
    assert (created.topic_id, created.partition_count) == (stored.id, 4)
    described = {config.name: config.candidates[0].value for config in created.configs}
    assert described["retention.ms"] == "5000"


async def test_a_topic_that_is_only_validated_is_not_created(office: Office) -> None:
    new = NewTopic(name="new", partition_count=2, configs={"segment.ms": "9"})
    outcomes = await office.admin.topics.create(ALICE, [new], validate_only=True)
    created = outcomes["new"]
    assert isinstance(created, CreatedTopic)
    assert (created.topic_id, created.partition_count) == (None, 2)
    assert await names(office) == ["orders"]


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (NewTopic(name="orders"), TopicExistsError),
        (NewTopic(name="no/slash"), InvalidTopicNameError),
        (NewTopic(name="t", partition_count=0), PartitionCountError),
        (NewTopic(name="t", partition_count=MAX_PARTITIONS + 1), PartitionCountError),
        (NewTopic(name="t", replication_factor=0), ReplicationFactorError),
        (NewTopic(name="t", replication_factor=-2), ReplicationFactorError),
        (NewTopic(name="t", configs={"no.such": "1"}), TopicConfigError),
    ],
)
async def test_a_topic_that_breaks_a_rule_is_refused_and_others_are_created(
    office: Office, new: NewTopic, error: type[Exception]
) -> None:
    good = NewTopic(name="good", partition_count=1, replication_factor=3)
    outcomes = await office.admin.topics.create(ALICE, [new, good])
    assert isinstance(outcomes[new.name], error)
    assert isinstance(outcomes["good"], CreatedTopic)
    assert await names(office) == ["good", "orders"]


async def test_an_existing_topic_is_told_before_any_other_mistake(office: Office) -> None:
    mistaken = [
        NewTopic(name="orders", configs={"no.such": "1"}),
        NewTopic(name="orders", partition_count=0),
        NewTopic(name="orders", replication_factor=0),
        NewTopic(name="orders", assigned=[AssignedPartition(0, [99])]),
    ]
    for new in mistaken:
        assert isinstance(
            (await office.admin.topics.create(ALICE, [new]))["orders"], TopicExistsError
        )


async def test_replicas_that_are_assigned_by_hand_say_how_many_partitions_there_are(
    office: Office,
) -> None:
    own = office.membership.broker_id
    new = NewTopic(name="new", assigned=[AssignedPartition(1, [own]), AssignedPartition(0, [own])])
    created = (await office.admin.topics.create(ALICE, [new]))["new"]
    assert isinstance(created, CreatedTopic)
    assert created.partition_count == 2
    growth = PartitionGrowth(topic="new", partition_count=3, assigned=[[own]])
    assert (await office.admin.topics.add_partitions(ALICE, [growth]))["new"] == DONE


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"assigned": [AssignedPartition(1, [0])]}, PartitionAssignmentError),
        ({"assigned": [AssignedPartition(0, [0])] * 2}, PartitionAssignmentError),
        ({"assigned": [AssignedPartition(0, [])]}, PartitionAssignmentError),
        ({"assigned": [AssignedPartition(0, [0, 0])]}, PartitionAssignmentError),
        ({"assigned": [AssignedPartition(0, [99])]}, PartitionAssignmentError),
        ({"assigned": [AssignedPartition(0, [0])], "partition_count": 1}, CallError),
        ({"assigned": [AssignedPartition(0, [0])], "replication_factor": 1}, CallError),
    ],
)
async def test_an_assignment_that_kafka_would_refuse_is_refused(
    office: Office, more: dict[str, Any], error: type[Exception]
) -> None:
    assert office.membership.broker_id == 0
    outcome = (await office.admin.topics.create(ALICE, [NewTopic(name="t", **more)]))["t"]
    assert type(outcome) is error
    assert await names(office) == ["orders"]


@pytest.mark.parametrize("assigned", [[], [[0]], [[0], []], [[0], [0, 0]], [[0], [99]]])
async def test_new_partitions_need_one_list_of_known_brokers_each(
    office: Office, assigned: list[list[int]]
) -> None:
    growth = PartitionGrowth(topic="orders", partition_count=5, assigned=assigned)
    outcome = (await office.admin.topics.add_partitions(ALICE, [growth]))["orders"]
    assert isinstance(outcome, PartitionAssignmentError)
    assert await partition_count(office) == 3


async def test_a_topic_that_is_named_twice_is_not_created(office: Office) -> None:
    twice = [NewTopic(name="new"), NewTopic(name="new", partition_count=2)]
    outcomes = await office.admin.topics.create(ALICE, twice)
    assert isinstance(outcomes["new"], DuplicateEntryError)
    assert str(outcomes["new"]) == "the request names topic 'new' 2 times"
    assert await names(office) == ["orders"]


async def test_names_that_metrics_cannot_tell_apart_are_refused(office: Office) -> None:
    outcomes = await office.admin.topics.create(ALICE, [NewTopic(name="a.b"), NewTopic(name="a_b")])
    assert isinstance(outcomes["a.b"], CreatedTopic)
    assert isinstance(outcomes["a_b"], InvalidTopicNameError)


async def test_first_use_creates_a_topic_or_finds_it(office: Office) -> None:
    created = await office.admin.topics.create_on_first_use(ALICE, "new")
    assert created.partition_count == 4
    assert (await office.admin.topics.create_on_first_use(ALICE, "new")).id == created.id


async def test_a_topic_grows_and_never_shrinks(office: Office) -> None:
    growth = PartitionGrowth(topic="orders", partition_count=5)
    await office.admin.topics.add_partitions(ALICE, [growth], validate_only=True)
    assert await partition_count(office) == 3
    await office.admin.topics.add_partitions(ALICE, [growth])
    assert await partition_count(office) == 5
    outcomes = await office.admin.topics.add_partitions(ALICE, [growth])
    assert isinstance(outcomes["orders"], PartitionCountError)


async def test_partitions_of_a_missing_topic_or_on_a_missing_broker_are_refused(
    office: Office,
) -> None:
    wanted = [
        PartitionGrowth(topic="nope", partition_count=5),
        PartitionGrowth(topic="orders", partition_count=5, assigned=[[0], [99]]),
    ]
    outcomes = await office.admin.topics.add_partitions(ALICE, wanted)
    assert isinstance(outcomes["nope"], UnknownTopicError)
    assert isinstance(outcomes["orders"], PartitionAssignmentError)


@pytest.mark.parametrize("by_id", [False, True])
async def test_a_topic_is_deleted_by_name_or_by_id(office: Office, by_id: bool) -> None:
    wanted = TopicName(topic_id=office.orders.id) if by_id else TopicName(name="orders")
    [deleted] = (await office.admin.topics.delete(ALICE, [wanted])).values()
    assert isinstance(deleted, Topic)
    assert (deleted.name, deleted.id) == ("orders", office.orders.id)
    assert await names(office) == []


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (TopicName(name="nope"), UnknownTopicError),
        (TopicName(topic_id=UUID(int=9)), UnknownTopicIdError),
        (TopicName(name="orders", topic_id=UUID(int=9)), CallError),
        (TopicName(), CallError),
    ],
)
async def test_a_topic_that_cannot_be_found_is_not_deleted(
    office: Office, wanted: TopicName, error: type[Exception]
) -> None:
    assert isinstance((await office.admin.topics.delete(ALICE, [wanted]))[wanted], error)
    assert await names(office) == ["orders"]


async def test_the_error_about_an_unknown_topic_suggests_a_known_one(office: Office) -> None:
    with pytest.raises(UnknownTopicError, match='did you mean "orders"'):
        await office.admin.topics.find(ALICE, "order")


async def test_topics_of_one_request_share_its_limit_of_partitions(office: Office) -> None:
    wanted = [NewTopic(name=f"wide-{number}", partition_count=4000) for number in range(3)]
    outcomes = await office.admin.topics.create(ALICE, wanted, validate_only=True)
    assert isinstance(outcomes["wide-1"], CreatedTopic)
    assert isinstance(outcomes["wide-2"], TopicLimitError)
