"""Reading topics as they grow: `spark.readStream.format("stratalog")`.

Spark keeps one of these alive in a process of its own for as long as a query runs, and writes the
offsets that it answers into the checkpoint before anything is read. A batch is planned from its
two offsets alone, so a batch that is repeated has the same rows, whatever tier holds them by then.

The first batch needs care. Spark does not note where it begins but asks for the initial offset,
twice in a new query, and once more when a query is restarted whose first batch was not committed.
What "latest", or a time, stands for has moved on by then. So the answer is kept while the process
lives, and the end of the first batch carries it into the checkpoint.

Offsets mean nothing in a topic that was deleted and created again. Their ids go into the checkpoint
as well, and what was to be read of the old one is lost data.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

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
    made_anew,
    start_in,
    to_json,
)
from stratalog.spark.options import ReadOptions
from stratalog.spark.patience import STREAM_PATIENCE_S
from stratalog.spark.planning import (
    HOLDER,
    SplitPartition,
    find_place,
    partitions_of,
    plan,
    read_partition,
    release,
    resolve,
)
from stratalog.spark.telling import ToldPlainly

_LEASE_MS = HOUR_MS
"""A batch is short, and a query that was killed leaves the lease of its last one behind, which
keeps deleted objects."""
_LOSS = (
    'to go on with what is left, set the option "failOnDataLoss" to false; to begin anew, use '
    "another checkpoint"
)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self, options: ReadOptions, schema: StructType, *, clock: Clock | None = None
    ) -> None:
        self._options = options
        self._columns = columns_of(schema)
        self._place = find_place(options)
        self._clock = clock or SYSTEM_CLOCK
        self._initial: OffsetsJson | None = None
        """Where the query begins, if Spark has asked for that."""
        self._target: Offsets | None = None
        """Where an `availableNow` query ends."""
        self._latest: Offsets | None = None
        """The ends of the partitions when somebody last looked."""
        self._last_batch_s: float | None = None
        self._leases: list[tuple[Offsets, Lease]] = []
        """Of the batch that was planned last, by its end."""

    def initialOffset(self) -> OffsetsJson:  # noqa: N802
        if self._initial is None:
            with ToldPlainly():
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
        """Spark knows no limit with a least and a most: with both, the least is kept to here."""
        admission = self._options.admission
        if admission.max_offsets is not None:
            return ReadMaxRows(admission.max_offsets)
        if admission.min_offsets is not None:
            return ReadMinRows(admission.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with ToldPlainly():
            [self._target] = self._look(LATEST).offsets

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:  # noqa: N802
        with ToldPlainly():
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
            # The very same, if there is nothing new: its text may tell a beginning, or no ids.
            return start if end == known else to_json(end, found.topic_ids)

    def reportLatestOffset(self) -> OffsetsJson | None:  # noqa: N802
        """For the progress report. Spark asks right after it asked where to go."""
        return to_json(self._latest) if self._latest is not None else None

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[SplitPartition]:
        if start == end:
            return []
        with ToldPlainly():
            ends, ids = from_json(end), ids_in(end)
            first = start_in(end)
            known = self._known(start if first is None else first, ids)
            starts = self._starts(known, ends)
            if self._options.fail_on_data_loss:
                return self._plan_all(starts, ends, ids)
            try:
                return self._plan_left(starts, ends, ids)
            except TopicNotFoundError:
                # It went after it was looked for, and is not found a second time.
                return self._plan_left(starts, ends, ids)

    def __getstate__(self) -> dict[str, Any]:
        """A pickled reader goes to executors, which only read: it knows no control plane."""
        return {"_place": self._place}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition, self._place)

    def stop(self) -> None:
        """The query is over: nobody reads its last batch any more."""
        leases, self._leases = self._leases, []
        if leases:
            release(self._options, [lease for _, lease in leases])

    def _look(self, *wanted: Offset) -> ResolvedPositions:
        """Offsets of the partitions that are there. A topic that is not there is none."""
        selection = self._options.selection
        names = selection.topics or selection.assign
        pattern = selection.pattern or "|".join(re.escape(name) for name in names)
        request = ScanRequest(pattern=pattern, committed=self._options.committed)
        positions = (Positions(default=at) for at in wanted)
        found = resolve(self._options, request, *positions, patience_s=STREAM_PATIENCE_S)
        chosen = [
            {key: offset for key, offset in offsets.items() if selection.has(*key)}
            for offsets in found.offsets
        ]
        return found._replace(offsets=chosen)

    def _known(self, document: OffsetsJson, topic_ids: TopicIds) -> Offsets:
        """Its offsets, without those of topics that were made anew by the time of these ids: they
        are new to the query, and read from their beginning."""
        anew = made_anew(ids_in(document), topic_ids)
        if anew and self._options.fail_on_data_loss:
            raise _replaced(f"topic {anew[0]!r} was deleted and created again")
        return {key: at for key, at in from_json(document).items() if key[0] not in anew}

    def _begin(self, start: Offsets, earliest: Offsets, end: Offsets) -> Offsets:
        """Where each partition goes on. A new one is read from its beginning."""
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
        """Whether there is too little for a batch, as `minOffsetsPerTrigger` says."""
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
        """Where the partitions begin that have something to read in this batch."""
        starts = {}
        # A new partition has lost what is not there any more of its beginning.
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
        """Without what was deleted since the batch was decided on."""
        found = self._look(LATEST)
        [latest] = found.offsets
        anew = made_anew(ids, found.topic_ids)
        ends = {
            key: min(ends[key], latest[key])
            for key in starts
            if key in latest and key[0] not in anew
        }
        starts = {key: starts[key] for key, end in ends.items() if starts[key] < end}
        return self._plan(starts, ends, ids)

    def _plan(self, starts: Offsets, ends: Offsets, ids: TopicIds) -> list[SplitPartition]:
        """A batch is planned when those before it have been read: their leases can end. One that
        is planned twice is maybe being read."""
        if not starts:
            return []
        over = [lease for end, lease in self._leases if end != ends]
        request = self._request(starts, ends, ids)
        scan = plan(self._options, request, read=over, patience_s=STREAM_PATIENCE_S)
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
            split_bytes=options.split_bytes,
            min_splits=options.min_partitions,
            max_split_offsets=options.max_records_per_partition,
            lease_ms=options.lease_ms or _LEASE_MS,
            holder=HOLDER,
        )

    def _lose(self, key: Partition, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"partition {key[1]} of {key[0]!r}: {what}; {_LOSS}")


class RefusedStream(DataSourceStreamReader):
    """Stands in for a reader that could not be made, and says why when it is first asked."""

    def __init__(self, error: StratalogError) -> None:
        self._error = error

    def initialOffset(self) -> OffsetsJson:  # noqa: N802
        self._refuse()

    def latestOffset(self, *_: object) -> OffsetsJson:  # noqa: N802
        self._refuse()

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[SplitPartition]:
        del start, end
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        del partition
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise self._error.with_traceback(None) from None


def _replaced(what: str) -> DataLossError:
    return DataLossError(
        f"{what}, and what was to be read next of the old one is gone; to read the new one from its"
        ' beginning, set the option "failOnDataLoss" to false; to begin anew, use another'
        " checkpoint"
    )


def _up_to(target: Offsets, known: Offsets, latest: Offsets) -> Offsets:
    """The target, as far as it is there. A query that begins at the end of a topic which grows may
    begin behind it: it stays there, and has nothing to read."""
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
