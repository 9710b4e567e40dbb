"""Rows, claims and aged partitions for tests of plans, where no bytes are needed."""

from collections.abc import Sequence
from itertools import count
from uuid import UUID

from stratalog.batch.header import TimestampType
from stratalog.control.log.commit_plan import MAX_ROW_BYTES
from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import AgedPartition, Claim, ClaimToken, RunId, UnitKind
from stratalog.ids import LeaderEpoch, ObjectId, Offset, PartitionIndex, TopicId, TopicPartition
from stratalog.pipeline.plan.claimed_rows import ClaimedRows
from stratalog.pipeline.topic_facts import TopicFacts
from stratalog.settings import DAY_MS, GIB

TOPIC = TopicId(UUID(int=1))
FACTS = TopicFacts(
    name="orders", segment_bytes=GIB, segment_ms=DAY_MS, index_interval_bytes=4096, age_ms=0
)
TOPICS = {TOPIC: FACTS}
_tokens = count(1)


def object_id(number: int) -> ObjectId:
    return ObjectId(UUID(int=number))


def row(
    partition: int,
    offset: int,
    *,
    size: int = 1000,
    block: int = 0,
    committed_ms: int = 0,
    byte_offset: int = 0,
    epoch: int = 0,
) -> Coordinates:
    """A row of one offset."""
    return Coordinates(
        topic_id=TOPIC,
        partition=PartitionIndex(partition),
        base_offset=Offset(offset),
        last_offset=Offset(offset),
        object_id=object_id(block),
        object_key=f"object {block}",
        byte_offset=byte_offset,
        byte_size=size,
        max_timestamp=0,
        timestamp_type=TimestampType.CREATE_TIME,
        committed_ms=committed_ms,
        leader_epoch=LeaderEpoch(epoch),
        stamped=False,
    )


def claimed(
    rows: Sequence[Coordinates], *, kind: UnitKind = UnitKind.MERGE, end: int | None = None
) -> ClaimedRows:
    """A claim on exactly these rows, or on more of them than these."""
    first, last = rows[0], rows[-1]
    claim = Claim(
        token=ClaimToken(UUID(int=next(_tokens))),
        run_id=RunId(UUID(int=0)),
        partition=TopicPartition(first.topic_id, first.partition),
        kind=kind,
        first_offset=first.base_offset,
        end_offset=Offset(last.last_offset + 1 if end is None else end),
        expires_ms=0,
        attempts=0,
    )
    return ClaimedRows(claim=claim, rows=rows, end_offset=Offset(last.last_offset + 1))


def aged(
    partition: int = 0,
    *,
    rows: int = 1,
    size: int = 1000,
    objects: int | None = None,
    oldest_ms: int = 0,
    remote_end: int = 0,
    parked: bool = False,
    failed_ms: int | None = None,
    done_ms: int | None = None,
    claimed: bool = False,
    triggered_ms: int | None = None,
) -> AgedPartition:
    return AgedPartition(
        topic_id=TOPIC,
        partition=PartitionIndex(partition),
        first_offset=Offset(0),
        end_offset=Offset(rows),
        remote_end=Offset(remote_end),
        rows=rows,
        bytes=size,
        objects=rows if objects is None else objects,
        oldest_ms=oldest_ms,
        attempts=0,
        parked=parked,
        failed_ms=failed_ms,
        done_ms=done_ms,
        claimed=claimed,
        triggered_ms=triggered_ms,
    )


def joined(moved: Sequence[Coordinates], block: int) -> list[Coordinates]:
    """The rows that a split makes of these, with the times that it gives them."""
    made: list[Coordinates] = []
    for each in moved:
        if made and made[-1].byte_size + each.byte_size <= MAX_ROW_BYTES:
            made[-1] = made[-1]._replace(
                byte_size=made[-1].byte_size + each.byte_size,
                last_offset=each.last_offset,
                committed_ms=each.committed_ms,
            )
        else:
            placed = row(each.partition, each.base_offset, block=block)
            made.append(
                placed._replace(
                    byte_size=each.byte_size,
                    last_offset=each.last_offset,
                    committed_ms=each.committed_ms,
                    oldest_ms=each.oldest_commit_ms,
                    stamped=True,
                )
            )
    return made
