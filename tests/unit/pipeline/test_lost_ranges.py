"""A range that is marked as lost: the pipeline and readers go on over it, in every tier."""

import pytest
from tests.unit.pipeline.lab import EAGER, PATIENT, Lab, path_of, spoil, using
from tests.unit.pipeline.losses import mark, plan, problems

from stratalog.admin.errors import StillReadableError
from stratalog.checks.errors import LostRangeError
from stratalog.checks.report import Promise
from stratalog.control.lost.errors import LostRangeBusyError, LostRangeChangedError
from stratalog.control.pipeline.model import UnitKind
from stratalog.ids import PartitionIndex, TopicPartition


@pytest.mark.parametrize("kinds", [(UnitKind.SPLIT, UnitKind.MERGE), (UnitKind.MERGE,)])
@pytest.mark.parametrize("where", [0, 2, 5])
async def test_all_tiers_go_on_over_a_lost_block(
    lab: Lab, kinds: tuple[UnitKind, ...], where: int
) -> None:
    topic = await lab.topic(partitions=1)
    blocks = [await lab.write(topic, {0: [3, 1]}) for _ in range(6)]
    path_of(lab, blocks[where].commit.key).unlink()
    assert await problems(lab)
    found = await plan(lab, topic, 4 * where + 1, 4 * where + 2)
    assert (found.first_offset, found.end_offset) == (4 * where, 4 * where + 4)
    assert found.objects == [blocks[where].commit.key]
    assert not found.readable
    await mark(lab, topic, found)
    await lab.check(topic)
    assert await problems(lab) == []
    await lab.write(topic, {0: [2]})
    for kind in kinds:
        using(lab, PATIENT if kind is UnitKind.SPLIT else EAGER)
        report = await lab.run(kinds=[kind])
        assert report.commits
    await lab.check(topic)
    assert await problems(lab) == []
    [noted] = await lab.control.lost.of_topic(topic.id)
    assert (noted.first_offset, noted.end_offset) == (4 * where, 4 * where + 4)
    assert (noted.reason, noted.noted_by) == ("gone", "User:ANONYMOUS")
    # The lost object is marked like any other that nothing refers to.
    await lab.clean()
    assert await problems(lab) == []


async def test_a_damaged_block_costs_only_its_own_rows(lab: Lab) -> None:
    topic = await lab.topic(partitions=2)
    await lab.fill(topic, blocks=2)
    damaged = await lab.write(topic, {0: [3], 1: [3]})
    await lab.fill(topic, blocks=2)
    spoil(lab, damaged, 0)
    with pytest.raises(StillReadableError, match="offsets 0 to 3"):
        await mark(lab, topic, await plan(lab, topic, 0, 11))
    with pytest.raises(StillReadableError, match="partition 1"):
        await mark(lab, topic, await plan(lab, topic, 8, 11, partition=1))
    await mark(lab, topic, await plan(lab, topic, 8, 11))
    await lab.check(topic)
    assert await problems(lab) == []
    assert (await lab.run()).commits
    await lab.check(topic)


async def test_readable_records_can_be_given_up_by_force(lab: Lab) -> None:
    topic = await lab.topic(partitions=1)
    await lab.fill(topic, blocks=3)
    size = (await lab.state(topic, 0)).size_bytes
    await mark(lab, topic, await plan(lab, topic, 4, 8), force=True)
    await lab.check(topic)
    assert (await lab.state(topic, 0)).size_bytes < size
    assert await problems(lab) == []


@pytest.mark.parametrize("hole", [(0, 4), (4, 12), (20, 24), (0, 24)])
async def test_rows_that_are_lost_are_filled_as_well(lab: Lab, hole: tuple[int, int]) -> None:
    topic = await lab.topic(partitions=1)
    await lab.fill(topic, blocks=6)
    first, end = hole
    database = lab.control.lost._database
    lost_rows = f"DELETE FROM batches WHERE base_offset >= {first} AND last_offset < {end}"
    await database.write(lambda connection: connection.execute(lost_rows))
    assert Promise.DENSE in await problems(lab)
    await mark(lab, topic, await plan(lab, topic, first, end))
    await lab.check(topic)
    assert Promise.DENSE not in await problems(lab)
    await lab.write(topic, {0: [2]})
    assert (await lab.run()).commits
    await lab.check(topic)


async def test_only_ranges_in_blocks_can_be_marked(lab: Lab) -> None:
    topic = await lab.topic(partitions=1)
    await lab.fill(topic)
    await lab.run(kinds=[UnitKind.MERGE])
    for first, end in ((0, 4), (20, 25)):
        with pytest.raises(LostRangeError, match="not all in blocks"):
            await plan(lab, topic, first, end)


async def test_rows_that_changed_since_the_plan_are_not_filled(lab: Lab) -> None:
    topic = await lab.topic(partitions=1)
    await lab.fill(topic)
    found = await plan(lab, topic, 4, 8)
    assert (await using(lab, PATIENT).run()).commits
    with pytest.raises(LostRangeChangedError):
        await mark(lab, topic, found, force=True)
    lab.lost.clear()
    await lab.check(topic)
    assert await lab.control.lost.of_topic(topic.id) == []


async def test_a_range_under_a_claim_is_not_filled(lab: Lab) -> None:
    topic = await lab.topic(partitions=1)
    await lab.fill(topic)
    found = await plan(lab, topic, 4, 8)
    key = TopicPartition(topic.id, PartitionIndex(0))
    await _claim(lab, key)
    with pytest.raises(LostRangeBusyError):
        await mark(lab, topic, found, force=True)
    assert await lab.control.lost.of_topic(topic.id) == []


async def _claim(lab: Lab, key: TopicPartition) -> None:
    database = lab.control.lost._database
    await database.write(
        lambda connection: connection.execute(
            "INSERT INTO claims (topic_id, partition, token, expires_ms, attempts)"
            " VALUES ($1, $2, $1, {now_ms} + 60000, 0)",
            *key,
        )
    )


async def test_a_batch_without_records_and_without_a_note_is_a_hole(lab: Lab) -> None:
    topic = await lab.topic(partitions=1)
    await lab.fill(topic)
    await mark(lab, topic, await plan(lab, topic, 4, 8), force=True)
    database = lab.control.lost._database
    await database.write(lambda connection: connection.execute("DELETE FROM lost_ranges"))
    assert await problems(lab) == [Promise.DENSE]
