"""Where the cluster's own segments lie, as the control plane notes it."""

import pytest
from tests.contract.control.building import batch, commit, part
from tests.contract.control.pipeline_building import claim, expire
from tests.contract.control.segment_building import finished

from stratalog.control.identity.model import StoreRole
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic


async def test_nothing_is_noted_before_somebody_does(plane: ControlPlane) -> None:
    assert (await plane.identity.cluster()).segments_apart is None
    assert (await plane.identity.first_claim(StoreRole.BLOCKS)).segments_apart is None


@pytest.mark.parametrize("apart", [False, True])
async def test_the_first_note_stays_once_there_are_segments(
    plane: ControlPlane, topic: Topic, apart: bool
) -> None:
    assert await plane.identity.note_segments_apart(apart) is apart
    await commit(plane, batch(part(topic), 5))
    await finished(plane, part(topic), 0, 4)
    assert await plane.identity.note_segments_apart(not apart) is apart
    assert (await plane.identity.cluster()).segments_apart is apart
    assert (await plane.identity.first_claim(StoreRole.BLOCKS)).segments_apart is apart


async def test_segments_from_before_the_note_do_not_keep_it_from_being_made(
    plane: ControlPlane, topic: Topic
) -> None:
    await commit(plane, batch(part(topic), 5))
    await finished(plane, part(topic), 0, 4)
    assert await plane.identity.note_segments_apart(True)
    assert await plane.identity.note_segments_apart(False)


async def test_without_segments_the_last_note_holds(plane: ControlPlane) -> None:
    assert await plane.identity.note_segments_apart(True)
    assert not await plane.identity.note_segments_apart(False)
    assert await plane.identity.note_segments_apart(True)


async def test_the_note_stays_while_somebody_may_be_making_segments(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await plane.identity.note_segments_apart(False)
    await commit(plane, batch(part(topic), 5))
    await claim(plane, part(topic))
    assert not await plane.identity.note_segments_apart(True)
    await expire(database)
    assert await plane.identity.note_segments_apart(True)


async def test_segments_that_were_moved_are_noted_anew(plane: ControlPlane, topic: Topic) -> None:
    await plane.identity.note_segments_apart(False)
    await commit(plane, batch(part(topic), 5))
    await finished(plane, part(topic), 0, 4)
    assert await plane.identity.note_segments_apart(True, moved=True)
    assert (await plane.identity.cluster()).segments_apart
