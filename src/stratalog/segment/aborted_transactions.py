"""The aborted transactions that a reader of committed records must leave out."""

from collections.abc import AsyncIterator, Sequence

from stratalog.control.segments.model import Segment
from stratalog.ids import Offset
from stratalog.segment.index_bytes import IndexBytes
from stratalog.segment.model import AbortedTransaction, IndexKind
from stratalog.segment.thread_offload import offload
from stratalog.segment.txn_index import AbortedSearch, aborted_between, decode_aborted


async def find_aborted(
    indexes: IndexBytes,
    segments: AsyncIterator[Segment] | Sequence[Segment],
    first: Offset,
    end: Offset,
) -> list[AbortedTransaction]:
    """Find the aborted transactions with records in `[first, end)`.

    The segments are consecutive, and the first one holds the offset `first`. A transaction is
    listed in the segment that holds its marker, which may lie far beyond `end`. So the search goes
    on until an entry shows that no more can come, or to the last segment.
    """
    found: list[AbortedTransaction] = []
    async for segment in _each(segments):
        if segment.last_offset < first or not _has_aborted(segment):
            continue
        index = await indexes.read(segment, IndexKind.TRANSACTION)
        search = await offload(len(index), _search, index, first, end)
        found += search.transactions
        if search.complete:
            break
    return found


def _search(index: bytes, first: Offset, end: Offset) -> AbortedSearch:
    return aborted_between(decode_aborted(index), first, end)


async def _each(
    segments: AsyncIterator[Segment] | Sequence[Segment],
) -> AsyncIterator[Segment]:
    if isinstance(segments, Sequence):
        for segment in segments:
            yield segment
    else:
        async for segment in segments:
            yield segment


def _has_aborted(segment: Segment) -> bool:
    return segment.uploaded is not None and segment.uploaded.has_aborted
