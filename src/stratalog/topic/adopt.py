"""Adoption: the plan by which a topic that Kafka has tiered becomes a topic of this cluster.

Nothing is copied, and nothing is changed at the source. The newest segment of a partition holds its
producers and its leader epochs. The epochs decide which segments make up the partition. The source
must be sealed: records without a segment would be lost, and the plan counts them.

The control plane then takes three steps, each in a transaction of its own: it adopts the topic,
begins its migration, and switches appends to blocks. After a crash between two steps, `check_free`
names the steps that are left.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import EpochStart, SegmentState
from stratalog.control.topics.errors import TopicExistsError
from stratalog.control.topics.migration_state import MigrationState, migration_state
from stratalog.control.topics.model import (
    AdoptedProducer,
    AdoptedSegment,
    PartitionToAdopt,
    TopicToAdopt,
)
from stratalog.ids import (
    NO_EPOCH,
    Offset,
    PartitionIndex,
    ProducerId,
    SegmentId,
    TopicId,
    kafka_base64,
)
from stratalog.segment.epoch_lineage import lineage
from stratalog.segment.errors import SegmentMismatchError
from stratalog.segment.producer_snapshot import ProducerEntry
from stratalog.segment.remote_log_metadata import SegmentAdded
from stratalog.topic.adopted_objects import AdoptedObjects, CheckedSegment
from stratalog.topic.adoption_source import SourcePartition, SourceTopic
from stratalog.topic.errors import AdoptedAlreadyError, OpenTransactionsError, UnsealedSourceError

PARALLEL_SEGMENTS = 32
"""A segment takes three small requests. So many segments at once hide the latency of the requests,
and are few enough for any store."""

Progress = Callable[[str, int, int], None]

_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    to_adopt: PartitionToAdopt
    lost_records: int
    """The number of records that the source is known to have and that are in no segment."""
    open_producers: Sequence[ProducerId]
    """Producers with an open transaction at the end of the last segment."""
    told_end: Offset | None = None
    """The end of the metadata, if the given start lies beyond it."""

    @property
    def partition(self) -> PartitionIndex:
        return self.to_adopt.partition

    @property
    def end_offset(self) -> Offset:
        segments = self.to_adopt.segments
        if not segments:
            return self.to_adopt.log_start
        return Offset(segments[-1].segment.last_offset + 1)

    @property
    def size_bytes(self) -> int:
        return sum(one.segment.size_bytes for one in self.to_adopt.segments)

    @property
    def stored_bytes(self) -> int:
        return sum(one.uploaded.stored_bytes for one in self.to_adopt.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionPlan:
    source: SourceTopic
    partitions: Sequence[PartitionPlan]

    @property
    def topic(self) -> TopicToAdopt:
        return TopicToAdopt(
            topic_id=self.source.topic_id,
            name=self.source.name,
            configs=self.source.configs,
            partitions=[one.to_adopt for one in self.partitions],
        )

    def check_sealed(self) -> None:
        self._check_starts()
        losing = [one for one in self.partitions if one.lost_records]
        if losing:
            named = ", ".join(f"{one.lost_records} of partition {one.partition}" for one in losing)
            raise UnsealedSourceError(
                f"topic {self.source.name} has records that are in no complete segment and would be"
                f" lost: {named}. Seal the topic, or leave them behind with --lose-untiered"
            )

    def _check_starts(self) -> None:
        for one in self.partitions:
            if one.told_end is not None:
                raise UnsealedSourceError(
                    f"partition {one.partition} of topic {self.source.name} would begin at offset"
                    f" {one.to_adopt.log_start}, with nothing before it, but the last one that was"
                    f" tiered is {one.told_end - 1}. Correct --log-start, or leave everything up to"
                    " there behind with --lose-untiered"
                )

    def check_transactions(self) -> None:
        open_ones = [one for one in self.partitions if one.open_producers]
        if open_ones:
            named = "; ".join(
                f"partition {one.partition}: {', '.join(map(str, one.open_producers))}"
                for one in open_ones
            )
            raise OpenTransactionsError(
                f"topic {self.source.name} ends inside transactions of these producers: {named}."
                " Let them commit or abort and their markers be tiered, or take their records as"
                " committed with --accept-open-transactions"
            )


async def check_free(control: ControlPlane, name: str, topic_id: TopicId) -> None:
    """Raise if the name or the id is taken. If an adoption was cut off, say how to continue it."""
    for topic in await control.topics.named([name]):
        if topic.id != topic_id:
            raise TopicExistsError(
                f"another topic called {name}, with the id {kafka_base64(topic.id)}, exists here:"
                " delete it if it is not needed"
            )
        states = {migration_state(one) for one in await control.log.topic_partitions(topic.id)}
        raise AdoptedAlreadyError(f"topic {name} was adopted already{_steps_left(name, states)}")
    for topic in await control.topics.with_ids([topic_id]):
        raise TopicExistsError(
            f"the id {kafka_base64(topic_id)} belongs to topic {topic.name} here already"
        )


def _steps_left(name: str, states: set[MigrationState]) -> str:
    if MigrationState.MIGRATING in states:
        return f", and its migration has begun: finish it with `stratalog topic migrate {name}`"
    if MigrationState.TIERED_ONLY in states:
        return (
            ", and can be read but not written:"
            f" open it for writes with `stratalog topic migrate {name}`"
        )
    return " and takes writes: nothing is left to do"


async def open_for_writes(control: ControlPlane, topic_id: TopicId) -> None:
    """Let appends go to blocks, from the end of the adopted log. May be repeated after a crash."""
    await control.topics.begin_migration(topic_id)
    await control.topics.switch_to_blocks(topic_id)


async def plan_adoption(
    source: SourceTopic, objects: AdoptedObjects, progress: Progress = lambda *_: None
) -> AdoptionPlan:
    """Find the segments of each partition, and check the objects of all of them."""
    chains = await _in_parallel(partial(_find_chain, objects), source.partitions)
    newest = [chain.newest for chain in chains if chain.newest is not None]
    checked = {one.record.segment_id: one for one in newest}
    records = [record for chain in chains for record in chain.records]
    done = 0

    async def check(record: SegmentAdded) -> tuple[SegmentId, AdoptedSegment]:
        nonlocal done
        found = checked.get(record.segment_id) or await objects.check(record)
        done += 1
        progress("segments", done, len(records))
        return record.segment_id, found.adopted

    adopted = dict(await _in_parallel(check, records))
    return AdoptionPlan(source=source, partitions=[_plan(chain, adopted) for chain in chains])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """The segments of a partition, and the epochs and producers that the newest one holds."""

    source: SourcePartition
    log_start: Offset
    records: Sequence[SegmentAdded] = ()
    newest: CheckedSegment | None = None
    epochs: Sequence[EpochStart] = ()
    producers: Sequence[ProducerEntry] = ()

    @property
    def end_offset(self) -> Offset:
        return Offset(self.records[-1].last_offset + 1) if self.records else self.log_start


async def _find_chain(objects: AdoptedObjects, source: SourcePartition) -> _Chain:
    candidates = _candidates(source)
    if not candidates:
        return _Chain(source=source, log_start=_unused_start(source))
    newest = await objects.check(max(candidates, key=_age))
    epochs = await objects.epochs(newest)
    records = lineage(candidates, epochs, log_end=source.log_end)
    # No segment of the lineage ends after the newest one of its newest epoch.
    if not records or records[-1].last_offset != newest.record.last_offset:
        raise SegmentMismatchError(
            f"{newest.adopted.segment.key_base}: its leader-epoch checkpoint and Kafka's metadata"
            " do not tell of the same epochs"
        )
    producers = await objects.producers(newest)
    base = records[0].base_offset
    return _Chain(
        source=source,
        log_start=base if source.log_start is None else max(base, source.log_start),
        records=records,
        newest=newest,
        epochs=epochs,
        producers=producers,
    )


def _candidates(source: SourcePartition) -> list[SegmentAdded]:
    """List the complete segments whose offsets are within the log.

    Segments outside the log do not matter, and may be damaged.
    """
    if source.metadata is None:
        return []
    return [
        segment
        for segment in source.metadata.segments
        if (source.log_start is None or segment.last_offset >= source.log_start)
        and (source.log_end is None or segment.last_offset < source.log_end)
    ]


def _age(segment: SegmentAdded) -> tuple[int, int]:
    """Compare epochs first: a deposed leader may have written higher offsets."""
    return segment.leader_epochs[-1].epoch, segment.last_offset


def _plan(chain: _Chain, adopted: Mapping[SegmentId, AdoptedSegment]) -> PartitionPlan:
    return PartitionPlan(
        to_adopt=PartitionToAdopt(
            partition=chain.source.partition,
            log_start=chain.log_start,
            segments=[adopted[record.segment_id] for record in chain.records],
            epochs=_epochs(chain),
            producers=[_producer(entry) for entry in chain.producers],
        ),
        lost_records=_lost(chain),
        open_producers=[one.producer_id for one in chain.producers if one.txn_first_offset >= 0],
        told_end=_told_end(chain.source) if _starts_beyond(chain.source) else None,
    )


def _epochs(chain: _Chain) -> list[EpochStart]:
    """Return the lineage and the highest known epoch. Epochs of this cluster begin above it."""
    epochs = list(chain.epochs)
    metadata = chain.source.metadata
    highest = max(
        chain.source.leader_epoch, NO_EPOCH if metadata is None else metadata.highest_epoch
    )
    if highest > (epochs[-1].epoch if epochs else NO_EPOCH):
        epochs.append(EpochStart(highest, chain.end_offset))
    return epochs


def _producer(entry: ProducerEntry) -> AdoptedProducer:
    return AdoptedProducer(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_offset=entry.last_offset,
        offset_delta=entry.offset_delta,
        timestamp=entry.timestamp,
    )


def _lost(chain: _Chain) -> int:
    end = max(_known_end(chain.source), chain.end_offset)
    return end - _known_start(chain, end) - (chain.end_offset - chain.log_start)


def _known_start(chain: _Chain, end: Offset) -> Offset:
    source = chain.source
    if source.log_start is not None:
        return _told_end(source) if _starts_beyond(source) else source.log_start
    if chain.records:
        return chain.log_start
    begun = min((one.base_offset for one in _uploads(source)), default=end)
    # Records that were tiered once and have expired since are not lost.
    return begun if source.metadata is None else max(begun, source.metadata.finished_end)


def _starts_beyond(source: SourcePartition) -> bool:
    """Tell whether all offsets in a dump lie below the start that was given with the dump.

    All records of a sealed topic were tiered once, so the start is more likely a slip.
    """
    if source.log_start is None or source.log_end is not None:
        return False
    return 0 < _told_end(source) < source.log_start


def _unused_start(source: SourcePartition) -> Offset:
    """Find the start of a partition without segments: an offset that was never in use."""
    if source.log_end is not None:
        return source.log_end
    return max(source.log_start or Offset(0), _told_end(source))


def _told_end(source: SourcePartition) -> Offset:
    """Return the offset after the last one that the metadata ever mentioned, 0 without any."""
    return Offset(0) if source.metadata is None else source.metadata.known_end


def _known_end(source: SourcePartition) -> Offset:
    """Find the end of the log. Without a live source, unfinished uploads show how far it went."""
    if source.log_end is not None:
        return source.log_end
    ends = [Offset(one.last_offset + 1) for one in _uploads(source)]
    return max([source.log_start or Offset(0), *ends])


def _uploads(source: SourcePartition) -> list[SegmentAdded]:
    """List the uploads that were begun and not completed."""
    if source.metadata is None:
        return []
    unfinished = source.metadata.unfinished
    return [one for one in unfinished if one.state is SegmentState.COPY_STARTED]


async def _in_parallel(work: Callable[[_In], Awaitable[_Out]], items: Sequence[_In]) -> list[_Out]:
    """Do the work on all items, some at a time. The first failure ends all of it."""
    places = asyncio.Semaphore(PARALLEL_SEGMENTS)

    async def one(item: _In) -> _Out:
        async with places:
            return await work(item)

    tasks = [asyncio.create_task(one(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
