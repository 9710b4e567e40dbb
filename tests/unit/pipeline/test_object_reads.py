from itertools import chain
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from stratalog.batch.header import TimestampType
from stratalog.control.log.model import Coordinates
from stratalog.ids import LeaderEpoch, ObjectId, Offset, PartitionIndex, TopicId
from stratalog.objects.ranges import REMOTE_GAP_BYTES
from stratalog.objects.store import Range
from stratalog.pipeline.plan.object_reads import ObjectRead, SourceRow, plan_object_reads


def row(
    partition: int, offset: int, key: str, byte_offset: int, byte_size: int = 10
) -> Coordinates:
    return Coordinates(
        topic_id=TopicId(UUID(int=1)),
        partition=PartitionIndex(partition),
        base_offset=Offset(offset),
        last_offset=Offset(offset),
        object_id=ObjectId(UUID(int=2)),
        object_key=key,
        byte_offset=byte_offset,
        byte_size=byte_size,
        max_timestamp=0,
        timestamp_type=TimestampType.CREATE_TIME,
        committed_ms=0,
        leader_epoch=LeaderEpoch(0),
        stamped=False,
    )


def keys(reads: list[ObjectRead]) -> list[str]:
    return [read.object_key for read in reads]


def test_an_object_that_partitions_share_is_readed_once() -> None:
    units = [
        [row(0, 0, "a", 0), row(0, 1, "b", 0), row(0, 2, "c", 0)],
        [row(1, 0, "b", 10), row(1, 1, "c", 10)],
        [row(2, 0, "a", 10), row(2, 1, "c", 20)],
    ]
    reads = plan_object_reads(units)
    assert keys(reads) == ["a", "b", "c"]
    assert [source.part for source in reads[2].sources] == [0, 1, 2]


def test_sources_that_lie_far_apart_are_requests_of_their_own() -> None:
    gap = REMOTE_GAP_BYTES
    near = [row(0, 0, "a", 0), row(0, 1, "a", 10 + gap), row(0, 2, "a", 20 + gap)]
    [read] = plan_object_reads([near])
    assert read.requests == [Range(0, 30 + gap)]
    [read] = plan_object_reads([[row(0, 0, "a", 0), row(0, 1, "a", 10 + gap + 1)]])
    assert read.requests == [Range(0, 10), Range(11 + gap, 21 + gap)]


def test_the_order_is_that_of_the_offsets_not_of_the_names() -> None:
    units = [[row(0, 0, "z", 0), row(0, 1, "a", 0)], [row(1, 0, "z", 10), row(1, 1, "b", 0)]]
    assert keys(plan_object_reads(units)) == ["z", "a", "b"]


def test_segments_of_one_partition_are_one_lane() -> None:
    units = [[row(0, 0, "b", 0)], [row(0, 1, "a", 0)]]
    assert keys(plan_object_reads(units)) == ["b", "a"]


def test_objects_that_contradict_each_other_are_readed_more_than_once() -> None:
    units = [
        [row(0, 0, "a", 0), row(0, 1, "b", 0)],
        [row(1, 0, "b", 10), row(1, 1, "a", 10)],
    ]
    reads = plan_object_reads(units)
    assert keys(reads) == ["a", "b", "a"]
    assert len([*chain.from_iterable(read.sources for read in reads)]) == 4


def test_rows_against_the_order_of_their_bytes_take_another_read() -> None:
    units = [[row(0, 0, "a", 50), row(0, 1, "a", 0)]]
    reads = plan_object_reads(units)
    assert [read.sources[0].row.byte_offset for read in reads] == [50, 0]


def test_a_read_spans_no_more_than_one_request() -> None:
    units = [[row(0, index, "a", index * 10) for index in range(10)]]
    assert [len(read.sources) for read in plan_object_reads(units, max_bytes=30)] == [3, 3, 3, 1]
    assert [len(read.sources) for read in plan_object_reads(units, max_bytes=1)] == [1] * 10
    assert [len(read.sources) for read in plan_object_reads(units, max_bytes=100)] == [10]


def test_what_a_read_costs_includes_the_gaps_that_are_read_along() -> None:
    sources = [SourceRow(0, row(0, 0, "a", 5)), SourceRow(0, row(0, 1, "a", 20))]
    assert ObjectRead("a", sources).cost_bytes == 25
    far = [SourceRow(0, row(0, 0, "a", 5)), SourceRow(0, row(0, 1, "a", 1 << 30))]
    assert ObjectRead("a", far).cost_bytes == 20


@given(
    st.lists(st.lists(st.sampled_from("abcde"), max_size=12), max_size=6),
    st.integers(1, 60),
    st.data(),
)
def test_every_lane_gets_each_of_its_rows_once_and_in_order(
    lanes: list[list[str]], max_bytes: int, data: st.DataObject
) -> None:
    """Whatever the order of the objects, even one that no commit could have made."""
    places = {key: iter(data.draw(st.permutations(range(72)))) for key in "abcde"}
    units = [
        [row(lane, index, key, 10 * next(places[key])) for index, key in enumerate(wanted)]
        for lane, wanted in enumerate(lanes)
    ]
    served: list[list[Coordinates]] = [[] for _ in units]
    for read in plan_object_reads(units, max_bytes=max_bytes):
        offsets = [source.row.byte_offset for source in read.sources]
        assert offsets == sorted(offsets)
        for source in read.sources:
            assert source.row.object_key == read.object_key
            served[source.part].append(source.row)
    assert served == units


@given(
    st.lists(st.sets(st.integers(0, 5), min_size=1), max_size=12),
)
def test_blocks_of_any_partitions_are_readed_once_each(blocks: list[set[int]]) -> None:
    units: list[list[Coordinates]] = [[] for _ in range(6)]
    for number, partitions in enumerate(blocks):
        for place, partition in enumerate(sorted(partitions)):
            # Names against the order of the commits: they must not matter.
            key = f"block-{99 - number:02d}"
            units[partition].append(row(partition, len(units[partition]), key, 10 * place))
    assert (
        sorted(keys(plan_object_reads(units)))
        == [f"block-{99 - n:02d}" for n in range(len(blocks))][::-1]
    )
