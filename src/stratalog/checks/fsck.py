"""The check that a cluster keeps its promises. It only reads, in bounded memory, beside brokers."""

from collections.abc import AsyncIterator
from contextlib import closing

from stratalog.checks.object_check import ObjectCheck
from stratalog.checks.object_references import ObjectReferences
from stratalog.checks.partition_check import PartitionCheck
from stratalog.checks.promises import holders_are_distinct
from stratalog.checks.remote_tier import RemoteTier, beside_blocks
from stratalog.checks.report import Problem, Progress, Promise, Report
from stratalog.checks.segment_orphans import segment_orphans
from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.identity.model import StoreRole
from stratalog.control.log.model import PartitionState
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import CallError, DamagedError
from stratalog.objects.store import ObjectStore
from stratalog.opening.errors import WrongStoreError
from stratalog.opening.marker import check_marker, read_marker
from stratalog.segment.key_ring import KeyRing
from stratalog.settings import HOUR_MS


async def run_fsck(
    control: ControlPlane,
    store: ObjectStore,
    *,
    deep: bool,
    progress: Progress | None = None,
    clock: Clock | None = None,
    orphan_age_ms: int = HOUR_MS,
    tier: RemoteTier | None = None,
) -> Report:
    """Check every promise that a snapshot can show. With `deep`, read every batch.

    Without a `tier`, segments lie beside the blocks, and none of them is encrypted.

    An object without a row is reported only if it is older than `orphan_age_ms`: a younger object
    may be on its way to a commit.
    """
    started_ms = (clock or SYSTEM_CLOCK).now_ms()
    report = Report(deep=deep, started_ms=started_ms)
    tier = tier or RemoteTier(stores=beside_blocks(store), keys=KeyRing())
    fsck = _Fsck(control, store, tier, report, progress or _silent)
    await fsck.check_brokers()
    if not await fsck.check_stores():
        return report
    with closing(ObjectReferences()) as references:
        await fsck.check_partitions(references)
        await fsck.check_objects(references, old_since_ms=started_ms - orphan_age_ms)
    return report


class _Fsck:
    def __init__(
        self,
        control: ControlPlane,
        store: ObjectStore,
        tier: RemoteTier,
        report: Report,
        progress: Progress,
    ) -> None:
        self._control = control
        self._store = store
        self._tier = tier
        self._report = report
        self._progress = progress

    async def check_brokers(self) -> None:
        brokers = await self._control.brokers.all()
        self._report.counts["brokers"] = len(brokers)
        problems = holders_are_distinct(brokers)
        if problems:
            problems = holders_are_distinct(await self._control.brokers.all())
        self._report.add("brokers", problems)

    async def check_stores(self) -> bool:
        """Return False if a store belongs to another cluster: all else would only be noise."""
        ours = await self._check_store(self._store, StoreRole.BLOCKS)
        if self._tier.stores.own.url != self._store.url:
            ours = await self._check_store(self._tier.stores.own, StoreRole.SEGMENTS) and ours
        return ours

    async def _check_store(self, store: ObjectStore, role: StoreRole) -> bool:
        try:
            found = await read_marker(store)
            if found is not None:
                check_marker(found[0], await self._control.identity.cluster(), role)
        except (CallError, DamagedError) as error:
            problem = Problem(promise=Promise.HOLDERS, text=str(error))
            self._report.add(store.url, [problem])
            return not isinstance(error, WrongStoreError)
        return True

    async def check_partitions(self, references: ObjectReferences) -> None:
        topics = await self._control.topics.all()
        total = sum(topic.partition_count for topic in topics)
        check = PartitionCheck(
            self._control,
            self._store,
            self._tier,
            references,
            self._report.counts,
            deep=self._report.deep,
        )
        self._report.counts["topics"] = len(topics)
        for topic in topics:
            async for state in self._partitions(topic):
                self._report.add(f"{topic.name}-{state.partition}", await check.run(state))
                self._report.counts["partitions"] += 1
                self._progress("partitions", self._report.counts["partitions"], total)

    async def _partitions(self, topic: Topic) -> AsyncIterator[PartitionState]:
        """Yield the partitions of a topic, or none if it was deleted meanwhile."""
        try:
            states = await self._control.log.topic_partitions(topic.id)
        except UnknownTopicError:
            return
        for state in states:
            # A topic of many partitions takes a while, so the state of each is read again.
            fresh = await self._control.log.partitions([state.topic_partition])
            for current in fresh.values():
                yield current

    async def check_objects(self, references: ObjectReferences, *, old_since_ms: int) -> None:
        check = ObjectCheck(
            self._control,
            self._store,
            references,
            self._report.counts,
            self._progress,
            old_since_ms=old_since_ms,
        )
        await check.run(self._report.add)
        orphans = segment_orphans(self._control, self._tier, self._report.counts, old_since_ms)
        async for key, problem in orphans:
            self._report.add(key, [problem])


def _silent(stage: str, done: int, total: int | None) -> None:
    """Report no progress."""
