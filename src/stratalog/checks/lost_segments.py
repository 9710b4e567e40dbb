"""A lost segment: one of the same offsets, whose batches have no records, takes its place.

The steps in their order, and the state that a crash after each of them leaves:

1. The replacement is added. Left behind: a segment that was started, which the janitor removes.
2. Its objects are uploaded. Left behind: as after 1, with objects.
3. It is finished. Left behind: a finished segment outside the chain, which the janitor removes.
4. One transaction swaps the segments and notes the loss (`control/lost/swap.py`).

Its batches have no times, so that no look-up by time leads to it. The producers at its end are the
ones of the lost segment, as far as the indexes of that one can still be read.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from stratalog.batch.build import build_batch
from stratalog.checks.errors import LostRangeError
from stratalog.checks.producer_tail import tail_before, tail_between
from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.segment_repair import epoch_runs
from stratalog.clock import Clock
from stratalog.control.lost.model import RangeToNote
from stratalog.control.lost.swap import SegmentToSwap
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import Segment, SegmentToAdd
from stratalog.ids import Entropy, Offset, SegmentId, TopicPartition, WriterTag, tagged_uuid7
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import Buffer
from stratalog.segment.build import BuiltLog, SegmentBuilder
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.epoch_checkpoint import encode_checkpoint, epochs_between
from stratalog.segment.keys import LOG_SUFFIX, parse_segment_key, segment_key_base, segment_keys
from stratalog.segment.log_batches import is_dense
from stratalog.segment.model import SegmentIndexes
from stratalog.segment.producer_state import PartitionTail
from stratalog.segment.upload import upload_indexes, upload_log


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLoss:
    """A segment as it would be given up."""

    topic_name: str
    segment: Segment
    has_log: bool
    """True if its log is in the store, whole or damaged."""


async def plan_segment_loss(control: ControlPlane, tier: RemoteTier, key: str) -> SegmentLoss:
    """Find the segment whose log has this key, and look whether the log is there."""
    named = parse_segment_key(key, tier.prefix)
    if named is None or named.suffix != LOG_SUFFIX:
        raise LostRangeError(
            f"{key} is not the key of a segment's log; other objects of a segment are rebuilt by"
            " `stratalog fsck --rebuild-indexes`"
        )
    partition = TopicPartition(named.topic_id, named.partition)
    after = Offset(named.base_offset - 1)
    found = await control.segments.chained(partition, after=after, limit=1)
    topics = {topic.id: topic.name for topic in await control.topics.all()}
    if not found or found[0].segment_id != named.segment_id or named.topic_id not in topics:
        raise LostRangeError(f"no records are served out of {key}: nothing is to be marked")
    [segment] = found
    if not is_dense(segment):
        raise LostRangeError(f"{key} belongs to an adopted segment, which cannot be marked as lost")
    return SegmentLoss(
        topic_name=topics[named.topic_id],
        segment=segment,
        has_log=await _is_there(tier, segment),
    )


async def mark_segment_lost(
    control: ControlPlane,
    tier: RemoteTier,
    encoding: Encoding,
    loss: SegmentLoss,
    *,
    reason: str,
    noted_by: str,
    writer: WriterTag,
    clock: Clock,
    entropy: Entropy,
) -> None:
    """Do all steps. The writer is announced."""
    lost, store = loss.segment, tier.stores.own
    built, log = _without_records(lost)
    segment_id = SegmentId(tagged_uuid7(clock.now_ms(), writer, entropy))
    new = _to_add(loss, tier.prefix, segment_id, built)
    await control.segments.add(new)
    uploaded_log = await upload_log(store, new.key_base, _parts(log), encoding, tier.keys)
    uploaded = await upload_indexes(
        store,
        new.key_base,
        await _indexes(control, tier, lost, built),
        uploaded_log,
        new,
        loss.topic_name,
        tier.keys,
        event_ms=clock.now_ms(),
    )
    await control.segments.finish(segment_id, uploaded)
    note = RangeToNote(
        topic_id=lost.topic_id,
        partition=lost.partition,
        first_offset=lost.base_offset,
        end_offset=lost.end_offset,
        reason=reason,
        noted_by=noted_by,
        objects=segment_keys(lost.key_base),
    )
    await control.lost.swap(SegmentToSwap(note=note, lost_id=lost.segment_id, new_id=segment_id))


async def _is_there(tier: RemoteTier, segment: Segment) -> bool:
    try:
        await tier.stores.of(segment.store_url).head(segment.key_base + LOG_SUFFIX)
    except ObjectNotFoundError:
        return False
    return True


def _without_records(segment: Segment) -> tuple[BuiltLog, bytes]:
    """Return a log of one batch for each epoch. A segment has no more offsets than a batch."""
    builder = SegmentBuilder(segment.base_offset)
    parts: list[bytes] = []
    for run in epoch_runs(segment):
        data = build_batch(
            [],
            base_offset=run.base_offset,
            last_offset=run.last_offset,
            leader_epoch=run.leader_epoch,
        )
        builder.add(bytearray(data), run)
        parts.append(data)
    return builder.finish(), b"".join(parts)


async def _parts(log: bytes) -> AsyncIterator[Buffer]:
    yield log


def _to_add(loss: SegmentLoss, prefix: str, segment_id: SegmentId, built: BuiltLog) -> SegmentToAdd:
    lost = loss.segment
    return SegmentToAdd(
        segment_id=segment_id,
        topic_id=lost.topic_id,
        partition=lost.partition,
        base_offset=built.base_offset,
        last_offset=built.last_offset,
        size_bytes=built.size_bytes,
        max_timestamp=built.max_timestamp,
        min_timestamp=built.min_timestamp,
        leader_epochs=built.leader_epochs,
        key_base=segment_key_base(
            prefix, loss.topic_name, lost.topic_id, lost.partition, lost.base_offset, segment_id
        ),
    )


async def _indexes(
    control: ControlPlane, tier: RemoteTier, lost: Segment, built: BuiltLog
) -> SegmentIndexes:
    tail = (
        await tail_between(lost, lost, tier)
        or await tail_before(control.segments, lost, tier)
        or PartitionTail()
    )
    epochs = await control.log.epochs(lost.topic_partition)
    return SegmentIndexes(
        offset=built.offset_index,
        timestamp=built.time_index,
        producer_snapshot=tail.to_snapshot(),
        leader_epoch=encode_checkpoint(epochs_between(epochs, 0, lost.last_offset)),
    )
