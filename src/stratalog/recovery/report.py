"""The report of a recovery, for people and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stratalog.recovery.evidence import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    name: str
    """Topic and partition."""
    known_end: int
    """The high watermark that the control plane had."""
    end: int
    """The high watermark now."""
    segments: int
    """Segments that were chained."""
    rows: int
    """Rows that were added."""
    inferred: Sequence[OffsetRange]
    unproven: Sequence[OffsetRange]
    lost: Sequence[OffsetRange]

    @property
    def is_clean(self) -> bool:
        return not (self.inferred or self.unproven or self.lost)

    def as_dict(self) -> dict[str, object]:
        return {
            "partition": self.name,
            "known_end": self.known_end,
            "end": self.end,
            "segments": self.segments,
            "rows": self.rows,
            "inferred": [list(each) for each in self.inferred],
            "unproven": [list(each) for each in self.unproven],
            "lost": [list(each) for each in self.lost],
        }


@dataclass(slots=True, kw_only=True)
class RecoveryReport:
    partitions: list[PartitionReport] = field(default_factory=list)
    """The partitions in which something was recovered or is missing."""
    new_topics: list[str] = field(default_factory=list)
    """Topics of which only the store tells. Their configs are lost."""
    deleted_records: Sequence[tuple[str, int]] = ()
    """Partitions with the offsets before which records were deleted, once more."""
    deleted_topics: Sequence[str] = ()
    """Topics that were deleted, once more. They can be undeleted."""
    unreadable: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Keys of objects whose records could not be placed. They are never deleted by the sweeper."""
    remarks: list[str] = field(default_factory=list)

    @property
    def unproven(self) -> bool:
        return any(partition.unproven for partition in self.partitions)

    def as_dict(self) -> dict[str, object]:
        return {
            "partitions": [partition.as_dict() for partition in self.partitions],
            "new_topics": self.new_topics,
            "deleted_records": [list(each) for each in self.deleted_records],
            "deleted_topics": list(self.deleted_topics),
            "unreadable": self.unreadable,
            "kept": self.kept,
            "remarks": self.remarks,
        }

    def lines(self) -> Iterator[str]:
        for each in self.partitions:
            yield (
                f"{each.name}: known to {each.known_end}, recovered to {each.end}"
                f" ({each.segments} segments, {each.rows} rows)"
            )
            yield from (f"  inferred: {_said(one)}" for one in each.inferred)
            yield from (f"  not proven: {_said(one)}" for one in each.unproven)
            yield from (f"  lost by the store: {_said(one)}" for one in each.lost)
        yield from (f"topic {name} was made from the store" for name in self.new_topics)
        yield from (
            f"{name}: records before offset {before} are deleted again, as a note in the store says"
            for name, before in self.deleted_records
        )
        yield from (
            f"topic {name} is deleted again, as a note in the store says:"
            " `stratalog topic undelete` brings it back"
            for name in self.deleted_topics
        )
        yield from (f"cannot be read: {text}" for text in self.unreadable)
        yield from (f"kept, not placed: {key}" for key in self.kept)
        yield from self.remarks


def _said(offsets: OffsetRange) -> str:
    return f"offsets {offsets.start} to {offsets.end - 1}"
