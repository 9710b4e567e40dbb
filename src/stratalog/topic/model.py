"""Values that the Kafka handlers exchange with a topic: writes, reads and their answers."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.ids import NO_OFFSET, Offset, PartitionIndex
from stratalog.segment.model import AbortedTransaction


class PartitionWrite(NamedTuple):
    """One partition's record batches in a produce request, as they came from the socket."""

    topic: Topic
    partition: PartitionIndex
    data: memoryview


class PartitionWritten(NamedTuple):
    """The answer to one `PartitionWrite`: an error, or where its first record is now."""

    error: StratalogError | None = None
    base_offset: Offset = NO_OFFSET
    append_time_ms: int = -1
    """-1 unless the topic stamps log-append time."""
    log_start: Offset = NO_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRead:
    """The answer to one `Span`: whole, stamped batches from the one that holds the offset."""

    error: StratalogError | None = None
    high_watermark: Offset = NO_OFFSET
    last_stable: Offset = NO_OFFSET
    log_start: Offset = NO_OFFSET
    parts: Sequence[bytes | bytearray | memoryview] = ()
    aborted: Sequence[AbortedTransaction] = ()
    """Transactions with records among the batches, for readers of committed records only."""

    @property
    def size_bytes(self) -> int:
        return sum(len(part) for part in self.parts)


class ReadWork(Protocol):
    """A reader's share of the broker."""

    async def room_for(self, wanted_bytes: int, /) -> int:
        """Wait for memory for an answer, and return the bytes that it may have."""

    def away(self) -> AbstractAsyncContextManager[None]:
        """Let other readers of many partitions work while this one waits."""


class UnboundedWork:
    async def room_for(self, wanted_bytes: int, /) -> int:
        return wanted_bytes

    def away(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOffset:
    """An offset, the timestamp of its record, and the epoch in which the record was written."""

    offset: Offset
    timestamp: int
    leader_epoch: int
