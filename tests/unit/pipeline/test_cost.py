from tests.unit.pipeline.rows import TOPICS, claimed, row

from stratalog.control.pipeline.model import UnitKind
from stratalog.objects.ranges import REMOTE_GAP_BYTES
from stratalog.objects.upload import PART_BYTES
from stratalog.pipeline.kinds.merge_plan import plan_merges
from stratalog.pipeline.kinds.split_plan import plan_splits
from stratalog.pipeline.plan.cost import cost_of
from stratalog.pipeline.plan.tasks import Task
from stratalog.settings import TieringSettings

SETTINGS = TieringSettings(min_segment_bytes=1)


def test_a_segment_takes_a_request_per_part_and_five_more() -> None:
    """One before the parts, one after them, and a look, the indexes and the manifest."""
    rows = [row(0, n, size=PART_BYTES // 2, byte_offset=n * PART_BYTES // 2) for n in range(4)]
    for count, requests in ((1, 1), (2, 3), (3, 4), (4, 4)):
        cost = cost_of(plan_merges([claimed(rows[:count])], TOPICS, SETTINGS, 0))
        assert (cost.figures["segments"], cost.write_requests) == (1, requests + 3)


def test_pieces_that_lie_far_apart_are_asked_for_apart_and_gaps_are_read_along() -> None:
    far = 2 * REMOTE_GAP_BYTES
    rows = [row(0, 0), row(0, 1, byte_offset=1500), row(0, 2, byte_offset=far)]
    cost = cost_of(plan_merges([claimed(rows)], TOPICS, SETTINGS, 0))
    assert (cost.read_requests, cost.bytes_read, cost.bytes) == (2, 3500, 3000)


def test_the_lines_for_people_tell_of_bytes_requests_and_rows() -> None:
    merged = claimed([row(0, n, block=n) for n in range(3)])
    split = claimed([row(1, n, block=n) for n in range(5)], kind=UnitKind.SPLIT)
    tasks: list[Task] = [
        *plan_merges([merged], TOPICS, SETTINGS, 0),
        *plan_splits([split], TOPICS, SETTINGS),
    ]
    lines = cost_of(tasks).lines()
    for line in (
        "merge   1 partition into 1 segment",
        "split   1 partition into 1 file",
        "move    0.0 MB out of 5 objects in 2 tasks",
        "ask     14 requests of the object store: 8 to read, 6 to write",
        "free    7 rows of the control plane",
    ):
        assert line in lines
