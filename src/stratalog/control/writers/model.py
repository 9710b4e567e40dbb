from dataclasses import dataclass
from enum import StrEnum

from stratalog.control.sql.table import Selection, Table
from stratalog.ids import BrokerId, WriterTag


class WriterKind(StrEnum):
    BROKER = "broker"
    PIPELINE = "pipeline"
    """A run of the pipeline, with its executors."""
    SINK = "sink"
    """A write by Spark, with its executors."""
    REPAIR = "repair"
    """A command that fills lost offsets."""
    UNKNOWN = "unknown"
    """A writer that this control plane had forgotten, and whose objects were found in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """A process that uploads objects."""

    tag: WriterTag
    kind: WriterKind
    broker_id: BrokerId | None
    announced_ms: int
    ended_ms: int | None
    commits: int
    """The transactions in which it committed blocks."""

    @property
    def name(self) -> str:
        """The tag as people see it, here and in `stratalog inspect`."""
        return f"{self.tag:010x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCount:
    """A writer's knowledge of its commits: their number lies between the two."""

    tag: WriterTag
    least: int
    most: int
    """Above `least` only after doubts about commits that could not be settled."""


WRITERS = Table(
    "writers",
    tag="bigint",
    kind="text",
    broker_id="integer null",
    announced_ms="bigint",
    ended_ms="bigint null",
    commits="bigint",
)
WRITER = Selection(Writer, WRITERS)
