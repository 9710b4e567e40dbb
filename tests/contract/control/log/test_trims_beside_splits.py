"""Records are removed while the pipeline swaps their rows."""

import os

import pytest
from tests.contract.control.between import Between
from tests.contract.control.building import batch, commit, part, state_of
from tests.contract.control.pipeline_building import claim, rows_in, split
from tests.contract.control.tiers import assert_consistent

from stratalog.control.pipeline.model import SplitOutcome
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, TopicPartition


async def four_rows(plane: ControlPlane, key: TopicPartition) -> None:
    for _ in range(4):
        await commit(plane, batch(key, 5))


async def racing(
    plane: ControlPlane, database: Database, key: TopicPartition, rows: int
) -> ControlPlane:
    """A control plane under which the first so many rows become one, after its first look."""
    file = split((await claim(plane, key), (await rows_in(plane, key))[:rows]))

    async def swap() -> None:
        assert await plane.pipeline.commit_split(file) == [SplitOutcome.SWAPPED]

    return ControlPlane(Between(database, swap), os.urandom)


@pytest.mark.parametrize(("rows", "start"), [(4, 0), (3, 0), (2, 10)])
async def test_retention_leaves_no_start_inside_a_row_that_a_split_made_meanwhile(
    plane: ControlPlane, topic: Topic, database: Database, rows: int, start: int
) -> None:
    key = part(topic)
    await four_rows(plane, key)
    half = (await state_of(plane, key)).size_bytes // 2
    overtaken = await racing(plane, database, key, rows)
    await overtaken.log.enforce_retention(
        key, retention_ms=None, retention_bytes=half, max_rows=100
    )
    after = await state_of(plane, key)
    assert (after.log_start, after.block_start) == (start, start)
    await assert_consistent(plane, key)


@pytest.mark.parametrize(("rows", "block_start"), [(4, 0), (3, 0), (2, 10)])
async def test_records_are_deleted_while_a_split_moves_the_edges_of_their_rows(
    plane: ControlPlane, topic: Topic, database: Database, rows: int, block_start: int
) -> None:
    key = part(topic)
    await four_rows(plane, key)
    overtaken = await racing(plane, database, key, rows)
    [deleted] = await overtaken.log.delete_records({key: Offset(10)})
    after = await state_of(plane, key)
    assert (deleted.log_start, after.log_start) == (10, 10)
    assert after.block_start == block_start
    await assert_consistent(plane, key)


async def test_what_is_left_of_a_row_that_overtook_a_deletion_goes_with_all_its_bytes(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await four_rows(plane, key)
    await (await racing(plane, database, key, 4)).log.delete_records({key: Offset(10)})
    await plane.log.delete_records({key: Offset(20)})
    assert (await state_of(plane, key)).size_bytes == 0
    await assert_consistent(plane, key)
