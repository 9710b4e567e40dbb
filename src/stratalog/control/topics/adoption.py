"""Adoption: a topic of another cluster, created here with its id, its epochs and its offsets.

Its records stay where they are. The rows of its segments point at objects of the other cluster, so
the objects are never deleted from here until `segments.own` takes them over.
"""

import json
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise

from stratalog.control.ledger import Ledger
from stratalog.control.log.boundaries import check_boundaries
from stratalog.control.log.model import (
    EPOCHS,
    HEADS,
    PARTITIONS,
    PRODUCERS,
    PartitionState,
    WriteTier,
)
from stratalog.control.log.sequences import pack_batch
from stratalog.control.segments.lifecycle import ADDED
from stratalog.control.segments.model import SEGMENTS, EpochStart, SegmentState
from stratalog.control.sql.database import Connection, Rows
from stratalog.control.sql.table import rows_from
from stratalog.control.topics.errors import AdoptionRefusedError, TopicExistsError
from stratalog.control.topics.model import (
    ADOPTED_EPOCHS_END,
    ADOPTED_OFFSETS_END,
    ADOPTED_PRODUCERS_END,
    MAX_PARTITIONS,
    AdoptedProducer,
    PartitionToAdopt,
    Topic,
    TopicToAdopt,
)
from stratalog.ids import LeaderEpoch, Offset, kafka_base64

_PARTITION = PARTITIONS.shape_without("last_stable", "migrating_since_ms")
_INSERT_PARTITIONS = PARTITIONS.insert(_PARTITION)
_HEAD = HEADS.shape_without()
_INSERT_HEADS = HEADS.insert(_HEAD)
_EPOCH = EPOCHS.shape_without()
_INSERT_EPOCHS = EPOCHS.insert(_EPOCH)
_SEGMENT = SEGMENTS.shape_without("state", "chained", "owned", "added_ms", "changed_ms")
_SEGMENT_ATTRIBUTES = {
    name: f"segment.{name}" if name in ADDED.names else f"uploaded.{name}"
    for name in _SEGMENT.names
} | {"leader_epochs": "segment.epochs_json"}
_INSERT_SEGMENTS = SEGMENTS.insert(
    _SEGMENT,
    state="$1",
    chained="true",
    owned="false",
    added_ms="{now_ms}",
    changed_ms="{now_ms}",
)
_PRODUCER = PRODUCERS.shape_without("last_ms")
_INSERT_PRODUCERS = PRODUCERS.insert(_PRODUCER, last_ms="{now_ms}")
_INSERT_TOPIC = """
    INSERT INTO topics (topic_id, name, configs, partition_count, created_ms)
    VALUES ($1, $2, $3, $4, {now_ms}) ON CONFLICT DO NOTHING RETURNING created_ms
"""

_SEGMENTS_AT_ONCE = 1000
"""Each carries its manifest, and a statement should neither take long nor fill the memory."""


class AdoptionOperations(Ledger):
    async def adopt(self, topic: TopicToAdopt) -> Topic:
        """Create a topic with this id whose records are in the segments of another cluster.

        Its partitions are TIERED_ONLY: readable, not written to. Raises `TopicExistsError` if the
        name or the id is taken.
        """
        check_adoption(topic)
        return await self._database.write(partial(_adopt, topic=topic))


def check_adoption(topic: TopicToAdopt) -> None:
    indexes = [each.partition for each in topic.partitions]
    if not indexes or indexes != list(range(len(indexes))):
        raise AdoptionRefusedError(
            f"topic {topic.name}: its partitions must be all there, from 0 on, but are {indexes}"
        )
    if len(indexes) > MAX_PARTITIONS:
        raise AdoptionRefusedError(
            f"topic {topic.name} has {len(indexes)} partitions: {MAX_PARTITIONS} are the most"
        )
    for partition in topic.partitions:
        where = f"partition {partition.partition} of topic {topic.name}"
        for breach in (
            *_segment_breaches(topic, partition),
            *_epoch_breaches(partition),
            *_room_breaches(partition),
        ):
            raise AdoptionRefusedError(f"{where}: {breach}")


