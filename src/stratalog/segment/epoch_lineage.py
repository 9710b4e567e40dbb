"""The lineage of a partition: the segments within its leader epochs that make one chain.

Kafka never takes back an upload. After a change of leaders a partition may have segments of
leaders whose records were truncated, segments that hold the same records twice, and segments that
begin inside their predecessor, because two leaders roll their logs at different offsets. Epochs
show the first sort. Of the other segments, the fewest that cover all offsets are taken.
"""

from collections.abc import Sequence
from itertools import zip_longest

from stratalog.control.segments.model import EpochStart
from stratalog.ids import Offset
from stratalog.segment.errors import LineageGapError
from stratalog.segment.remote_log_metadata import SegmentAdded


def lineage(
    segments: Sequence[SegmentAdded],
    epochs: Sequence[EpochStart],
    *,
    log_end: Offset | None = None,
) -> list[SegmentAdded]:
    """Return the segments that make up a partition, in the order of their offsets.

    `epochs` is the newest leader-epoch checkpoint, and `log_end` the end of the log, if it is
    known. Each segment ends after its predecessor, and begins right behind it or inside it. Records
    that are in both segments are the same. Raises `LineageGapError` if no segment holds some
    offsets between the first and the last segment.
    """
    within = [segment for segment in segments if is_within_lineage(segment, epochs, log_end)]
    chain, gaps = _cover(within)
    if gaps:
        named = ", ".join(f"{start} to {end - 1}" for start, end in gaps)
        raise LineageGapError(
            f"{chain[0].partition}: no segment in the lineage of leader epochs"
            f" has the offsets {named}",
            gaps,
        )
    return chain


def is_within_lineage(
    segment: SegmentAdded, epochs: Sequence[EpochStart], log_end: Offset | None = None
) -> bool:
    """Tell if Kafka would accept the segment as a part of the partition as it is today."""
    lineage_epochs, own = _with_records(epochs), _with_records(segment.leader_epochs)
    if log_end is not None and segment.last_offset >= log_end:
        return False
    if not lineage_epochs:
        return False
    # The start of the log may have expired. So epochs of the segment that are older than the
    # lineage are not judged, and the oldest epoch of the lineage may begin later than it once did.
    oldest = lineage_epochs[0].epoch
    own = [entry for entry in own if entry.epoch >= oldest]
    indexes = {epoch: index for index, (epoch, _) in enumerate(lineage_epochs)}
    if not own or any(epoch not in indexes for epoch, _ in own):
        return False
    first, last = indexes[own[0].epoch], indexes[own[-1].epoch]
    if own[1:] != lineage_epochs[first + 1 : last + 1]:
        return False
    if first and own[0].start_offset < lineage_epochs[first].start_offset:
        return False
    return last + 1 == len(lineage_epochs) or (
        segment.last_offset < lineage_epochs[last + 1].start_offset
    )


def _with_records(epochs: Sequence[EpochStart]) -> list[EpochStart]:
    """Leave out epochs without records, whose successor begins at the same offset."""
    ascending = sorted(epochs)
    return [
        entry
        for entry, following in zip_longest(ascending, ascending[1:])
        if following is None or following.start_offset != entry.start_offset
    ]


def _cover(
    segments: Sequence[SegmentAdded],
) -> tuple[list[SegmentAdded], list[tuple[int, int]]]:
    """Return the fewest segments that cover all offsets of the segments, and the gaps between.

    Of all segments that begin at or before the next offset, the one that reaches furthest comes
    next. Of several such segments it is the one that begins last, and then the one that finished
    last.
    """
    ascending = sorted(segments, key=lambda segment: segment.base_offset)
    chain: list[SegmentAdded] = []
    gaps: list[tuple[int, int]] = []
    position = at = 0
    best: SegmentAdded | None = None
    while True:
        while at < len(ascending) and ascending[at].base_offset <= position:
            candidate, at = ascending[at], at + 1
            if best is None or candidate.last_offset >= best.last_offset:
                best = candidate
        if best is not None and best.last_offset >= position:
            chain.append(best)
            position = best.last_offset + 1
        elif at < len(ascending):
            start, position = position, ascending[at].base_offset
            if chain:
                gaps.append((start, position))
        else:
            return chain, gaps
