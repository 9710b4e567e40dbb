"""The repair of segments: damaged indexes are rebuilt from the log.

The log gives the offset index and the time index. With the producer snapshot of the segment before
it, the log also gives its own snapshot and its transaction index. The control plane gives the
epochs. Indexes without problems are kept. If no segment is left before this one, the snapshot
forgets producers that did not write since; their earlier records are gone, too. If there is a
segment before, but its snapshot cannot be read, then a new snapshot or transaction index would be a
guess, and none is made.

1. Put the `.indexes` object. A crash leaves it beside a manifest that may not fit. Then even reads
   that did not need the damaged index may fail, until the next repair, which begins again.
2. Put the manifest. A crash leaves a row with the old manifest, with the same effect.
3. Replace the manifest in the row. This fails if the deletion of the segment has begun meanwhile.
   Then the new objects have no row, and the sweeper takes them.

Between 1 and 3 a broker may find that indexes and row do not fit. It looks the read up once more,
and if step 3 is still to come, its client gets the error. A log is never written to.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from stratalog.batch.frames import iter_batches
from stratalog.checks.errors import NotRepairedError
from stratalog.checks.producer_tail import segment_before, tail_before, tail_between
from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.report import Problem, Progress
from stratalog.checks.segment_audit import Audited, audit_segment, open_whole, whole_batches
from stratalog.checks.segment_check import chained_segments
from stratalog.checks.segment_promises import name_of
from stratalog.control.identity.model import StoreRole
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import Segment, SegmentUploaded
from stratalog.control.topics.model import Topic
from stratalog.errors import RetriableError, StratalogError
from stratalog.ids import Offset, PartitionIndex, TopicPartition
from stratalog.opening.errors import MarkerMissingError
from stratalog.opening.marker import MARKER_KEY, check_marker, read_marker
from stratalog.segment.build import BuiltLog, SegmentBuilder
from stratalog.segment.epoch_checkpoint import encode_checkpoint, epochs_between
from stratalog.segment.model import IndexKind, SegmentIndexes, SourceRun
from stratalog.segment.open_segment import OpenSegment
from stratalog.segment.producer_state import PartitionTail, advance
from stratalog.segment.thread_offload import offload
from stratalog.segment.txn_index import encode_aborted
from stratalog.segment.upload import UploadedLog, upload_indexes

_EVENT_TIME = "eventTimestampMs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A segment whose indexes were damaged."""

    where: str
    segment: Segment
    damage: Sequence[Problem]
    failure: str | None = None
    """The reason why the indexes were not rebuilt, if they were not."""

    def as_dict(self) -> dict[str, object]:
        return {
            "where": self.where,
            "segment": self.segment.key_base,
            "damage": [problem.text for problem in self.damage],
            "rebuilt": self.failure is None,
            "failure": self.failure,
        }

    def __str__(self) -> str:
        text = f"{self.where}: {name_of(self.segment)}"
        return f"{text}: {self.failure}" if self.failure else text


async def rebuild_indexes(
    control: ControlPlane, tier: RemoteTier, progress: Progress | None = None
) -> list[Repair]:
    """Read all segments of this cluster, and rebuild damaged indexes."""
    await _check_claim(control, tier)
    repairs: list[Repair] = []
    done = 0
    for topic in await control.topics.all():
        for index in range(topic.partition_count):
            partition = TopicPartition(topic.id, PartitionIndex(index))
            rebuilding = _Rebuilding(control, tier, topic, partition)
            async for repair in rebuilding.run():
                repairs.append(repair)
            done += rebuilding.read
            if progress is not None:
                progress("segments", done, None)
    return repairs


async def _check_claim(control: ControlPlane, tier: RemoteTier) -> None:
    store = tier.stores.own
    found = await read_marker(store)
    if found is None:
        raise MarkerMissingError(
            f"{store.url} has no {MARKER_KEY}, so it may not be this cluster's store: nothing is "
            "rebuilt in it. A broker writes the marker when it starts"
        )
    cluster = await control.identity.cluster()
    beside = found[0].store_id == cluster.store_id
    check_marker(found[0], cluster, StoreRole.BLOCKS if beside else StoreRole.SEGMENTS)


