"""The nouns of a sink: what its tasks must know, and what they answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from pyspark.sql.datasource import WriterCommitMessage

from stratalog.batch.header import Codec
from stratalog.control.model import BlockToCommit
from stratalog.errors import CallError, OutcomeUnknownError, RetriableError
from stratalog.ids import TopicId
from stratalog.topic.configs import TopicConfig


class SinkError(CallError):
    """A write is refused. Nothing of it is in any topic."""


class SinkTopicError(SinkError):
    """There is no such topic."""


class SinkRowError(CallError):
    """A row cannot be written, and so nothing is. The message names the row."""


class SinkNotWrittenError(RetriableError):
    """The commit did not happen, and never will: the same write may be run again."""


class SinkInDoubtError(OutcomeUnknownError):
    """The commit may have happened. The message says what to do."""


class SinkPartlyWrittenError(CallError):
    """A partition was deleted or closed just then, and its rows were left out."""


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
