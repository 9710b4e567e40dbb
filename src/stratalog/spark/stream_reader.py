"""Reading topics as they grow: `spark.readStream.format("stratalog")`.

Spark keeps one reader alive in a process of its own for as long as a query runs, and writes the
reader's offsets into the checkpoint before a batch is read. A batch is planned from its two offsets
alone, so a repeated batch has the same rows, whatever tier holds them by then.

The first batch needs care. Spark does not store its start but asks for the initial offset, twice in
a new query, and once more when a query is restarted whose first batch was not committed. By then,
"latest" or a time stands for another offset. So the reader keeps its answer while the process
lives, and the end of the first batch carries the answer into the checkpoint.

Offsets mean nothing in a topic that was deleted and created again. So topic ids go into the
checkpoint as well, and the unread records of the old topic are lost data.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.scans.model import EARLIEST, LATEST, Lease
from stratalog.errors import StratalogError
from stratalog.ids import Offset, PartitionIndex
from stratalog.opening.workers import WorkerAccess
from stratalog.scan.errors import TopicNotFoundError, TopicReplacedError
from stratalog.scan.model import Positions, ResolvedPositions, ScanRequest
from stratalog.settings import HOUR_MS
from stratalog.spark.columns import columns_of
from stratalog.spark.errors import DataLossError
from stratalog.spark.offsets import (
    Offsets,
    OffsetsJson,
    Partition,
    TopicIds,
    admit,
    from_json,
    ids_in,
    lag,
    replaced_topics,
    start_in,
    to_json,
)
from stratalog.spark.options import ReadOptions
from stratalog.spark.outage_retry import STREAM_RETRY_S
from stratalog.spark.plain_errors import PlainErrors
from stratalog.spark.scan_calls import (
    HOLDER,
    SplitPartition,
    partitions_of,
    plan,
    read_partition,
    release,
    resolve,
    worker_access_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

_LEASE_MS = HOUR_MS
"""The lease of a batch. A batch is short, and a query that was killed leaves the lease of its last
batch behind, which keeps deleted objects in the store."""
_LOSS = (
    'to go on with what is left, set the option "failOnDataLoss" to false; to begin again, use '
    "another checkpoint"
)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self, options: ReadOptions, schema: StructType, *, clock: Clock | None = None
    ) -> None:
        self._options = options
        self._columns = columns_of(schema)
        self._access = worker_access_of(options)
        self._clock = clock or SYSTEM_CLOCK
        self._initial: OffsetsJson | None = None
        """The start of the query, once Spark has asked for it."""
        self._target: Offsets | None = None
        """The end of an `availableNow` query."""
        self._latest: Offsets | None = None
        """The ends of the partitions at the last look."""
        self._last_batch_s: float | None = None
        self._leases: list[tuple[Offsets, Lease]] = []
        """Leases of the batch that was planned last, each with the end of its batch."""

    def initialOffset(self) -> OffsetsJson:  # noqa: N802
        if self._initial is None:
            with PlainErrors():
                found = self._resolve_start()
                self._initial = to_json(found.offsets[0], found.topic_ids)
        return self._initial

    def _resolve_start(self) -> ResolvedPositions:
        selection = self._options.selection
        request = ScanRequest(
            topics=selection.topics,
            pattern=selection.pattern,
            assign=selection.assign,
            starting=self._options.starting,
            committed=self._options.committed,
        )
        return resolve(self._options, request, self._options.starting)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch.

        Spark has no limit with a minimum and a maximum. With both, `_waits` applies the minimum.
        """
        admission = self._options.admission
        if admission.max_offsets is not None:
            return ReadMaxRows(admission.max_offsets)
        if admission.min_offsets is not None:
            return ReadMinRows(admission.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with PlainErrors():
            [self._target] = self._look(LATEST).offsets

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:  # noqa: N802
        with PlainErrors():
            found = self._look(EARLIEST, LATEST)
            earliest, self._latest = found.offsets
            known = self._known(start, found.topic_ids)
            end = (
                self._latest if self._target is None else _up_to(self._target, known, self._latest)
            )
            begin = self._begin(known, earliest, end)
            if self._waits(sum(lag(begin, end).values()), limit):
                end = known
            elif isinstance(limit, ReadMaxRows):
                end = admit(begin, end, limit.max_rows)
            if start == self._initial:
                return to_json(end, found.topic_ids, start=start)
            # Without new offsets, the text stays the same: it may have a start, or lack ids.
            return start if end == known else to_json(end, found.topic_ids)

    def reportLatestOffset(self) -> OffsetsJson | None:  # noqa: N802
        """Return the ends for the progress report. Spark asks right after `latestOffset`."""
        return to_json(self._latest) if self._latest is not None else None

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[SplitPartition]:
        if start == end:
            return []
        with PlainErrors():
            ends, ids = from_json(end), ids_in(end)
            first = start_in(end)
            known = self._known(start if first is None else first, ids)
            starts = self._starts(known, ends)
            if self._options.fail_on_data_loss:
                return self._plan_all(starts, ends, ids)
            try:
                return self._plan_left(starts, ends, ids)
            except TopicNotFoundError:
                # The topic was deleted after the look, so a second look leaves it out.
                return self._plan_left(starts, ends, ids)

    def __getstate__(self) -> dict[str, WorkerAccess]:
        """Leave out the options: executors only read, and must not learn of the control plane."""
        return {"_access": self._access}

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(partition, self._access)

    def stop(self) -> None:
        """Release the leases: the query has ended, so its last batch is not read any more."""
        leases, self._leases = self._leases, []
        if leases:
            release(self._options, [lease for _, lease in leases])

    def _look(self, *wanted: Offset) -> ResolvedPositions:
        """Return offsets of the existing partitions. A missing topic is not an error here."""
        selection = self._options.selection
        names = selection.topics or selection.assign
        pattern = selection.pattern or "|".join(re.escape(name) for name in names)
        request = ScanRequest(pattern=pattern, committed=self._options.committed)
        positions = (Positions(default=at) for at in wanted)
        found = resolve(self._options, request, *positions, retry_s=STREAM_RETRY_S)
        chosen = [
            {key: offset for key, offset in offsets.items() if selection.has(*key)}
            for offsets in found.offsets
        ]
        return found._replace(offsets=chosen)

    def _known(self, document: OffsetsJson, topic_ids: TopicIds) -> Offsets:
        """Return the offsets of the document that belong to the topics with these ids.

        A topic that was replaced since is new to the query, and read from its beginning.
        """
        replaced = replaced_topics(ids_in(document), topic_ids)
        if replaced and self._options.fail_on_data_loss:
            raise _replaced(f"topic {replaced[0]!r} was deleted and created again")
        return {key: at for key, at in from_json(document).items() if key[0] not in replaced}

    def _begin(self, start: Offsets, earliest: Offsets, end: Offsets) -> Offsets:
        """Return the next offset of each partition. A new one is read from its beginning."""
        for key, offset in start.items():
            if key not in end:
                self._lose(key, f"it is gone, and {offset} was to be read next")
            elif end[key] < offset:
                self._lose(key, f"it ends at {end[key]}, and {offset} was to be read next")
            elif earliest.get(key, offset) > offset:
                self._lose(key, f"it begins at {earliest[key]}, and {offset} was to be read next")
        begin = {}
        for key, offset in end.items():
            first = earliest.get(key, Offset(0))
            if key not in start and first > 0:
                self._lose(key, f"it is new to this query and begins at {first}, not at 0")
            known = start.get(key, first)
            begin[key] = first if known > offset else max(known, first)
        return begin

    def _waits(self, waiting: int, limit: ReadLimit) -> bool:
        """Tell if there are too few offsets for a batch, by `minOffsetsPerTrigger`."""
        least = self._options.admission.min_offsets
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        now_s, last_s = self._clock.monotonic(), self._last_batch_s
        delay_s = self._options.admission.max_delay_ms / 1000
        if waiting < least and last_s is not None and now_s - last_s < delay_s:
            return True
        self._last_batch_s = now_s
        return False

    def _starts(self, start: Offsets, end: Offsets) -> Offsets:
        """Return the starts of the partitions that have records in this batch."""
        starts = {}
        # The records before the start of a new partition are lost.
        beginning = Offset(0) if self._options.fail_on_data_loss else EARLIEST
        for key, offset in end.items():
            known = start.get(key, beginning)
            if known > offset:
                self._lose(key, f"it ends at {offset}, and {known} was to be read next")
                known = EARLIEST
            if known != offset:
                starts[key] = known
        return starts

    def _plan_all(self, starts: Offsets, ends: Offsets, ids: TopicIds) -> list[SplitPartition]:
        try:
            return self._plan(starts, ends, ids)
        except TopicReplacedError as error:
            raise _replaced(str(error)) from None

    def _plan_left(self, starts: Offsets, ends: Offsets, ids: TopicIds) -> list[SplitPartition]:
        """Plan a batch without the records that were deleted since Spark decided on the batch."""
        found = self._look(LATEST)
        [latest] = found.offsets
        replaced = replaced_topics(ids, found.topic_ids)
        ends = {
            key: min(ends[key], latest[key])
            for key in starts
            if key in latest and key[0] not in replaced
        }
        starts = {key: starts[key] for key, end in ends.items() if starts[key] < end}
        return self._plan(starts, ends, ids)

    def _plan(self, starts: Offsets, ends: Offsets, ids: TopicIds) -> list[SplitPartition]:
        """Plan a batch, and release the leases of earlier batches, which have been read by now.

        If a batch is planned twice, the first plan may still be read, so its lease is kept.
        """
        if not starts:
            return []
        over = [lease for end, lease in self._leases if end != ends]
        request = self._request(starts, ends, ids)
        scan = plan(self._options, request, read=over, retry_s=STREAM_RETRY_S)
        kept = [(end, lease) for end, lease in self._leases if end == ends]
        self._leases = [*kept, (ends, scan.lease)]
        return partitions_of(scan)

    def _request(self, starts: Offsets, ends: Offsets, ids: TopicIds) -> ScanRequest:
        options = self._options
        return ScanRequest(
            assign=_assignment(starts),
            topic_ids=ids,
            starting=Positions(default=EARLIEST, by_partition=starts),
            ending=Positions(default=LATEST, by_partition={key: ends[key] for key in starts}),
            columns=self._columns,
            committed=options.committed,
            fail_on_data_loss=options.fail_on_data_loss,
            skips_undecodable=options.skips_undecodable,
            split_bytes=options.split_bytes,
            min_splits=options.min_partitions,
            max_split_offsets=options.max_records_per_partition,
            lease_ms=options.lease_ms or _LEASE_MS,
            holder=HOLDER,
        )

    def _lose(self, key: Partition, loss: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"partition {key[1]} of {key[0]!r}: {loss}; {_LOSS}")


class RefusedStream(DataSourceStreamReader):
    """Stands in for a reader that could not be created, and raises the reason at the first call."""

    def __init__(self, error: StratalogError) -> None:
        self._error = error

    def initialOffset(self) -> OffsetsJson:  # noqa: N802
        self._refuse()

    def latestOffset(self, *_: object) -> OffsetsJson:  # noqa: N802
        self._refuse()

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[SplitPartition]:
        del start, end
        self._refuse()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        del partition
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise self._error.with_traceback(None) from None


def _replaced(loss: str) -> DataLossError:
    return DataLossError(
        f"{loss}, and the unread records of the old one are gone; to read the new one from its"
        ' beginning, set the option "failOnDataLoss" to false; to begin again, use another'
        " checkpoint"
    )


def _up_to(target: Offsets, known: Offsets, latest: Offsets) -> Offsets:
    """Return the target, but no offset that does not exist.

    A query that begins at the end of a growing topic may begin behind the target. It stays at its
    start, and has nothing to read.
    """
    end = {}
    for key, offset in latest.items():
        reached = min(known.get(key, EARLIEST), offset)
        if key in target or key in known:
            end[key] = max(min(target.get(key, reached), offset), reached)
    return end


def _assignment(partitions: Mapping[Partition, Offset]) -> dict[str, list[PartitionIndex]]:
    assigned: dict[str, list[PartitionIndex]] = {}
    for topic, partition in sorted(partitions):
        assigned.setdefault(topic, []).append(PartitionIndex(partition))
    return assigned