class _Rebuilding:
    """Repairs one partition's segments in order: the producers of one continue in the next."""

    def __init__(
        self, control: ControlPlane, tier: RemoteTier, topic: Topic, partition: TopicPartition
    ) -> None:
        self.read = 0
        self._control = control
        self._tier = tier
        self._topic = topic
        self._partition = partition

    async def run(self) -> AsyncIterator[Repair]:
        async for page in chained_segments(self._control.segments, self._partition):
            for segment in page:
                if segment.uploaded is not None:
                    repair = await self._repair(segment)
                    if repair is not None:
                        yield repair

    async def _repair(self, segment: Segment) -> Repair | None:
        # The segment before this one is repaired already, as far as it can be.
        before = await tail_before(self._control.segments, segment, self._tier)
        audited = await audit_segment(segment, self._tier, before)
        self.read += 1
        if not audited.indexes:
            return None
        repair = Repair(
            where=f"{self._topic.name}-{self._partition.partition}",
            segment=segment,
            damage=audited.indexes,
        )
        try:
            await self._rebuild(segment, audited)
        except RetriableError:
            raise
        except StratalogError as error:
            return replace(repair, failure=str(error))
        return repair

    async def _rebuild(self, segment: Segment, audited: Audited) -> None:
        if not segment.owned:
            raise NotRepairedError("it belongs to another cluster")
        if audited.log:
            raise NotRepairedError(f"its log is damaged, too: {audited.log[0].text}")
        opened = await open_whole(segment, self._tier)
        indexes = await self._make(opened, audited)
        uploaded = await self._upload(opened, indexes)
        await self._control.segments.replace_upload(segment.segment_id, uploaded)

    async def _make(self, opened: OpenSegment, audited: Audited) -> SegmentIndexes:
        segment, good = opened.segment, dict(audited.good)
        if not {IndexKind.OFFSET, IndexKind.TIMESTAMP} <= good.keys():
            # Both have entries for the same batches, so both are rebuilt.
            good.pop(IndexKind.OFFSET, None)
            good.pop(IndexKind.TIMESTAMP, None)
        built = await _build(opened)
        snapshot, transactions = await self._producers(segment, good, built)
        epochs = await self._control.log.epochs(self._partition)
        return SegmentIndexes(
            offset=good.get(IndexKind.OFFSET, built.offset_index),
            timestamp=good.get(IndexKind.TIMESTAMP, built.time_index),
            producer_snapshot=snapshot,
            leader_epoch=good.get(IndexKind.LEADER_EPOCH)
            or encode_checkpoint(epochs_between(epochs, 0, segment.last_offset)),
            transaction=transactions,
        )

    async def _producers(
        self, segment: Segment, good: Mapping[IndexKind, bytes], built: BuiltLog
    ) -> tuple[bytes, bytes]:
        """Return the producer snapshot and the transaction index."""
        snapshot = good.get(IndexKind.PRODUCER_SNAPSHOT)
        transactions = good.get(IndexKind.TRANSACTION)
        if snapshot and transactions is not None:
            return snapshot, transactions
        tail, aborted = advance(await self._tail_before(segment), built)
        made = encode_aborted(aborted)
        return snapshot or tail.to_snapshot(), made if transactions is None else transactions

    async def _tail_before(self, segment: Segment) -> PartitionTail:
        before = await segment_before(self._control.segments, segment)
        if before is None:
            return PartitionTail()
        tail = await tail_between(before, segment, self._tier)
        if tail is None:
            raise NotRepairedError(
                f"its producers continue those of {name_of(before)}, whose producer snapshot cannot"
                " be read"
            )
        return tail

    async def _upload(self, opened: OpenSegment, indexes: SegmentIndexes) -> SegmentUploaded:
        segment, manifest = opened.segment, opened.manifest
        log = UploadedLog(
            chunks=manifest.chunks,
            compressed=manifest.compressed,
            encryption=manifest.encryption,
            stored_bytes=(await opened.store.head(opened.log_key)).size_bytes,
        )
        event_ms = (manifest.segment or {}).get(_EVENT_TIME)
        last_ms = event_ms if isinstance(event_ms, int) else segment.changed_ms
        uploaded = await upload_indexes(
            opened.store,
            segment.key_base,
            indexes,
            log,
            segment,
            self._topic.name,
            self._tier.keys,
            # The manifest must differ from the old one: so brokers notice that their cached
            # manifest is old.
            event_ms=last_ms + 1,
        )
        assert segment.uploaded is not None
        return replace(uploaded, custom_metadata=segment.uploaded.custom_metadata)


async def _build(opened: OpenSegment) -> BuiltLog:
    builder = SegmentBuilder(opened.segment.base_offset)
    runs = epoch_runs(opened.segment)
    async for buffer in whole_batches(opened):
        for run, part in _split(buffer, runs):
            await offload(len(part), builder.add, part, run)
    return builder.finish()


def epoch_runs(segment: Segment) -> list[SourceRun]:
    """Return one run of the segment's records for each epoch."""
    epochs = epochs_between(segment.leader_epochs, segment.base_offset, segment.last_offset)
    ends = [*(start for _, start in epochs[1:]), segment.end_offset]
    return [
        SourceRun(start, Offset(end - 1), epoch, stamped=True)
        for (epoch, start), end in zip(epochs, ends, strict=True)
    ]


def _split(buffer: memoryview, runs: Sequence[SourceRun]) -> Iterator[tuple[SourceRun, memoryview]]:
    """Yield the batches of the buffer that belong to each run."""
    cuts: list[tuple[int, SourceRun]] = []
    for position, header in iter_batches(buffer):
        run = next(one for one in reversed(runs) if one.base_offset <= header.base_offset)
        if not cuts or cuts[-1][1] != run:
            cuts.append((position, run))
    for (start, run), (end, _) in pairwise([*cuts, (len(buffer), runs[-1])]):
        yield run, buffer[start:end]
