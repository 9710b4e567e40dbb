"""The nouns of a sink: its plan, which tasks get, and the messages that tasks answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from pyspark.sql.datasource import WriterCommitMessage

from stratalog.batch.header import Codec
from stratalog.control.log.model import BlockToCommit
from stratalog.ids import TopicId, WriterTag
from stratalog.opening.workers import WorkerAccess
from stratalog.topic.configs import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTopic:
    id: TopicId
    name: str
    partition_count: int
    config: TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlan:
    """All that a task needs. Holds secrets, which its repr does not show."""

    access: WorkerAccess
    topics: Mapping[str, SinkTopic]
    """The topics that rows may go to, as they were when the write began."""
    topic: str | None
    """The topic of all rows. None if each row names its topic."""
    codec: Codec | None
    lease_id: UUID | None
    """The lease that keeps the sweeper from uploads that are not committed yet."""


@dataclass(frozen=True)
class SinkMessage(WriterCommitMessage):
    """The blocks that a task has uploaded. Travels through Spark, so it holds no secret."""

    blocks: Sequence[BlockToCommit]
    """The blocks in the order of their rows."""
    lease_id: UUID | None
    writer: WriterTag
    """The writer that the blocks belong to."""
    refusal: str | None = None
    """The reason why these rows must not be written, unless their batch was written before."""
