"""Reading of one split: the work of a task, from bytes to Arrow batches."""

from collections.abc import Generator, Iterator

import pyarrow as pa

from stratalog.opening.workers import WorkerAccess
from stratalog.scan.batch_groups import BatchGroup, BatchGrouper
from stratalog.scan.decode import Decoder, sized
from stratalog.scan.fetch import fetched
from stratalog.scan.model import ScanSplit
from stratalog.scan.scan_stores import ScanStores, shared_scan_stores


def read_split(split: ScanSplit, access: WorkerAccess) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records in order, with exactly the wanted columns.

    The process's background thread fetches bytes ahead. The caller's thread decodes.
    """
    decoder = Decoder.of(split)
    groups = read_batch_groups(split, shared_scan_stores(access))
    try:
        yield from sized(batch for group in groups for batch in decoder.decode(group))
    finally:
        groups.close()


def read_batch_groups(split: ScanSplit, stores: ScanStores) -> Generator[BatchGroup]:
    grouper = BatchGrouper()
    ranges = fetched(split, stores)
    try:
        for fetch_range, data in ranges:
            yield from grouper.feed(fetch_range, data)
    finally:
        ranges.close()
