from dataclasses import replace

import pytest

from stratalog.control.log.boundaries import check_boundaries, check_in_blocks
from stratalog.control.log.model import PartitionState, WriteTier
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, TopicId, new_uuid

STATE = PartitionState(
    topic_id=TopicId(new_uuid()),
    partition=PartitionIndex(3),
    log_start=Offset(5),
    remote_end=Offset(10),
    block_start=Offset(10),
    block_end=Offset(20),
    high_watermark=Offset(20),
    last_stable=Offset(20),
    write_tier=WriteTier.BLOCK,
    leader_epoch=LeaderEpoch(0),
    size_bytes=100,
    last_commit_ms=1,
)


def test_boundaries_may_stay_or_move_forward() -> None:
    check_boundaries(STATE)
    check_boundaries(STATE, before=STATE)
    check_boundaries(
        replace(STATE, log_start=Offset(20), remote_end=Offset(20), block_start=Offset(20)),
        before=STATE,
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"log_start": 21}, "log_start 21 is not between 0 and high watermark 20"),
        ({"block_start": 21}, "block_start 21 is not between"),
        ({"remote_end": 11}, "remote_end 11 is after block_start 10"),
        ({"block_end": 19}, "block_end 19 is not the high watermark 20"),
        ({"log_start": 4}, "log_start went back from 5 to 4"),
        ({"remote_end": 9}, "remote_end went back from 10 to 9"),
    ],
)
def test_a_broken_boundary_is_named_with_its_partition(changes: dict[str, int], says: str) -> None:
    with pytest.raises(AssertionError, match=f"partition 3 of topic .*: {says}.* a bug"):
        check_boundaries(replace(STATE, **changes), before=STATE)  # type: ignore[arg-type]


def test_swapped_rows_lie_in_the_block_range() -> None:
    check_in_blocks(STATE, Offset(10), Offset(19))
    for base, last in ((9, 19), (10, 20), (15, 14)):
        with pytest.raises(AssertionError, match="not all in the block range from 10 to 20"):
            check_in_blocks(STATE, Offset(base), Offset(last))
