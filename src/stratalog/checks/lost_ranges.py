"""Marking a range of offsets as lost, so that readers go on behind it.

The steps in their order, and the state that a crash after each of them leaves:

1. The rows of the range are read. A row that can still be read is not given up by mistake.
2. An object is uploaded that has, for each of the rows and for each hole between them, one batch
   with their offsets and without records. Left behind: an orphan of an announced writer, which
   the sweeper takes.
3. One transaction swaps the rows and notes the loss (`control/lost/fill.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stratalog.batch.build import build_batch
from stratalog.batch.header import TimestampType
from stratalog.block.footer import BlockFooter, FooterPartition, FooterRange, encode_footer
from stratalog.block.keys import split_key
from stratalog.checks.errors import LostRangeError
from stratalog.checks.object_batches import read_batches
from stratalog.checks.promises import batch_continues_row, batches_end_with_row
from stratalog.checks.record_check import record_fault
from stratalog.clock import Clock
from stratalog.control.log.model import Coordinates
from stratalog.control.lost.fill import RangeToFill
from stratalog.control.lost.model import RangeToNote
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.lifecycle import epoch_at
from stratalog.control.segments.model import EpochStart
from stratalog.errors import DamagedError
from stratalog.ids import (
    NO_BROKER,
    Entropy,
    LeaderEpoch,
    ObjectId,
    Offset,
    TopicPartition,
    WriterTag,
    tagged_uuid7,
)
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectStore

_PAGE_ROWS = 1000
_MOST_ROWS = 100_000
"""One batch for each row of a range. A range with more is marked in parts."""
_MOST_OFFSETS = 1 << 31
"""Offsets that one batch can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPlan:
    """A range as it would be marked: it covers its rows whole."""

    partition: TopicPartition
    first_offset: Offset
    end_offset: Offset
    rows: Sequence[Coordinates]
    readable: Sequence[Coordinates]
    """Rows whose records can all be read. Marking gives them up, too."""
    faults: Sequence[str]
    """The reasons why the others cannot be read."""
    committed_ms: int
    """When the end of the range was committed at the latest. Commit times only grow in a partition,
    so a hole there takes the time of the row before it, or after it."""
    epochs: Sequence[EpochStart]

    @property
    def objects(self) -> list[str]:
        return list(dict.fromkeys(row.object_key for row in self.rows))

    @property
    def size_bytes(self) -> int:
        return sum(row.byte_size for row in self.rows)


async def plan_loss(
    control: ControlPlane,
    store: ObjectStore,
    partition: TopicPartition,
    first_offset: Offset,
    end_offset: Offset,
) -> LossPlan:
    """Look at the rows of a range, and widen it to the edges of its first and its last row."""
    state = (await control.log.partitions([partition])).get(partition)
    if state is None:
        raise LostRangeError(f"there is no partition {partition.partition}")
    if not state.block_start <= first_offset < end_offset <= state.block_end:
        raise LostRangeError(
            f"offsets {first_offset} to {end_offset - 1} are not all in blocks, which hold the"
            f" offsets {state.block_start} to {state.block_end - 1} of partition"
            f" {partition.partition}"
        )
    rows = await _rows(control, partition, first_offset, end_offset)
    readable, faults = [], []
    for row in rows:
        fault = await _fault(store, row)
        if fault is None:
            readable.append(row)
        else:
            faults.append(fault)
    end_offset = max(end_offset, rows[-1].end_offset) if rows else end_offset
    behind = await control.log.all_coordinates(partition, after=Offset(end_offset - 1), limit=1)
    neighbours = [*rows[-1:], *behind]
    return LossPlan(
        partition=partition,
        first_offset=min(first_offset, rows[0].base_offset) if rows else first_offset,
        end_offset=end_offset,
        rows=rows,
        readable=readable,
        faults=faults,
        committed_ms=neighbours[0].committed_ms if neighbours else state.last_commit_ms,
        epochs=await control.log.epochs(partition),
    )


async def mark_lost(
    control: ControlPlane,
    store: ObjectStore,
    plan: LossPlan,
    *,
    topic_name: str,
    reason: str,
    noted_by: str,
    writer: WriterTag,
    clock: Clock,
    entropy: Entropy,
) -> None:
    """Do steps 2 and 3. The writer is announced."""
    now_ms = clock.now_ms()
    object_id = ObjectId(tagged_uuid7(now_ms, writer, entropy))
    key = split_key(object_id)
    new_rows, data = _filled(plan, object_id, key)
    partition = FooterPartition(
        topic_id=plan.partition.topic_id,
        topic_name=topic_name,
        partition=plan.partition.partition,
        batches=[_footer_range(row) for row in new_rows],
    )
    footer = BlockFooter(
        block_id=object_id,
        broker_id=NO_BROKER,
        created_ms=now_ms,
        partitions=[partition],
        stamped=True,
    )
    body = data + encode_footer(footer)
    await store.put(key, [body])
    note = _note(plan, reason, noted_by)
    await control.lost.fill(
        RangeToFill(
            note=note,
            object_id=object_id,
            key=key,
            size_bytes=len(body),
            old_rows=plan.rows,
            new_rows=new_rows,
        )
    )


