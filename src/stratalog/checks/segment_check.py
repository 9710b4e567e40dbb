"""The check of a partition's segments: their rows, their objects and, if deep, all their bytes.

Segments may be deleted during the check. So every problem is checked a second time, and only a
problem that is still there is reported.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence

from stratalog.checks.producer_tail import tail_before
from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.report import Problem, Promise
from stratalog.checks.segment_audit import Audited, audit_segment
from stratalog.checks.segment_promises import manifest_fits_row, name_of, objects_fit_manifest
from stratalog.control.lost.ledger import LostRangesLedger
from stratalog.control.segments.model import Segment
from stratalog.errors import CallError, DamagedError
from stratalog.ids import Offset, TopicPartition
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectInfo
from stratalog.segment.keys import MANIFEST_SUFFIX, segment_keys
from stratalog.segment.log_batches import is_dense
from stratalog.segment.manifest import parse_manifest
from stratalog.segment.metadata import SegmentMetadata

_PAGE_SEGMENTS = 200
_PARALLEL_READS = 4


async def chained_segments(
    metadata: SegmentMetadata, partition: TopicPartition
) -> AsyncIterator[list[Segment]]:
    """Yield the segments of a partition in offset order, a page at a time."""
    after = None
    while page := await metadata.chained(partition, after=after, limit=_PAGE_SEGMENTS):
        yield page
        after = page[-1].last_offset


class SegmentCheck:
    def __init__(
        self,
        metadata: SegmentMetadata,
        lost: LostRangesLedger,
        tier: RemoteTier,
        counts: Counter[str],
        *,
        deep: bool,
    ) -> None:
        self._metadata = metadata
        self._lost = lost
        self._tier = tier
        self._counts = counts
        self._deep = deep
        self._reading = asyncio.Semaphore(_PARALLEL_READS)

    async def run(self, page: Sequence[Segment]) -> list[Problem]:
        """Return the problems of the objects of consecutive segments."""
        self._counts["segments"] += len(page)
        # A row without a manifest is a problem of its own, and names no objects.
        finished = [segment for segment in page if segment.uploaded is not None]
        problems = await self._check_objects(finished)
        if self._deep:
            answers = await asyncio.gather(*map(self._check_bytes, finished))
            problems += [problem for answer in answers for problem in answer]
        return problems

    async def _check_objects(self, segments: Sequence[Segment]) -> list[Problem]:
        problems: list[Problem] = []
        for (store_url, folder), neighbours in _by_folder(segments).items():
            try:
                objects = await self._list(store_url, folder, neighbours)
                for segment in neighbours:
                    if _judge(segment, objects):
                        problems += await self._look_again(segment)
            except CallError as error:
                # The store of an adopted topic fails. All else can be checked nevertheless.
                if not store_url:
                    raise
                text = f"{name_of(neighbours[0])}: its objects cannot be looked at: {error}"
                problems.append(Problem(promise=Promise.OBJECTS, text=text))
        return problems

    async def _list(
        self, store_url: str, folder: str, segments: Sequence[Segment]
    ) -> dict[str, ObjectInfo]:
        """Return the objects of the folder from the first segment to the last, by key.

        A listing takes one request. Separate requests for the objects would be hundreds.
        """
        bases = sorted(segment.key_base for segment in segments)
        objects: dict[str, ObjectInfo] = {}
        store = self._tier.stores.of(store_url)
        async for info in store.list(folder, start_after=bases[0]):
            # All suffixes begin with a dot, which comes right before the slash.
            if info.key > bases[-1] + "/":
                break
            objects[info.key] = info
        return objects

    async def _look_again(self, segment: Segment) -> list[Problem]:
        store = self._tier.stores.of(segment.store_url)
        objects: dict[str, ObjectInfo] = {}
        for key in segment_keys(segment.key_base):
            try:
                objects[key] = await store.head(key)
            except ObjectNotFoundError:
                continue
        fresh = await self._find(segment)
        return _judge(fresh, objects) if fresh is not None else []

    async def _check_bytes(self, segment: Segment) -> list[Problem]:
        async with self._reading:
            try:
                audited = await self._audit(segment)
                self._counts["batches"] += audited.batches
                self._counts["bytes"] += segment.size_bytes
                if not audited.problems:
                    return await self._unnoted(segment, audited)
                fresh = await self._find(segment)
                if fresh is None:
                    return []
                return (await self._audit(fresh)).problems
            except CallError as error:
                if not segment.store_url:
                    raise
                text = f"{name_of(segment)}: it cannot be read: {error}"
                return [Problem(promise=Promise.READABLE, text=text)]

    async def _unnoted(self, segment: Segment, audited: Audited) -> list[Problem]:
        """Return a problem if offsets without records are not noted as lost.

        Kafka's segments have such batches after a compaction.
        """
        if not audited.empty or not is_dense(segment):
            return []
        noted = [
            (lost.first_offset, lost.end_offset)
            for lost in await self._lost.of_topic(segment.topic_id)
            if lost.partition == segment.partition
        ]
        for base, last in audited.empty:
            if not any(first <= base and last < end for first, end in noted):
                text = f"{name_of(segment)}: a batch without records at offset {base}"
                return [Problem(promise=Promise.DENSE, text=text)]
        return []

    async def _audit(self, segment: Segment) -> Audited:
        before = await tail_before(self._metadata, segment, self._tier)
        return await audit_segment(segment, self._tier, before)

    async def _find(self, segment: Segment) -> Segment | None:
        """Return the present row of the segment, if the segment is still chained."""
        after = Offset(segment.last_offset - 1)
        found = await self._metadata.chained(segment.topic_partition, after=after, limit=1)
        same = found and found[0].segment_id == segment.segment_id
        return found[0] if same and found[0].uploaded is not None else None


def _judge(segment: Segment, objects: dict[str, ObjectInfo]) -> list[Problem]:
    assert segment.uploaded is not None
    name = f"object {segment.key_base}{MANIFEST_SUFFIX}, as its row has it"
    try:
        manifest = parse_manifest(segment.uploaded.manifest, name)
    except DamagedError as error:
        return [Problem(promise=Promise.OBJECTS, text=f"{name_of(segment)}: {error}")]
    return [
        *manifest_fits_row(segment, manifest),
        *objects_fit_manifest(segment, manifest, objects),
    ]


def _by_folder(segments: Sequence[Segment]) -> dict[tuple[str, str], list[Segment]]:
    groups: dict[tuple[str, str], list[Segment]] = defaultdict(list)
    for segment in segments:
        folder, slash, _ = segment.key_base.rpartition("/")
        groups[segment.store_url, folder + slash].append(segment)
    return groups
