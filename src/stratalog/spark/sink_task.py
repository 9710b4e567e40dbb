"""What one task of a write does: rows become blocks in the object store, which nobody can see yet.

It knows nothing of the control plane. An attempt that dies, or runs beside another of the same
task, leaves objects that no commit will name.
"""

import os
from collections.abc import Iterable

import pyarrow as pa
from pyspark import TaskContext

from stratalog.batch.from_columns import RowError
from stratalog.block.block import EntryBatch, OpenBlock, SealedBlock, seal
from stratalog.clock import Clock, SystemClock
from stratalog.control.model import BlockToCommit
from stratalog.ids import NO_BROKER, Entropy, ObjectId, uuid7
from stratalog.objects.open import open_store
from stratalog.spark.sink_model import SinkPlan, SinkRowError
from stratalog.spark.sink_rows import RowEncoder, grouped
from stratalog.spark.sink_uploads import Uploads


def write_rows(
    plan: SinkPlan,
    batches: Iterable[pa.RecordBatch],
    *,
    clock: Clock | None = None,
    entropy: Entropy = os.urandom,
) -> list[BlockToCommit]:
    """Encode and upload all rows. Returns when every block is durable."""
    clock = clock or SystemClock()
    encoder = RowEncoder(plan, clock=clock, entropy=entropy)
    store = open_store(plan.objects_url, plan.object_options, clock=clock, entropy=entropy)
    rows_before = 0
    with Uploads(store) as uploads:
        for rows in grouped(batches):
            entries = _encoded(encoder, rows, rows_before)
            uploads.add(_sealed(entries, clock.now_ms(), entropy))
            rows_before += len(rows)
        return uploads.finish()


def _encoded(encoder: RowEncoder, rows: pa.RecordBatch, rows_before: int) -> list[EntryBatch]:
    try:
        return encoder.encode(rows)
    except RowError as error:
        context = TaskContext.get()
        part = f" of the DataFrame's partition {context.partitionId()}" if context else ""
        raise SinkRowError(f"row {rows_before + error.row}{part}: {error.reason}") from None


def _sealed(entries: list[EntryBatch], now_ms: int, entropy: Entropy) -> SealedBlock:
    block = OpenBlock()
    block.add(entries)
    object_id = ObjectId(uuid7(now_ms, entropy))
    return seal(block, object_id=object_id, broker_id=NO_BROKER, created_ms=now_ms)