def _note(plan: LossPlan, reason: str, noted_by: str) -> RangeToNote:
    return RangeToNote(
        topic_id=plan.partition.topic_id,
        partition=plan.partition.partition,
        first_offset=plan.first_offset,
        end_offset=plan.end_offset,
        reason=reason,
        noted_by=noted_by,
        objects=plan.objects,
    )


async def _rows(
    control: ControlPlane, partition: TopicPartition, first_offset: Offset, end_offset: Offset
) -> list[Coordinates]:
    found: list[Coordinates] = []
    after = Offset(first_offset - 1)
    while page := await control.log.all_coordinates(partition, after=after, limit=_PAGE_ROWS):
        found += [row for row in page if row.base_offset < end_offset]
        after = page[-1].last_offset
        if page[-1].base_offset >= end_offset:
            break
        if len(found) > _MOST_ROWS:
            raise LostRangeError(
                f"offsets {first_offset} to {end_offset - 1} have more than {_MOST_ROWS} rows:"
                " mark them in smaller ranges"
            )
    return found


async def _fault(store: ObjectStore, row: Coordinates) -> str | None:
    """Return the reason why a record of the row cannot be read. None: all can."""
    expected = row.base_offset
    where = f"offset {row.base_offset}, object {row.object_key}"
    end = row.byte_offset + row.byte_size
    try:
        async for _, header, batch in read_batches(store, row.object_key, row.byte_offset, end):
            for problem in batch_continues_row(row, expected, header, batch):
                return problem.text
            if (fault := await record_fault(header, batch)) is not None:
                return f"{where}: {fault}"
            expected = Offset(expected + header.last_offset_delta + 1)
    except ObjectNotFoundError:
        return f"{where}: the object is not in the store"
    except DamagedError as error:
        return f"{where}: {error}"
    return next((problem.text for problem in batches_end_with_row(row, expected)), None)


def _filled(plan: LossPlan, object_id: ObjectId, key: str) -> tuple[list[Coordinates], bytes]:
    """Return rows for all offsets of the range, and their batches."""
    rows: list[Coordinates] = []
    parts: list[bytes] = []
    byte_offset = 0
    for shape in _shapes(plan):
        data = build_batch(
            [],
            base_offset=shape.base_offset,
            last_offset=shape.last_offset,
            leader_epoch=shape.leader_epoch,
        )
        rows.append(
            shape._replace(
                object_id=object_id,
                object_key=key,
                byte_offset=byte_offset,
                byte_size=len(data),
                max_timestamp=-1,
                timestamp_type=TimestampType.CREATE_TIME,
                stamped=True,
            )
        )
        parts.append(data)
        byte_offset += len(data)
    return rows, b"".join(parts)


def _shapes(plan: LossPlan) -> Iterator[Coordinates]:
    """Yield the rows of the range, and rows like their neighbours for the holes between them."""
    next_offset = plan.first_offset
    for row in plan.rows:
        yield from _hole(plan, next_offset, row.base_offset, row.committed_ms)
        yield row
        next_offset = row.end_offset
    yield from _hole(plan, next_offset, plan.end_offset, plan.committed_ms)


def _hole(
    plan: LossPlan, first_offset: Offset, end_offset: Offset, committed_ms: int
) -> Iterator[Coordinates]:
    """Yield a row for each epoch of a hole."""
    starts = sorted(start for _, start in plan.epochs if first_offset < start < end_offset)
    base = first_offset
    for end in (*starts, end_offset):
        while base < end:
            last = min(base + _MOST_OFFSETS, end) - 1
            yield Coordinates(
                topic_id=plan.partition.topic_id,
                partition=plan.partition.partition,
                base_offset=base,
                last_offset=Offset(last),
                object_id=ObjectId(plan.partition.topic_id),
                object_key="",
                byte_offset=0,
                byte_size=0,
                max_timestamp=-1,
                timestamp_type=TimestampType.CREATE_TIME,
                committed_ms=committed_ms,
                leader_epoch=epoch_at(plan.epochs, base) or LeaderEpoch(0),
                stamped=True,
            )
            base = Offset(last + 1)


def _footer_range(row: Coordinates) -> FooterRange:
    return FooterRange(
        byte_offset=row.byte_offset,
        byte_size=row.byte_size,
        record_count=0,
        batch_count=1,
        base_offset=row.base_offset,
        last_offset=row.last_offset,
        max_timestamp=-1,
    )
