"""Rows in split files of partitions that are held back: parked, or of a paused topic."""

from typing import TypeVar

import pytest
from tests.contract.control.building import (
    batch,
    commit,
    part,
)
from tests.contract.control.pipeline_building import (
    claim,
    rows_in,
    split,
)

from stratalog.control.pipeline.model import SplitOutcome, SplitToCommit
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import ObjectId, Offset, TopicPartition

T = TypeVar("T")
SWAPPED, ROWS_CHANGED, CLAIM_LOST = SplitOutcome


async def write_split(plane: ControlPlane, *keys: TopicPartition, size: int = 100) -> SplitToCommit:
    """One batch for each of the partitions, moved into a split file of their own."""
    await commit(plane, *(batch(key, 5, size=size) for key in keys))
    parts = []
    for key in keys:
        token = await claim(plane, key, also_parked=True, max_attempts=1_000)
        parts.append((token, (await rows_in(plane, key))[-1:]))
    file = split(*parts)
    assert await plane.pipeline.commit_split(file) == [SWAPPED] * len(keys)
    await plane.pipeline.release_claims([token for token, _ in parts], succeeded=False)
    return file


@pytest.mark.parametrize("chunk_files", [1, 64])
async def test_what_paused_topics_and_parked_partitions_have_in_split_files_is_found(
    plane: ControlPlane, topic: Topic, monkeypatch: pytest.MonkeyPatch, chunk_files: int
) -> None:
    monkeypatch.setattr("stratalog.control.pipeline.held_back._CHUNK_FILES", chunk_files)
    other = await plane.topics.create("other", partition_count=2, configs={})
    keys = [part(topic), part(other, 0), part(other, 1)]
    for _ in range(2):
        await write_split(plane, *keys)
        await commit(plane, *(batch(key, 5) for key in keys))

    async def resting(**changes: int) -> list[tuple[TopicPartition, int]]:
        asked = {"max_file_bytes": 300, "more_than": 1, "stuck_for_ms": 60_000, "limit": 100}
        rows = await plane.pipeline.held_back_rows(**asked | changes)
        return [(TopicPartition(row.topic_id, row.partition), row.base_offset) for row in rows]

    assert await resting() == []
    await plane.pipeline.pause(topic.id)
    assert await resting() == [(keys[0], 0), (keys[0], 10)]
    await plane.pipeline.fail_claims({await claim(plane, keys[2]): "bad"}, max_attempts=1)
    both = sorted((key, offset) for key in (keys[0], keys[2]) for offset in (0, 10))
    assert await resting() == both
    assert await resting(limit=3) == both[:3]
    assert await resting(more_than=2) == []
    assert await resting(max_file_bytes=299) == []
    await plane.pipeline.resume(topic.id)
    await plane.log.delete_records({keys[2]: Offset(10)})
    assert await resting(more_than=0) == [(keys[2], 10)]
    await plane.topics.delete(other.id)
    assert await resting(more_than=0) == []


async def test_many_files_with_few_rows_of_each_partition_are_found_unless_they_are_stuck(
    plane: ControlPlane, topic: Topic
) -> None:
    files = [await write_split(plane, part(topic, index)) for index in range(3)]
    await plane.pipeline.pause(topic.id)

    async def resting(stuck_for_ms: int = 60_000) -> list[ObjectId]:
        rows = await plane.pipeline.held_back_rows(
            max_file_bytes=100, more_than=2, stuck_for_ms=stuck_for_ms, limit=100
        )
        return [row.object_id for row in rows]

    assert await resting() == [file.object_id for file in files]
    await plane.pipeline.note_stuck([files[1].object_id])
    assert await resting() == []
    assert await resting(stuck_for_ms=-1) == [file.object_id for file in files]
