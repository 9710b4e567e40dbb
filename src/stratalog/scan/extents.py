"""Extents: the bytes of one piece of a partition's log that a scan reads. Pure.

An extent knows its tier, its offsets, its bytes, and how it can be cut. So splits, batch groups and
decoding treat all tiers alike. A tier is added with a class of extents here, a case in
`extent_planner.py`, which makes extents of pieces, and a case in `fetch.py`, which opens them.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from stratalog.batch.columns import BatchRun
from stratalog.control.segments.model import Segment
from stratalog.ids import Offset
from stratalog.pieces import Tier
from stratalog.segment.keys import LOG_SUFFIX
from stratalog.segment.log_batches import is_dense


class Extent(Protocol):
    tier: ClassVar[Tier]
    is_divisible: ClassVar[bool]
    """True if executors can find a batch inside the extent without reading all bytes before it."""

    @property
    def object_key(self) -> str: ...
    @property
    def byte_size(self) -> int: ...

    @property
    def first_offset(self) -> Offset:
        """The first offset that is wanted of the extent."""
        ...

    @property
    def end_offset(self) -> Offset: ...

    @property
    def least_offset(self) -> int:
        """The least offset that the first batch may have."""
        ...

    @property
    def known_end(self) -> int | None:
        """The offset at which the batches must end. None if only reading them tells."""
        ...

    @property
    def is_stamped(self) -> bool:
        """True if the batches have their offsets in their bytes."""
        ...

    def run_from(self, offset: int) -> BatchRun:
        """Describe the batches of the extent from one with this base offset."""
        ...

    def may_skip(self, expected: int, position: int) -> bool:
        """Tell if the batch at `position` may begin at a later offset than `expected`."""
        ...

    def between_bytes(self, start: int, end: int) -> "Extent":
        """Cut a divisible extent by byte positions, which count from its first byte."""
        ...

    def between_offsets(self, first: Offset, end: Offset) -> "Extent":
        """Cut by offsets. An extent that is not divisible stays whole: its stretch is cut."""
        ...

    def joined(self, after: "Extent") -> "Extent | None":
        """Join with the extent after this one. None if they cannot be read and decoded as one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExtent:
    """Bytes of a block or a split file: one row of the control plane, or adjoining rows joined."""

    tier: ClassVar[Tier] = Tier.BLOCK
    is_divisible: ClassVar[bool] = False

    object_key: str
    byte_offset: int
    byte_size: int
    run: BatchRun
    last_offset: Offset

    @property
    def first_offset(self) -> Offset:
        return Offset(self.run.base_offset)

    @property
    def end_offset(self) -> Offset:
        return Offset(self.last_offset + 1)

    @property
    def least_offset(self) -> int:
        return self.run.base_offset

    @property
    def known_end(self) -> int | None:
        return self.last_offset + 1

    @property
    def is_stamped(self) -> bool:
        return self.run.stamped

    def run_from(self, offset: int) -> BatchRun:
        return self.run._replace(base_offset=offset)

    def may_skip(self, expected: int, position: int) -> bool:
        del expected, position
        return False

    def between_bytes(self, start: int, end: int) -> Extent:
        del start, end
        raise AssertionError("a row is never cut by bytes")

    def between_offsets(self, first: Offset, end: Offset) -> Extent:
        del first, end
        return self

    def joined(self, after: Extent) -> Extent | None:
        if not isinstance(after, RowExtent) or not self._adjoins(after):
            return None
        return replace(
            self, byte_size=self.byte_size + after.byte_size, last_offset=after.last_offset
        )

    def _adjoins(self, after: "RowExtent") -> bool:
        return (
            self.object_key == after.object_key
            and self.byte_offset + self.byte_size == after.byte_offset
            and self.last_offset + 1 == after.run.base_offset
            and self.run[1:] == after.run[1:]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentExtent:
    """Bytes of a segment's log, from the batch that belongs to `start` to the batch of `end`.

    In an exact extent, a batch begins at both positions. Otherwise both positions mean the first
    entry of the offset index that lies there or later, or the end of the log. The executor looks
    the entries up, because a planner that read the indexes of all segments would not scale. Two
    extents that meet look up the same entry, so every batch is in one of them.
    """

    tier: ClassVar[Tier] = Tier.REMOTE
    is_divisible: ClassVar[bool] = True

    segment: Segment
    start: int
    end: int
    exact: bool
    first_offset: Offset
    """Earlier records are left out: where adopted segments overlap, the segment before has them."""
    cut_end: Offset | None = None
    """Set if the extent was cut by offsets. The executor then also looks up, between `start` and
    `end`, where the batches from `first_offset` to before this offset lie."""

    @property
    def object_key(self) -> str:
        return self.segment.key_base + LOG_SUFFIX

    @property
    def byte_size(self) -> int:
        """The bytes that are read, or more if the extent was cut by offsets."""
        return self.end - self.start

    @property
    def end_offset(self) -> Offset:
        return self.segment.end_offset if self.cut_end is None else self.cut_end

    @property
    def least_offset(self) -> int:
        return self.segment.base_offset

    @property
    def known_end(self) -> int | None:
        segment = self.segment
        reaches_end = self.end == segment.size_bytes and self.end_offset == segment.end_offset
        return segment.end_offset if reaches_end and is_dense(segment) else None

    @property
    def is_stamped(self) -> bool:
        return True

    def run_from(self, offset: int) -> BatchRun:
        return BatchRun(offset)

    def may_skip(self, expected: int, position: int) -> bool:
        """Kafka's own segments may leave offsets out. So may the first batch of an extent that
        begins inside a segment, because only its header tells its offset."""
        begins_inside = expected == self.segment.base_offset and position > 0
        return begins_inside or not is_dense(self.segment)

    def between_bytes(self, start: int, end: int) -> Extent:
        return replace(self, start=self.start + start, end=self.start + end, exact=False)

    def between_offsets(self, first: Offset, end: Offset) -> Extent:
        if (first, end) == (self.first_offset, self.segment.end_offset):
            return self
        return replace(self, first_offset=first, cut_end=end)

    def joined(self, after: Extent) -> Extent | None:
        del after
        return None
