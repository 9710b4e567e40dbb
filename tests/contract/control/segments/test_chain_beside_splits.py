"""A segment without a claim is chained while the pipeline swaps its rows."""

import os

import pytest
from tests.contract.control.between import Between
from tests.contract.control.building import batch, commit, part, state_of
from tests.contract.control.pipeline_building import claim, rows_in, split
from tests.contract.control.segment_building import chain_of, finished
from tests.contract.control.tiers import assert_consistent

from stratalog.control.pipeline.model import SplitOutcome
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.errors import BoundaryMovedError
from stratalog.control.segments.model import ChainOutcome
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic


@pytest.mark.parametrize(("rows", "fits"), [(3, False), (2, True)])
async def test_rows_that_are_swapped_after_the_look_keep_a_boundary_at_their_edge(
    plane: ControlPlane, topic: Topic, database: Database, rows: int, fits: bool
) -> None:
    key = part(topic)
    for _ in range(4):
        await commit(plane, batch(key, 5))
    file = split((await claim(plane, key), (await rows_in(plane, key))[:rows]))
    segment = await finished(plane, key, 0, 9)

    async def swap() -> None:
        assert await plane.pipeline.commit_split(file) == [SplitOutcome.SWAPPED]

    racing = ControlPlane(Between(database, swap), os.urandom)
    if fits:
        assert await racing.segments.chain(segment) is ChainOutcome.CHAINED
    else:
        with pytest.raises(BoundaryMovedError, match="inside a row"):
            await racing.segments.chain(segment)
    assert await chain_of(plane, key) == ([(0, 9)] if fits else [])
    assert (await state_of(plane, key)).block_start == (10 if fits else 0)
    await assert_consistent(plane, key)
