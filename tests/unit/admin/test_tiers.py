"""Segments, migrations and orders to the pipeline."""

import pytest
from tests.contract.control.building import batch, commit, part
from tests.contract.control.tiers import two_tiers
from tests.unit.admin.office import ALICE, Office

from stratalog.admin.migration import MigrationOutcome
from stratalog.control.topics.errors import MigrationRefusedError, UnknownTopicError
from stratalog.control.topics.migration_state import Tier
from stratalog.control.topics.model import PartitionToAdopt, TopicToAdopt
from stratalog.ids import Offset, PartitionIndex, TopicId, new_uuid

FIRST = PartitionIndex(0)


async def adopt_empty(office: Office) -> None:
    partition = PartitionToAdopt(
        partition=FIRST, log_start=Offset(7), segments=[], epochs=[], producers=[]
    )
    topic = TopicToAdopt(
        topic_id=TopicId(new_uuid()), name="adopted", configs={}, partitions=[partition]
    )
    await office.control.topics.adopt(topic)


async def test_segments_are_listed_in_the_order_of_their_offsets(office: Office) -> None:
    await two_tiers(office.control, part(office.orders))
    found = await office.admin.segments.list_segments(ALICE, "orders")
    assert [segment.base_offset for segment in found] == [0, 20, 40]
    assert await office.admin.segments.list_segments(ALICE, "orders", PartitionIndex(1)) == []
    everything = await office.admin.segments.list_segments(ALICE, "orders", unchained=True)
    assert [segment.base_offset for segment in everything] == [0, 20, 40]


@pytest.mark.parametrize(
    ("offset", "tier", "first"),
    [(25, Tier.REMOTE, 20), (75, Tier.BLOCK, 70), (100, Tier.NONE, None)],
)
async def test_an_offset_is_located_in_its_tier(
    office: Office, offset: int, tier: Tier, first: int | None
) -> None:
    await two_tiers(office.control, part(office.orders))
    found = await office.admin.segments.locate(ALICE, "orders", FIRST, Offset(offset))
    assert found.tier is tier
    assert (None if found.stored is None else found.stored.first) == first


async def test_a_partition_that_does_not_exist_is_refused_with_the_range(office: Office) -> None:
    with pytest.raises(UnknownTopicError, match="orders has no partition 3, only 0 to 2"):
        await office.admin.segments.list_segments(ALICE, "orders", PartitionIndex(3))
    with pytest.raises(UnknownTopicError, match="orders has no partition 3, only 0 to 2"):
        await office.admin.segments.locate(ALICE, "orders", PartitionIndex(3), Offset(0))


async def test_every_segment_is_exported_with_two_records(office: Office) -> None:
    await two_tiers(office.control, part(office.orders))
    records = await office.admin.segments.export(ALICE, "orders")
    assert [record.partition for record in records] == [part(office.orders)] * 6
    assert await office.control.segments.shared_topics([office.orders.id]) == {office.orders.id}


async def test_segments_of_this_cluster_need_no_change_of_owner(office: Office) -> None:
    await two_tiers(office.control, part(office.orders))
    assert await office.admin.segments.own(ALICE, "orders") == 0


async def test_an_adopted_topic_is_opened_for_writes_once(office: Office) -> None:
    await adopt_empty(office)
    migration = office.admin.migration
    assert await migration.open_for_writes(ALICE, "adopted") is MigrationOutcome.OPENED
    assert await migration.open_for_writes(ALICE, "adopted") is MigrationOutcome.ALREADY_OPEN
    assert await migration.open_for_writes(ALICE, "orders") is MigrationOutcome.ALREADY_OPEN


async def test_a_finished_migration_cannot_be_aborted(office: Office) -> None:
    await adopt_empty(office)
    await office.admin.migration.open_for_writes(ALICE, "adopted")
    with pytest.raises(MigrationRefusedError):
        await office.admin.migration.abort(ALICE, "adopted")


async def test_a_paused_topic_says_so_when_it_is_triggered(office: Office) -> None:
    await commit(office.control, batch(part(office.orders)))
    tiering = office.admin.tiering
    assert await tiering.trigger(ALICE, "orders")
    await tiering.pause(ALICE, "orders")
    assert not await tiering.trigger(ALICE, "orders")
    await tiering.resume(ALICE, "orders")
    assert await tiering.trigger(ALICE, "orders")


async def test_orders_for_a_topic_that_does_not_exist_are_refused(office: Office) -> None:
    with pytest.raises(UnknownTopicError, match='no topic "nope"'):
        await office.admin.tiering.pause(ALICE, "nope")
    assert await office.admin.tiering.unpark(ALICE, "orders") == 0
    assert await office.admin.tiering.runs(ALICE, limit=5) == []
