"""The nouns of a sink: what its tasks must know, and what they answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from pyspark.sql.datasource import WriterCommitMessage

from stratalog.batch.header import Codec
from stratalog.control.log.model import BlockToCommit
from stratalog.ids import TopicId
from stratalog.topic.configs import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTopic:
    id: TopicId
    name: str
    partition_count: int
    config: TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlan:
    """What a task needs. Holds secrets: it goes to executors inside the writer, unprinted."""

    objects_url: str
    object_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    topics: Mapping[str, SinkTopic]
    """Those that rows may go to, as they were when the write began."""
    topic: str | None
    """Where all rows go. None: each row says it."""
    codec: Codec | None
    lease_id: UUID | None
    """What keeps the sweeper from uploads that are not committed yet."""


@dataclass(frozen=True)
class SinkMessage(WriterCommitMessage):
    """A task's answer: what it has uploaded. Travels through Spark, so nothing secret is in it."""

    blocks: Sequence[BlockToCommit]
    """In the order of the rows."""
    lease_id: UUID | None
    refusal: str | None = None
    """Why these rows must not be written now, if their batch was not written before."""