def _segment_breaches(topic: TopicToAdopt, partition: PartitionToAdopt) -> Iterable[str]:
    segments = [adopted.segment for adopted in partition.segments]
    for segment in segments:
        if segment.topic_partition != (topic.topic_id, partition.partition):
            yield f"segment {segment.segment_id} belongs to another partition"
        if not 0 <= segment.base_offset <= segment.last_offset:
            yield (
                f"segment {segment.segment_id} begins at {segment.base_offset}"
                f" and ends with {segment.last_offset}"
            )
    for one, next_one in pairwise(segments):
        # It may begin inside the one before: leaders in Kafka roll their logs at different offsets.
        # Of two segments with the same offset, the one that ends first serves it.
        if not one.last_offset < next_one.last_offset or next_one.base_offset > one.last_offset + 1:
            yield (
                f"segment {next_one.segment_id} begins at {next_one.base_offset} and ends with"
                f" {next_one.last_offset}, but the one before it ends with {one.last_offset}"
            )
    if segments and not segments[0].base_offset <= partition.log_start <= segments[0].last_offset:
        yield (
            f"it starts at {partition.log_start}, but its first segment has the offsets"
            f" {segments[0].base_offset} to {segments[0].last_offset}"
        )
    if partition.log_start < 0:
        yield f"it starts at {partition.log_start}"


def _epoch_breaches(partition: PartitionToAdopt) -> Iterable[str]:
    for one, next_one in pairwise(partition.epochs):
        # An epoch in which nothing was written begins where the next one does.
        if next_one.epoch <= one.epoch or next_one.start_offset < one.start_offset:
            yield (
                f"epoch {next_one.epoch} from offset {next_one.start_offset} cannot follow"
                f" epoch {one.epoch} from offset {one.start_offset}"
            )
    end = _end(partition)
    for epoch, start_offset in partition.epochs:
        if epoch < 0 or not 0 <= start_offset <= end:
            yield f"epoch {epoch} begins at offset {start_offset}, the partition ends at {end}"


def _room_breaches(partition: PartitionToAdopt) -> Iterable[str]:
    """Yield the numbers that leave too few for the records, leaders and producers to come.

    Beyond the last number of a column SQLite rounds, and commits fail for all that share a block.
    """
    end = _end(partition)
    if end > ADOPTED_OFFSETS_END:
        yield f"it ends at offset {end}, which is beyond {ADOPTED_OFFSETS_END}"
    for epoch, _ in partition.epochs:
        if epoch >= ADOPTED_EPOCHS_END:
            yield f"epoch {epoch} is not below {ADOPTED_EPOCHS_END}"
    for producer in partition.producers:
        if producer.producer_id >= ADOPTED_PRODUCERS_END:
            yield f"producer {producer.producer_id} is not below {ADOPTED_PRODUCERS_END}"


def _end(partition: PartitionToAdopt) -> Offset:
    if not partition.segments:
        return partition.log_start
    return Offset(partition.segments[-1].segment.last_offset + 1)


def _epochs(partition: PartitionToAdopt) -> Sequence[EpochStart]:
    return partition.epochs or [EpochStart(LeaderEpoch(0), partition.log_start)]


async def _adopt(connection: Connection, topic: TopicToAdopt) -> Topic:
    created_ms = await _insert_topic(connection, topic)
    await _insert_partitions(connection, topic)
    await _insert_segments(connection, topic)
    await _insert_producers(connection, topic)
    leader_epochs = {each.partition: _epochs(each)[-1].epoch for each in topic.partitions}
    return Topic(
        id=topic.topic_id,
        name=topic.name,
        partition_count=len(topic.partitions),
        configs=dict(topic.configs),
        created_ms=created_ms,
        leader_epochs={index: epoch for index, epoch in leader_epochs.items() if epoch > 0},
        write_tiers={each.partition: WriteTier.LOCAL for each in topic.partitions},
    )


