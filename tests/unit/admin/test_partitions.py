"""Records and partitions: deletion, sizes, producers, and moves that are refused."""

from tests.contract.control.building import batch, commit, part
from tests.unit.admin.office import ALICE, Office

from stratalog.admin.entries import DONE, PartitionName
from stratalog.admin.errors import (
    ElectionNotNeededError,
    NoReassignmentError,
    PartitionAssignmentError,
)
from stratalog.admin.partitions import PartitionSize, Reassignment
from stratalog.admin.records import HIGH_WATERMARK, RecordDeletion
from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.errors import StratalogError
from stratalog.ids import Offset, PartitionIndex

FIRST = PartitionName("orders", 0)
MISSING = PartitionName("orders", 3)
NO_TOPIC = PartitionName("nope", 0)


def deletion(partition: PartitionName, before: int) -> RecordDeletion:
    return RecordDeletion(partition=partition, before=Offset(before))


async def test_records_before_an_offset_are_deleted(office: Office) -> None:
    await commit(office.control, batch(part(office.orders), 10))
    wanted = [deletion(FIRST, 4), deletion(FIRST, HIGH_WATERMARK)]
    assert await office.admin.records.delete(ALICE, wanted) == [4, 10]


async def test_each_deletion_succeeds_or_fails_by_itself(office: Office) -> None:
    await commit(office.control, batch(part(office.orders), 10))
    wanted = [deletion(FIRST, 11), deletion(MISSING, 0), deletion(NO_TOPIC, 0), deletion(FIRST, 1)]
    outcomes = await office.admin.records.delete(ALICE, wanted)
    expected = [OffsetOutOfRangeError, UnknownTopicError, UnknownTopicError]
    assert [type(outcome) for outcome in outcomes[:3]] == expected
    assert outcomes[3] == 1


async def test_sizes_of_the_partitions_that_the_broker_leads_are_told(office: Office) -> None:
    await commit(office.control, batch(part(office.orders, 1), size=300))
    sizes = [
        PartitionSize(partition=PartitionIndex(index), size_bytes=size)
        for index, size in enumerate([0, 300, 0])
    ]
    assert await office.admin.partitions.led_sizes(ALICE) == {"orders": sizes}
    some = await office.admin.partitions.led_sizes(ALICE, {"orders": [1, 9], "nope": [0]})
    assert some == {"orders": sizes[1:2]}


async def test_producers_of_a_partition_are_described(office: Office) -> None:
    await commit(office.control, batch(part(office.orders), producer=7, sequence=0))
    found, empty, missing = await office.admin.partitions.active_producers(
        ALICE, [FIRST, PartitionName("orders", 1), MISSING]
    )
    assert not isinstance(found, StratalogError)
    assert [producer.producer_id for producer in found] == [7]
    assert empty == []
    assert isinstance(missing, UnknownTopicError)


async def test_no_leader_is_ever_elected(office: Office) -> None:
    refusals = await office.admin.partitions.elect_leaders(ALICE, [FIRST, MISSING, NO_TOPIC])
    expected = [ElectionNotNeededError, UnknownTopicError, UnknownTopicError]
    assert [type(refusal) for refusal in refusals] == expected


async def test_a_partition_can_only_be_assigned_to_its_leader(office: Office) -> None:
    own = office.membership.broker_id
    wanted = [
        Reassignment(partition=FIRST, replicas=[own]),
        Reassignment(partition=FIRST, replicas=[own, own + 1]),
        Reassignment(partition=FIRST, replicas=None),
        Reassignment(partition=MISSING, replicas=[own]),
    ]
    done, *refused = await office.admin.partitions.reassign(ALICE, wanted)
    assert done == DONE
    expected = [PartitionAssignmentError, NoReassignmentError, UnknownTopicError]
    assert [type(refusal) for refusal in refused] == expected
    assert office.admin.partitions.reassignments(ALICE) == []
