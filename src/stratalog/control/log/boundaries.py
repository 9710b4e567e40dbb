"""The relations between a partition's offsets, checked wherever one of them moves.

A transaction that moves a boundary checks the offsets before and after, on values that it has read
already. A breach is a mistake of ours: `AssertionError` aborts the transaction, and the control
plane stays as it was. `fsck` finds the same breaches in a control plane that others have changed.
"""

from collections.abc import Iterator

from stratalog.control.log.model import PartitionState, WriteTier
from stratalog.ids import Offset, TopicPartition, kafka_base64

_FORWARD_ONLY = (
    "log_start",
    "remote_end",
    "block_start",
    "block_end",
    "high_watermark",
    "last_stable",
    "leader_epoch",
    "last_commit_ms",
)


def boundary_breaches(state: PartitionState) -> Iterator[str]:
    """Find the relations that do not hold between the offsets of one snapshot."""
    for name in ("log_start", "remote_end", "block_start", "block_end", "last_stable"):
        offset = getattr(state, name)
        if not 0 <= offset <= state.high_watermark:
            yield f"{name} {offset} is not between 0 and high watermark {state.high_watermark}"
    if state.block_start > state.block_end:
        yield f"block_start {state.block_start} is after block_end {state.block_end}"
    if state.block_start < state.block_end and state.remote_end > state.block_start:
        yield f"remote_end {state.remote_end} is after block_start {state.block_start}"
    if state.write_tier is WriteTier.BLOCK and state.block_end != state.high_watermark:
        yield (
            f"block_end {state.block_end} is not the high watermark {state.high_watermark}, "
            "although blocks are being written"
        )


def backward_moves(before: PartitionState, after: PartitionState) -> Iterator[str]:
    """Find the values that were higher in the earlier of two snapshots."""
    for name in _FORWARD_ONLY:
        was, is_now = getattr(before, name), getattr(after, name)
        if is_now < was:
            yield f"{name} went back from {was} to {is_now}"


def check_boundaries(after: PartitionState, before: PartitionState | None = None) -> None:
    """Raise unless the new offsets of a partition hold together and none has moved back."""
    for breach in boundary_breaches(after):
        raise broken(after.topic_partition, breach)
    if before is not None:
        for move in backward_moves(before, after):
            raise broken(after.topic_partition, move)


def check_in_blocks(state: PartitionState, base_offset: Offset, last_offset: Offset) -> None:
    """Raise unless the block tier serves these offsets."""
    if not state.block_start <= base_offset <= last_offset < state.block_end:
        raise broken(
            state.topic_partition,
            f"offsets {base_offset} to {last_offset} are not all in the block range from"
            f" {state.block_start} to {state.block_end}",
        )


def broken(partition: TopicPartition, breach: str) -> AssertionError:
    return AssertionError(
        f"partition {partition.partition} of topic {kafka_base64(partition.topic_id)}: {breach};"
        " this is a bug, and nothing was changed"
    )
