from stratalog.control.model import CommitOutcome, Span, Topic
from stratalog.control.plane import ControlPlane
from stratalog.ids import Offset
from tests.contract.control.building import batch, commit, offsets, outcomes, part


async def test_commit_assigns_dense_offsets(plane: ControlPlane, topic: Topic) -> None:
    first = await commit(plane, batch(part(topic), 3), batch(part(topic), 2), batch(part(topic, 1)))
    second = await commit(plane, batch(part(topic), 4))
    assert outcomes(first) == [CommitOutcome.ACCEPTED] * 3
    assert offsets(first) == [0, 3, 0]
    assert offsets(second) == [5]
    [found] = await plane.find_batches(
        [Span(topic_id=topic.id, partition=part(topic).partition, offset=Offset(0), max_bytes=1000)]
    )
    assert [(row.base_offset, row.last_offset) for row in found.rows] == [(0, 4), (5, 8)]
