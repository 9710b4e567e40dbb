import pytest
from tests.unit.admin.office import ALICE, Office

from stratalog.admin.entries import DONE, PartitionName
from stratalog.admin.rights import DESCRIBE_CLUSTER
from stratalog.control.groups.model import OffsetToCommit
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.groups.errors import GroupNotFoundError, InvalidGroupIdError
from stratalog.groups.group import Committer
from stratalog.ids import Offset, PartitionIndex

ADMIN = Committer(member_id="", instance_id=None, epoch=-1)


async def commit(office: Office, group_id: str = "readers", offset: int = 5) -> None:
    one = OffsetToCommit(
        topic_id=office.orders.id,
        partition=PartitionIndex(0),
        offset=Offset(offset),
        leader_epoch=-1,
        metadata="",
    )
    await office.coordinator.commit_offsets(group_id, ADMIN, [one])


async def offsets(office: Office, group_id: str = "readers") -> list[int]:
    return [one.offset for one in await office.control.groups.offsets(group_id, None)]


async def test_a_group_without_members_is_deleted_with_its_offsets(office: Office) -> None:
    await commit(office)
    outcomes = await office.admin.groups.delete(ALICE, ["readers", "nobody", "a\0b"])
    assert outcomes["readers"] == DONE
    assert isinstance(outcomes["nobody"], GroupNotFoundError)
    assert isinstance(outcomes["a\0b"], InvalidGroupIdError)
    assert await offsets(office) == []


async def test_offsets_are_deleted_partition_by_partition(office: Office) -> None:
    await commit(office)
    wanted = [PartitionName("orders", 0), PartitionName("orders", 9), PartitionName("nope", 0)]
    done, *refused = await office.admin.groups.delete_offsets(ALICE, "readers", wanted)
    assert done == DONE
    assert [type(refusal) for refusal in refused] == [UnknownTopicError, UnknownTopicError]
    assert await offsets(office) == []


async def test_offsets_of_a_missing_group_cannot_be_deleted(office: Office) -> None:
    with pytest.raises(GroupNotFoundError):
        await office.admin.groups.delete_offsets(ALICE, "nobody", [PartitionName("orders", 0)])


async def test_groups_are_listed_by_state_and_kind_in_any_case(office: Office) -> None:
    await commit(office)

    async def listed(**filters: list[str]) -> list[str]:
        found = await office.admin.groups.list_groups(ALICE, **filters)
        return [summary.group_id for summary in found]

    assert await listed() == ["readers"]
    assert await listed(states=["EMPTY"], kinds=["Classic"]) == ["readers"]
    assert await listed(states=["Stable"]) == []
    assert await listed(kinds=["consumer"]) == []


async def test_a_principal_sees_the_groups_that_it_may_describe(office: Office) -> None:
    await commit(office, "mine")
    await commit(office, "theirs")
    office.doorkeeper.refused = lambda right, name: right == DESCRIBE_CLUSTER or name == "theirs"
    found = await office.admin.groups.list_groups(ALICE)
    assert [summary.group_id for summary in found] == ["mine"]


async def test_a_group_is_described_by_its_own_kind_alone(office: Office) -> None:
    await commit(office)
    description = await office.admin.groups.describe_classic(ALICE, "readers")
    assert description.members == []
    with pytest.raises(GroupNotFoundError):
        await office.admin.groups.describe_consumer(ALICE, "readers")
    with pytest.raises(InvalidGroupIdError):
        await office.admin.groups.describe_consumer(ALICE, "")
