"""The commit of a write: all blocks of all its tasks, in one transaction.

With a sink id, the control plane notes the batch in the same transaction. So the commit may be
repeated whenever its outcome is unknown, in this process or by running the write again. Without a
sink id, a repeat cannot be recognised: doubt is settled by tombstones, as in a broker.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from stratalog.clock import Clock
from stratalog.control.log.model import BlockToCommit, CommitAnswer, CommitOutcome, WriteTier
from stratalog.control.plane import ControlPlane
from stratalog.control.scans.errors import SinkRefusedError
from stratalog.control.scans.model import SinkOrigin, SinkOutcome
from stratalog.control.writers.model import CommitCount
from stratalog.errors import OutcomeUnknownError, RetriableError, StratalogError
from stratalog.ids import TopicPartition, kafka_base64, writer_tag_of
from stratalog.spark.errors import SinkInDoubtError, SinkNotWrittenError, SinkPartlyWrittenError
from stratalog.spark.outage_retry import OUTAGES, retry_for

log = logging.getLogger(__name__)

T = TypeVar("T")

_ANY = 1 << 62


class SinkCommitter:
    def __init__(self, control: ControlPlane, *, clock: Clock, retry_ms: int) -> None:
        self._control = control
        self._clock = clock
        self._retry_ms = retry_ms

    async def commit_once(
        self,
        sink_id: str,
        batch_id: int,
        blocks: Sequence[BlockToCommit],
        *,
        from_stream: bool = False,
        origin: SinkOrigin | None = None,
    ) -> None:
        """Commit unless this batch of the sink was committed before.

        A repeated batch of a stream may have other rows than the batch that was committed.
        """
        try:
            outcome = await self._repeat(
                lambda: self._control.scans.commit_sink(
                    sink_id,
                    batch_id,
                    blocks,
                    from_stream=from_stream,
                    origin=origin,
                    count=_count(blocks),
                ),
                OUTAGES,
            )
        except OUTAGES as error:
            raise SinkInDoubtError(
                f"whether batch {batch_id} of sink {sink_id!r} was written is not known: {error}."
                " Run the same again, with the same sinkId: what was written is not written twice"
            ) from error
        if outcome is SinkOutcome.REPEATED:
            log.warning(
                "Batch %d of sink %r was written before, and is not written again.",
                batch_id,
                sink_id,
            )

    async def has_reached(self, sink_id: str, batch_id: int) -> bool:
        """Tell if the sink has taken this batch or a later one, so that it is never written."""
        last = await self._repeat(
            lambda: self._control.scans.last_sink_batch(sink_id), RetriableError
        )
        return last is not None and last >= batch_id

    async def commit(self, blocks: Sequence[BlockToCommit]) -> None:
        """Commit, at least once over all runs of the same write."""
        if not blocks:
            return
        try:
            answers = await self._repeat(lambda: self._checked(blocks), RetriableError)
        except RetriableError as error:
            raise SinkNotWrittenError(f"nothing was written, run it again: {error}") from error
        except OutcomeUnknownError as doubt:
            answers = await self._settled(blocks, doubt)
        _refuse_rejections(blocks, answers)

    async def _checked(self, blocks: Sequence[BlockToCommit]) -> list[list[CommitAnswer]]:
        """Commit, unless a partition would be left out while the others are written."""
        wanted = sorted({batch.topic_partition for block in blocks for batch in block.batches})
        states = await self._control.log.partitions(wanted)
        for partition in wanted:
            if partition not in states:
                raise SinkRefusedError(f"{_named(partition)} does not exist (any more)")
            if states[partition].write_tier is not WriteTier.BLOCK:
                raise SinkRefusedError(f"{_named(partition)} is not written to in blocks")
        return await self._control.log.commit_blocks(blocks, _count(blocks))

    async def _settled(
        self, blocks: Sequence[BlockToCommit], doubt: OutcomeUnknownError
    ) -> list[list[CommitAnswer]]:
        try:
            # Resolving may be repeated: a tombstone that is there already changes nothing.
            answers = await self._repeat(
                lambda: self._control.log.resolve_commit(blocks, _count(blocks)),
                OUTAGES,
            )
        except StratalogError as error:
            raise SinkInDoubtError(
                f"whether the rows were written is not known: {doubt}; {error}. Look at the topic's"
                " end before this is run again, and give it a sinkId: then it need not be known"
            ) from error
        if answers is None:
            raise SinkNotWrittenError(f"nothing was written, run it again: {doubt}")
        return answers

    async def _repeat(
        self,
        call: Callable[[], Awaitable[T]],
        failures: type[StratalogError] | tuple[type[StratalogError], ...],
    ) -> T:
        return await retry_for(call, self._retry_ms / 1000, clock=self._clock, failures=failures)


def _count(blocks: Sequence[BlockToCommit]) -> CommitCount | None:
    """Return the count of a writer that has no memory of its commits: any number is right."""
    if not blocks:
        return None
    return CommitCount(tag=writer_tag_of(blocks[0].object_id), least=0, most=_ANY)


def _refuse_rejections(
    blocks: Sequence[BlockToCommit], answers: Sequence[Sequence[CommitAnswer]]
) -> None:
    for block, block_answers in zip(blocks, answers, strict=True):
        for batch, answer in zip(block.batches, block_answers, strict=True):
            if answer.outcome is not CommitOutcome.ACCEPTED:
                raise SinkPartlyWrittenError(
                    f"{_named(batch.topic_partition)}: its rows were left out, with the answer"
                    f" {answer.outcome.name}; other partitions have theirs. A sinkId would have"
                    " made it all or nothing"
                )


def _named(partition: TopicPartition) -> str:
    return f"partition {partition.partition} of topic {kafka_base64(partition.topic_id)}"
