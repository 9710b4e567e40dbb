"""The driver's half of a merge: from a `.log` in the store to a part of its partition.

The order of the steps, and the remains of a crash after each of them:

1. (executor) `.log` is uploaded under an id that no other attempt has. Left behind: an object
   without a row. The sweeper bars its id, then deletes it.
2. `add_segment`: the intent. From here on the sweeper leaves the object alone. Left behind: a
   segment that was started; the janitor removes it when it is old.
3. The `.log` is looked at once more. If the sweeper was faster than step 2 it is gone; so it is if
   the executor wrote it somewhere else. The segment is given up.
4. `.indexes`, then the manifest. Left behind: as after 2.
5. `finish_segment`. Left behind: a whole segment outside the chain. If it still fits when the claim
   has ended, the next run chains it, or the janitor when it is old; otherwise it is deleted.
6. `chain_segment`, under the claim's token: boundaries move, and readers are sent to the segment.
   Its rows are removed in chunks; the next retention run removes the rows that a crash leaves.

Segments of one partition are finished in the order of their offsets, because a producer snapshot
and a transaction index describe the partition up to the segment's end.
"""

from contextlib import suppress

from stratalog.clock import Clock
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.pipeline.model import ClaimToken
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import ChainOutcome, EpochStart, Segment, SegmentToAdd
from stratalog.errors import OutcomeUnknownError, StratalogError
from stratalog.ids import Offset, SegmentId, TopicPartition
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.pipeline.errors import IndexesLostError
from stratalog.pipeline.kinds.merge_model import LogMade, SegmentPlan
from stratalog.pipeline.kinds.upload_check import check_uploaded
from stratalog.retry import AT_ONCE, retry
from stratalog.segment.epoch_checkpoint import encode_checkpoint
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import INDEXES_SUFFIX, LOG_SUFFIX
from stratalog.segment.log_batches import is_dense
from stratalog.segment.metadata import SegmentMetadata
from stratalog.segment.model import IndexKind, SegmentIndexes
from stratalog.segment.producer_state import PartitionTail, advance
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.segment.txn_index import encode_aborted
from stratalog.segment.upload import upload_indexes

_ATTEMPTS = 5


class SegmentFinisher:
    def __init__(
        self,
        *,
        control: ControlPlane,
        metadata: SegmentMetadata,
        stores: SegmentStores,
        reader: SegmentReader,
        keys: KeyRing,
        clock: Clock,
        producer_expiry_ms: int,
    ) -> None:
        self._control = control
        self._metadata = metadata
        self._stores = stores
        self._reader = reader
        self._keys = keys
        self._clock = clock
        self._producer_expiry_ms = producer_expiry_ms
        self._tails: dict[TopicPartition, tuple[Offset, PartitionTail]] = {}
        """The state of producers at the end of the segment that was finished last."""

    async def finish(self, made: LogMade, plan: SegmentPlan) -> ChainOutcome:
        """Do steps 2 to 6. Raise if the segment cannot be chained, after giving it up."""
        segment = _segment_of(made, plan)
        await self._metadata.add(segment)
        try:
            await check_uploaded(
                self._stores.own, made.key_base + LOG_SUFFIX, made.uploaded.stored_bytes
            )
            tail = await self._upload_rest(made, plan, segment)
            outcome = await self._chain(made.segment_id, plan.token)
        except OutcomeUnknownError:
            # The segment may be chained. The janitor finds out, and deletes no chained segment.
            raise
        except Exception:
            with suppress(StratalogError):
                await self._metadata.delete([made.segment_id])
            raise
        self._tails[segment.topic_partition] = (Offset(plan.last_offset + 1), tail)
        return outcome

    def forget(self, partition: TopicPartition) -> None:
        """Drop the state of a partition for which no more segments will come for now."""
        self._tails.pop(partition, None)

    async def _upload_rest(
        self, made: LogMade, plan: SegmentPlan, segment: SegmentToAdd
    ) -> PartitionTail:
        before = await self._tail_before(segment.topic_partition, plan.base_offset)
        tail, aborted = advance(before, made.built)
        now_ms = self._clock.now_ms()
        tail = tail.forget(now_ms - self._producer_expiry_ms)
        uploaded = await upload_indexes(
            self._stores.own,
            made.key_base,
            SegmentIndexes(
                offset=made.built.offset_index,
                timestamp=made.built.time_index,
                producer_snapshot=tail.to_snapshot(),
                leader_epoch=encode_checkpoint(await self._lineage(segment)),
                transaction=encode_aborted(aborted),
            ),
            made.uploaded,
            segment,
            plan.topic_name,
            self._keys,
            event_ms=now_ms,
        )
        await self._metadata.finish(made.segment_id, uploaded)
        return tail

    async def _tail_before(self, partition: TopicPartition, base: Offset) -> PartitionTail:
        end, tail = self._tails.get(partition, (None, PartitionTail()))
        if end == base:
            return tail
        before = await self._segment_before(partition, base)
        if before is None:
            return PartitionTail()
        try:
            snapshot = await self._reader.index(before, IndexKind.PRODUCER_SNAPSHOT)
        except ObjectNotFoundError:
            if await self._segment_before(partition, base) is None:
                # Retention removed the segment meanwhile.
                return PartitionTail()
            raise IndexesLostError(
                f"{before.key_base}{INDEXES_SUFFIX} is lost, and the segment after it needs its"
                " producer snapshot: run `stratalog fsck --rebuild-indexes`"
            ) from None
        tail = PartitionTail.from_snapshot(snapshot)
        return tail if is_dense(before) else tail.decided()

    async def _segment_before(self, partition: TopicPartition, base: Offset) -> Segment | None:
        found = await self._metadata.chained(partition, after=Offset(base - 2), limit=1)
        return found[0] if found and found[0].end_offset == base else None

    async def _lineage(self, segment: SegmentToAdd) -> list[EpochStart]:
        """Return the epochs that began before the segment's end and in which something was written.

        In a checkpoint no two epochs begin at the same offset.
        """
        epochs = await self._control.log.epochs(segment.topic_partition)
        begun = {e.start_offset: e for e in epochs if e.start_offset <= segment.last_offset}
        return sorted(begun.values())

    async def _chain(self, segment_id: SegmentId, claim: ClaimToken) -> ChainOutcome:
        """Chain the segment. To repeat that is harmless, so doubt is settled by repeating it."""
        return await retry(
            lambda: self._control.segments.chain(segment_id, claim=claim),
            clock=self._clock,
            failures=(OutcomeUnknownError, ControlUnavailableError),
            backoff=AT_ONCE,
            attempts=_ATTEMPTS,
        )


def _segment_of(made: LogMade, plan: SegmentPlan) -> SegmentToAdd:
    return SegmentToAdd(
        segment_id=made.segment_id,
        topic_id=plan.topic_id,
        partition=plan.partition,
        base_offset=plan.base_offset,
        last_offset=plan.last_offset,
        size_bytes=made.built.size_bytes,
        max_timestamp=made.built.max_timestamp,
        min_timestamp=made.built.min_timestamp,
        leader_epochs=made.built.leader_epochs,
        key_base=made.key_base,
    )
