"""One task of a write: it uploads its rows as blocks, which no reader can see before the commit.

A task does not know the control plane. An attempt that dies, or runs beside another of the same
task, leaves objects that no commit will name.
"""

import asyncio
from collections.abc import Iterable

import pyarrow as pa
from pyspark import TaskContext

from stratalog.batch.entry import EntryBatch
from stratalog.batch.errors import RowError
from stratalog.block.block import OpenBlock, SealedBlock, seal
from stratalog.block.footer import FooterWriter
from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.ids import NO_BROKER, Entropy, ObjectId, WriterTag, system_entropy, tagged_uuid7
from stratalog.spark.errors import SinkRowError
from stratalog.spark.sink_model import SinkMessage, SinkPlan
from stratalog.spark.sink_rows import RowEncoder, grouped
from stratalog.spark.sink_uploads import Uploads


def write_rows(
    plan: SinkPlan,
    batches: Iterable[pa.RecordBatch],
    *,
    may_be_repeat: bool = False,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
) -> SinkMessage:
    """Encode and upload all rows. Returns when every block is durable.

    Raises before the first upload if this machine does not see the cluster's store: no reader would
    find the blocks.

    Rows that are too old for their topic are refused here. But if the write `may_be_repeat` of a
    write that came in time, the commit decides.
    """
    clock = clock or SYSTEM_CLOCK
    refusal: str | None = None
    writer = plan.access.writer
    assert writer is not None, "a sink is announced when it is planned"
    encoder = RowEncoder(plan, clock=clock, entropy=entropy)
    # Before the store is opened, because that would create a folder that is not mounted here.
    asyncio.run(plan.access.check_block_store(clock))
    stores = plan.access.open_stores(clock=clock, entropy=entropy)
    rows_before = 0
    with Uploads(stores.objects) as uploads:
        for rows in grouped(batches):
            entries = _encoded(encoder, rows, rows_before)
            if encoder.untimely is not None:
                refusal = refusal or _reason(encoder.untimely, rows_before)
                if not may_be_repeat:
                    raise SinkRowError(refusal)
            uploads.add(_sealed(entries, clock.now_ms(), writer, entropy))
            rows_before += len(rows)
        return SinkMessage(
            blocks=uploads.finish(), lease_id=plan.lease_id, writer=writer, refusal=refusal
        )


def _encoded(encoder: RowEncoder, rows: pa.RecordBatch, rows_before: int) -> list[EntryBatch]:
    try:
        return encoder.encode(rows)
    except RowError as error:
        raise SinkRowError(_reason(error, rows_before)) from None


def _reason(error: RowError, rows_before: int) -> str:
    context = TaskContext.get()
    part = f" of the DataFrame's partition {context.partitionId()}" if context else ""
    return f"row {rows_before + error.row}{part}: {error.reason}"


def _sealed(
    entries: list[EntryBatch], now_ms: int, writer: WriterTag, entropy: Entropy
) -> SealedBlock:
    block = OpenBlock()
    block.add(entries)
    return seal(
        block,
        object_id=ObjectId(tagged_uuid7(now_ms, writer, entropy)),
        broker_id=NO_BROKER,
        created_ms=now_ms,
        writer=FooterWriter(tag=writer),
    )
