"""The rows of claims, read from the control plane for many partitions at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stratalog.control.log.model import Coordinates, Span
from stratalog.control.pipeline.model import Claim
from stratalog.control.plane import ControlPlane
from stratalog.ids import Offset
from stratalog.pipeline.plan.claimed_rows import ClaimedRows

_ALL_BYTES = 1 << 62
_SPANS_AT_ONCE = 100
"""Spans of one query. Each may be answered with two thousand rows."""


@dataclass(slots=True)
class _Loading:
    claim: Claim
    offset: Offset
    """The next offset to ask for."""
    end_offset: Offset
    rows: list[Coordinates] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def span(self) -> Span:
        topic_id, partition = self.claim.partition
        return Span(
            topic_id=topic_id, partition=partition, offset=self.offset, max_bytes=_ALL_BYTES
        )

    def add(self, found: Sequence[Coordinates], *, max_rows: int, max_bytes: int) -> bool:
        """Take the rows in the range, and return whether there may be more of them."""
        for row in found:
            if row.last_offset >= self.claim.end_offset or len(self.rows) >= max_rows:
                self.end_offset = min(self.claim.end_offset, row.base_offset)
                return False
            self.rows.append(row)
            self.size_bytes += row.byte_size
            self.offset = Offset(row.last_offset + 1)
            if self.size_bytes >= max_bytes:
                self.end_offset = self.offset
                return False
        return bool(found) and self.offset < self.claim.end_offset


async def load_rows(
    control: ControlPlane, claims: Sequence[Claim], *, max_rows: int, max_bytes: int
) -> list[ClaimedRows]:
    """Load the rows of each claim, up to `max_rows` and about `max_bytes`."""
    states = await control.log.partitions([claim.partition for claim in claims])
    loading = [
        _Loading(
            claim,
            # A read below the log start is refused, also if the first row begins below it.
            max(claim.first_offset, states[claim.partition].log_start),
            claim.end_offset,
        )
        for claim in claims
        if claim.partition in states
    ]
    looking = [one for one in loading if one.offset < one.end_offset]
    while looking:
        chunk, looking = looking[:_SPANS_AT_ONCE], looking[_SPANS_AT_ONCE:]
        answers = await control.log.find_batches([one.span for one in chunk])
        for one, found in zip(chunk, answers, strict=True):
            if one.add(found.rows, max_rows=max_rows, max_bytes=max_bytes):
                looking.append(one)
    rows = {one.claim.token: one for one in loading}
    return [_claimed(claim, rows.get(claim.token)) for claim in claims]


def _claimed(claim: Claim, loaded: _Loading | None) -> ClaimedRows:
    if loaded is None:
        return ClaimedRows(claim=claim, rows=(), end_offset=claim.end_offset)
    return ClaimedRows(claim=claim, rows=loaded.rows, end_offset=loaded.end_offset)


async def has_moved(control: ControlPlane, claimed: ClaimedRows) -> bool:
    """Tell whether the rows of the claim were deleted or converted since the claim was made."""
    claim = claimed.claim
    state = (await control.log.partitions([claim.partition])).get(claim.partition)
    if state is None or state.block_start > claim.first_offset:
        return True
    return not claimed.rows and state.log_start > claim.first_offset


async def has_changed(control: ControlPlane, row: Coordinates | None) -> bool:
    """Tell whether the batches of the row were deleted, converted or moved."""
    return row is None or row not in await control.pipeline.coordinates_in([row.object_id])
