"""Objects of others in the same place: another cluster's, Kafka's, and of a lost future."""

from pathlib import Path
from uuid import UUID

from tests.integration.janitor.segments.janitor_work import sweeper_of as segment_sweeper_of
from tests.integration.segment_cluster import SegmentCluster
from tests.integration.small_cluster import ShiftedClock, SmallCluster

from stratalog.block.keys import block_key, split_key
from stratalog.control.topics.model import Topic
from stratalog.control.writers.model import WriterKind
from stratalog.ids import ObjectId, WriterTag, tagged_uuid7, uuid7
from stratalog.janitor.sweeper import Sweeper
from stratalog.settings import HOUR_MS

GOLDEN = Path(__file__).parents[2] / "golden" / "aiven_compress-false_encrypt-false" / "pfx"


def sweeper_of(cluster: SmallCluster) -> Sweeper:
    return Sweeper(cluster.control, cluster.store, clock=cluster.later, orphan_age_ms=HOUR_MS)


async def put_each(cluster: SmallCluster, *ids: ObjectId) -> list[str]:
    """The ids become keys of blocks and of split files in turns."""
    keys = [(block_key, split_key)[at % 2](each) for at, each in enumerate(ids)]
    for key in keys:
        await cluster.store.put(key, [b"foreign data"])
    return keys


async def test_segments_of_kafkas_plugin_are_never_swept(cluster: SmallCluster) -> None:
    segments = await SegmentCluster.make(cluster, segments=1)
    kafkas = {
        f"segments/{file.relative_to(GOLDEN)}": file.read_bytes()
        for file in GOLDEN.rglob("*")
        if file.is_file()
    }
    assert len(kafkas) == 3
    for key, data in kafkas.items():
        await cluster.store.put(key, [data])
    for _ in range(2):
        swept = await segment_sweeper_of(segments).sweep()
        assert (swept.deleted, swept.foreign) == (0, 3)
    assert [bytes((await cluster.store.get(key)).data) for key in kafkas] == [*kafkas.values()]


async def test_objects_of_a_writer_that_was_never_announced_here_are_never_swept(
    cluster: SmallCluster, topic: Topic
) -> None:
    now_ms = ShiftedClock().now_ms()
    unknown = [ObjectId(tagged_uuid7(now_ms, WriterTag(0x0DD))) for _ in range(2)]
    of_version_4 = UUID(int=uuid7(now_ms).int, version=4)
    keys = await put_each(cluster, *unknown, ObjectId(of_version_4))
    swept = await sweeper_of(cluster).sweep()
    # A block with an id of version 4 is none of ours by its key alone.
    assert (swept.deleted, swept.foreign) == (0, 3)
    assert {info.key async for info in cluster.store.list("")} >= {*keys}


async def test_objects_from_before_the_announcement_are_never_swept(
    cluster: SmallCluster, topic: Topic
) -> None:
    tag = WriterTag(0x0DD)
    now_ms = ShiftedClock().now_ms()
    await cluster.control.writers.announce(tag, WriterKind.UNKNOWN)
    before = await put_each(
        cluster, *(ObjectId(tagged_uuid7(now_ms - HOUR_MS, tag)) for _ in range(2))
    )
    after = await put_each(cluster, *(ObjectId(tagged_uuid7(now_ms, tag)) for _ in range(2)))
    assert (await sweeper_of(cluster).sweep()).deleted == 2
    left = {info.key async for info in cluster.store.list("")}
    assert left >= {*before}
    assert left.isdisjoint(after)
