from itertools import chain
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from stratalog.batch.header import TimestampType
from stratalog.control.log.model import Coordinates
from stratalog.ids import LeaderEpoch, ObjectId, Offset, PartitionIndex, TopicId
from stratalog.objects.ranges import REMOTE_GAP_BYTES
from stratalog.objects.store import Range
from stratalog.pipeline.plan.object_reads import Piece, Visit, plan_visits


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


def keys(visits: list[Visit]) -> list[str]:
    return [visit.object_key for visit in visits]


def test_an_object_that_partitions_share_is_visited_once() -> None:
    units = [
        [row(0, 0, "a", 0), row(0, 1, "b", 0), row(0, 2, "c", 0)],
        [row(1, 0, "b", 10), row(1, 1, "c", 10)],
        [row(2, 0, "a", 10), row(2, 1, "c", 20)],
    ]
    visits = plan_visits(units)
    assert keys(visits) == ["a", "b", "c"]
    assert [piece.unit for piece in visits[2].pieces] == [0, 1, 2]


def test_pieces_that_lie_far_apart_are_requests_of_their_own() -> None:
    gap = REMOTE_GAP_BYTES
    near = [row(0, 0, "a", 0), row(0, 1, "a", 10 + gap), row(0, 2, "a", 20 + gap)]
    [visit] = plan_visits([near])
    assert visit.requests == [Range(0, 30 + gap)]
    [visit] = plan_visits([[row(0, 0, "a", 0), row(0, 1, "a", 10 + gap + 1)]])
    assert visit.requests == [Range(0, 10), Range(11 + gap, 21 + gap)]


def test_the_order_is_that_of_the_offsets_not_of_the_names() -> None:
    units = [[row(0, 0, "z", 0), row(0, 1, "a", 0)], [row(1, 0, "z", 10), row(1, 1, "b", 0)]]
    assert keys(plan_visits(units)) == ["z", "a", "b"]


def test_segments_of_one_partition_are_one_lane() -> None:
    units = [[row(0, 0, "b", 0)], [row(0, 1, "a", 0)]]
    assert keys(plan_visits(units)) == ["b", "a"]


def test_objects_that_contradict_each_other_are_visited_more_than_once() -> None:
    units = [
        [row(0, 0, "a", 0), row(0, 1, "b", 0)],
        [row(1, 0, "b", 10), row(1, 1, "a", 10)],
    ]
    visits = plan_visits(units)
    assert keys(visits) == ["a", "b", "a"]
    assert len([*chain.from_iterable(visit.pieces for visit in visits)]) == 4


def test_rows_against_the_order_of_their_bytes_take_another_visit() -> None:
    units = [[row(0, 0, "a", 50), row(0, 1, "a", 0)]]
    visits = plan_visits(units)
    assert [visit.pieces[0].row.byte_offset for visit in visits] == [50, 0]


def test_a_visit_spans_no_more_than_one_request() -> None:
    units = [[row(0, index, "a", index * 10) for index in range(10)]]
    assert [len(visit.pieces) for visit in plan_visits(units, max_bytes=30)] == [3, 3, 3, 1]
    assert [len(visit.pieces) for visit in plan_visits(units, max_bytes=1)] == [1] * 10
    assert [len(visit.pieces) for visit in plan_visits(units, max_bytes=100)] == [10]


def test_what_a_visit_costs_includes_the_gaps_that_are_read_along() -> None:
    pieces = [Piece(0, row(0, 0, "a", 5)), Piece(0, row(0, 1, "a", 20))]
    assert Visit("a", pieces).cost_bytes == 25
    far = [Piece(0, row(0, 0, "a", 5)), Piece(0, row(0, 1, "a", 1 << 30))]
    assert Visit("a", far).cost_bytes == 20


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
    for visit in plan_visits(units, max_bytes=max_bytes):
        offsets = [piece.row.byte_offset for piece in visit.pieces]
        assert offsets == sorted(offsets)
        for piece in visit.pieces:
            assert piece.row.object_key == visit.object_key
            served[piece.unit].append(piece.row)
    assert served == units


@given(
    st.lists(st.sets(st.integers(0, 5), min_size=1), max_size=12),
)
def test_blocks_of_any_partitions_are_visited_once_each(blocks: list[set[int]]) -> None:
    units: list[list[Coordinates]] = [[] for _ in range(6)]
    for number, partitions in enumerate(blocks):
        for place, partition in enumerate(sorted(partitions)):
            # Names against the order of the commits: they must not matter.
            key = f"block-{99 - number:02d}"
            units[partition].append(row(partition, len(units[partition]), key, 10 * place))
    assert (
        sorted(keys(plan_visits(units)))
        == [f"block-{99 - n:02d}" for n in range(len(blocks))][::-1]
    )