async def _insert_topic(connection: Connection, topic: TopicToAdopt) -> int:
    await connection.lock("topic names", shared=True)
    # The id of a deleted topic is taken until the last of its rows is gone.
    rows = await connection.fetch(
        _INSERT_TOPIC,
        topic.topic_id,
        topic.name,
        json.dumps(dict(topic.configs)),
        len(topic.partitions),
    )
    if not rows:
        raise TopicExistsError(
            f"topic {topic.name} with the id {kafka_base64(topic.topic_id)} cannot be adopted:"
            " a topic of this name or id exists, or was deleted and is still kept: undelete it, or"
            " remove it with `stratalog topic purge`"
        )
    created_ms: int = rows[0][0]
    return created_ms


async def _insert_partitions(connection: Connection, topic: TopicToAdopt) -> None:
    states = [_state(topic, each) for each in topic.partitions]
    for state in states:
        check_boundaries(state)
    await connection.execute(_INSERT_PARTITIONS, rows=rows_from(_PARTITION, states))
    await connection.execute(_INSERT_HEADS, rows=rows_from(_HEAD, states))
    epochs = [
        (topic.topic_id, each.partition, *start)
        for each in topic.partitions
        for start in _epochs(each)
    ]
    await connection.execute(_INSERT_EPOCHS, rows=Rows(_EPOCH, epochs))


def _state(topic: TopicToAdopt, partition: PartitionToAdopt) -> PartitionState:
    """Return the partition as it is adopted: all its records are in segments."""
    end = _end(partition)
    return PartitionState(
        topic_id=topic.topic_id,
        partition=partition.partition,
        log_start=partition.log_start,
        remote_end=end,
        block_start=end,
        block_end=end,
        high_watermark=end,
        last_stable=end,
        write_tier=WriteTier.LOCAL,
        leader_epoch=_epochs(partition)[-1].epoch,
        size_bytes=sum(adopted.segment.size_bytes for adopted in partition.segments),
        last_commit_ms=0,
    )


async def _insert_segments(connection: Connection, topic: TopicToAdopt) -> None:
    adopted = [each for partition in topic.partitions for each in partition.segments]
    inserted = 0
    for start in range(0, len(adopted), _SEGMENTS_AT_ONCE):
        page = adopted[start : start + _SEGMENTS_AT_ONCE]
        inserted += await connection.execute(
            f"{_INSERT_SEGMENTS} ON CONFLICT (segment_id) DO NOTHING",
            SegmentState.COPY_FINISHED.value,
            rows=rows_from(_SEGMENT, page, **_SEGMENT_ATTRIBUTES),
        )
    if inserted != len(adopted):
        # One whose deletion has begun is among them: its objects are about to go.
        raise AdoptionRefusedError(
            f"topic {topic.name}: {len(adopted) - inserted} of its {len(adopted)} segments are"
            " known already: wait until the topic that had them is gone"
        )


async def _insert_producers(connection: Connection, topic: TopicToAdopt) -> None:
    known = [(p.partition, each) for p in topic.partitions for each in p.producers]
    if not known:
        return
    values = [
        (topic.topic_id, partition, each.producer_id, each.producer_epoch, _last_batch(each))
        # A producer that only ended transactions has no sequence, and may begin with any.
        for partition, each in known
        if each.last_sequence >= 0
    ]
    await connection.execute(
        f"{_INSERT_PRODUCERS} ON CONFLICT (topic_id, partition, producer_id) DO NOTHING",
        rows=Rows(_PRODUCER, values),
    )
    # A new producer must not be given the number of one that continues here.
    await connection.execute(
        "UPDATE cluster SET next_producer_id = $1 WHERE next_producer_id < $1",
        max(each.producer_id for _, each in known) + 1,
    )


def _last_batch(producer: AdoptedProducer) -> bytes:
    return pack_batch(
        last_sequence=producer.last_sequence,
        last_offset_delta=producer.offset_delta,
        base_offset=producer.last_offset - producer.offset_delta,
        append_time_ms=producer.timestamp,
    )
