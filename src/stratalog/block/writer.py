"""The write path of the block tier: collect, seal, upload, commit, answer.

The steps of one block, and the remains of a crash after each of them:

1. collect: batches wait in memory. Nothing is durable, and no producer is answered.
2. seal: the block gets its id, its order and its footer. Still nothing is durable. `sealing.py`
   decides when.
3. upload: several blocks at once. A crash leaves an object without a row, for the sweeper.
4. commit: one transaction for the uploaded blocks at the front of the queue, in seal order.
   Rows and object are visible together or not at all.
5. answer: producers get their offsets. A crash between 4 and 5 leaves committed batches that were
   never acknowledged; an idempotent producer's retry is answered as a duplicate.

If the control plane refuses the writer itself, because it has forgotten commits or because the
cluster is halted, the writer is fenced: it answers all producers with a retriable error, now and
later, and commits nothing any more.

A commit whose outcome is unknown is settled with the control plane before its producers are
answered and before any later block commits, so that the order of a producer's batches holds.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from stratalog.batch.entry import EntryBatch, partition_of
from stratalog.block.announced_writer import AnnouncedWriter
from stratalog.block.block import OpenBlock, SealedBlock, Told, seal
from stratalog.block.cut_off import cut_off
from stratalog.block.errors import (
    BlockFailedError,
    BlockInDoubtError,
    BrokerFencedError,
    BrokerStoppingError,
)
from stratalog.block.footer import FooterWriter
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.missing_sequences import MissingSequences
from stratalog.block.placed import Placed
from stratalog.block.sealing import NO_CONNECTION, Reason, Sealing, requests_per_s
from stratalog.clock import Clock
from stratalog.control.errors import CommitInDoubtError, ControlUnavailableError
from stratalog.control.log.model import BlockToCommit, CommitAnswer, CommitOutcome
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.plane import ControlPlane
from stratalog.control.writers.errors import ControlPlaneWentBackError, WriterRefusedError
from stratalog.errors import OutcomeUnknownError, StratalogError
from stratalog.ids import BrokerId, Entropy, ObjectId, Offset, TopicPartition, uuid7
from stratalog.metrics import (
    BLOCK_BYTES,
    BLOCK_COMMIT_SECONDS,
    BLOCK_UPLOAD_SECONDS,
    BLOCKS_COMMITTED,
    BLOCKS_FAILED,
    BLOCKS_SEALED,
    Metrics,
)
from stratalog.objects.errors import StoreUnavailableError
from stratalog.objects.store import ObjectStore
from stratalog.retry import retry
from stratalog.settings import BlockSettings

log = logging.getLogger(__name__)

T = TypeVar("T")

Advanced = dict[TopicPartition, Offset]
"""Partitions that got new batches, with their high watermarks."""

_MAX_GROUP_ROWS = 4000
"""The most batches in one transaction, when several blocks wait to be committed. The limit bounds
the time for which a commit locks its heads."""

_PARTITIONS_PER_WINDOW = 1000
"""A commit to more partitions than this stretches the window in proportion. So many thin partitions
make fewer and fuller rows, and not more rows than the control plane can take."""
_MAX_STRETCH = 4.0

_IN_TIME = "within `block.retry_ms`"
_LEAST_S = 2.0
"""A block whose time went by while it waited for others still gets this long for a first try. After
an outage, its producers would otherwise be refused by a store that is back."""


class OnCommit(Protocol):
    def __call__(self, advanced: Advanced) -> None: ...


OnRefused = Callable[[WriterRefusedError], None]

_Committed: TypeAlias = "asyncio.Future[Sequence[CommitAnswer]]"


@dataclass(slots=True)
class _Queued:
    """A sealed block between its upload and its commit."""

    block: SealedBlock
    committed: _Committed
    senders: Sequence[int]
    sealed_s: float
    deadline: float
    uploaded: "asyncio.Task[StratalogError | None]"
    answered: bool = False


@dataclass(slots=True)
class _Collecting:
    block: OpenBlock = field(default_factory=OpenBlock)
    committed: _Committed = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    senders: list[int] = field(default_factory=list)
    """The sender of each request."""


class WriterMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self.sealed = metrics.counter(BLOCKS_SEALED)
        self.blocks = metrics.counter(BLOCKS_COMMITTED)
        self.bytes = metrics.counter(BLOCK_BYTES)
        self.failed = metrics.counter(BLOCKS_FAILED)
        self.upload_seconds = metrics.histogram(BLOCK_UPLOAD_SECONDS)
        self.commit_seconds = metrics.histogram(BLOCK_COMMIT_SECONDS)


class BlockWriter:
    def __init__(
        self,
        *,
        store: ObjectStore,
        control: ControlPlane,
        cache: FreshBlocks,
        broker_id: Callable[[], BrokerId],
        settings: BlockSettings,
        clock: Clock,
        entropy: Entropy,
        metrics: Metrics,
        on_commit: OnCommit,
        announced: AnnouncedWriter | None = None,
        on_refused: OnRefused | None = None,
    ) -> None:
        """Without an announcement, commits are not counted, and footers tell no offsets."""
        self._store = store
        self._control = control
        self._cache = cache
        self._broker_id = broker_id
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self._metrics = WriterMetrics(metrics)
        self._on_commit = on_commit
        self._announced = announced
        self._on_refused = on_refused
        self._fenced: BrokerFencedError | None = None
        self._collecting = _Collecting()
        self._sealing = Sealing(
            max_bytes=settings.max_bytes,
            window_s=settings.window_ms / 1000,
            requests_per_s=requests_per_s(settings.requests_per_second, store.url),
        )
        # Not a part of `_Collecting`: a cancelled task is a reference cycle, and would hold the
        # collected batches in memory until the garbage collector runs.
        self._watch: asyncio.Task[None] | None = None
        self._watch_until_s = math.inf
        self._looks_soon = False
        self._uploads = asyncio.Semaphore(settings.parallel_uploads)
        self._queue: deque[_Queued] = deque()
        self._queued = asyncio.Event()
        self._missing = MissingSequences()
        self._closed = False
        self._committer = asyncio.create_task(self._commit_in_order(), name="block-committer")

    def append(self, batches: Sequence[EntryBatch], sender: int = NO_CONNECTION) -> Placed:
        """Take one request's batches, which are answered when their block is committed.

        The batches enter in the order of the calls, and all of them go into one block. The sender
        is the number of a connection: a block is sealed when no other is expected in it.
        """
        if self._closed:
            return _refused(BrokerStoppingError("this broker is stopping: use another"))
        if self._fenced is not None:
            return _refused(self._fenced)
        collecting = self._collecting
        before_bytes = collecting.block.size_bytes
        placed = Placed(collecting.committed, collecting.block.add(batches))
        collecting.senders.append(sender)
        size_bytes = collecting.block.size_bytes - before_bytes
        self._sealing.arrived(sender, size_bytes, self._clock.monotonic())
        if self._sealing.is_full:
            self._seal_or_wait()
        elif not self._looks_soon:
            # Requests that have arrived by now share the decision, and the block.
            self._looks_soon = True
            asyncio.get_running_loop().call_soon(self._look_once)
        return placed

    def refused(self, batches: Sequence[EntryBatch]) -> None:
        """Note batches of a request that failed before it could be appended.

        Later batches of the same producer may be under way already, and must not take their place.
        """
        self._missing.refused(batches)

    def fence(self, reason: str) -> None:
        """Commit nothing any more, and refuse all batches, also the ones that were taken before."""
        if self._fenced is None:
            log.error("This broker takes no writes any more: %s", reason)
            self._fenced = BrokerFencedError(f"this broker takes no writes any more: {reason}")

    async def close(self) -> None:
        """Refuse new batches, and commit and answer the ones that were taken."""
        self._closed = True
        if self._collecting.senders:
            self._seal(Reason.CLOSING)
        if self._watch is not None:
            self._watch.cancel()
        self._queued.set()
        await self._committer

    def _look_once(self) -> None:
        self._looks_soon = False
        self._seal_or_wait()

    def _seal_or_wait(self) -> None:
        """Seal the open block if its time has come, or else look at it again when it may have."""
        if not self._collecting.senders:
            return
        verdict = self._sealing.decide(self._clock.monotonic())
        if isinstance(verdict, Reason):
            self._seal(verdict)
        elif self._watch is None or verdict.until_s < self._watch_until_s:
            if self._watch is not None:
                self._watch.cancel()
            self._watch_until_s = verdict.until_s
            self._watch = asyncio.create_task(self._look_at(verdict.until_s))

    async def _look_at(self, time_s: float) -> None:
        await self._clock.sleep(max(time_s - self._clock.monotonic(), 0.0))
        self._watch = None
        self._seal_or_wait()

    def _seal(self, reason: Reason) -> None:
        collecting, self._collecting = self._collecting, _Collecting()
        self._metrics.sealed.labels(reason.value).inc()
        sealed_s = self._clock.monotonic()
        self._sealing.sealed(sealed_s)
        now_ms = self._clock.now_ms()
        block = self._sealed(collecting.block, now_ms)
        deadline = sealed_s + self._settings.retry_ms / 1000
        uploaded = asyncio.create_task(self._upload(block, deadline))
        self._queue.append(
            _Queued(block, collecting.committed, collecting.senders, sealed_s, deadline, uploaded)
        )
        self._queued.set()

    def _sealed(self, block: OpenBlock, now_ms: int) -> SealedBlock:
        object_id = ObjectId(uuid7(now_ms, self._entropy))
        writer: FooterWriter | None = None
        told: Told = {}
        if self._announced is not None:
            object_id = self._announced.new_id(now_ms, self._entropy)
            writer, told = self._announced.next_block(map(partition_of, block.batches))
        return seal(
            block,
            object_id=object_id,
            broker_id=self._broker_id(),
            created_ms=now_ms,
            writer=writer,
            told=told,
        )

    async def _upload(self, block: SealedBlock, deadline: float) -> StratalogError | None:
        """Put the object. Returns the error if it did not succeed before the deadline.

        The put is a plain overwrite: no other writer has the key, and repeating the same bytes
        changes nothing. A put that is cut off may still arrive, as an object for the sweeper.
        """
        async with self._uploads:
            started = self._clock.monotonic()
            try:
                await self._until(
                    deadline,
                    lambda: self._store.put(block.commit.key, block.parts),
                    StoreUnavailableError(f"the object store has not answered {_IN_TIME}"),
                )
            except StratalogError as error:
                return error
            except Exception as mistake:
                log.exception("An upload failed in an unexpected way")
                return BlockFailedError(f"internal error: {mistake!r}")
            self._metrics.upload_seconds.observe(self._clock.monotonic() - started)
            return None

    async def _commit_in_order(self) -> None:
        while True:
            while not self._queue:
                if self._closed:
                    return
                self._queued.clear()
                await self._queued.wait()
            error = await self._queue[0].uploaded
            if error is not None:
                self._fail(self._queue.popleft(), error)
            else:
                await self._commit_or_fail(self._take_uploaded())
            self._seal_or_wait()

    def _take_uploaded(self) -> list[_Queued]:
        """Take uploaded blocks from the front of the queue, as many as one transaction carries."""
        group = [self._queue.popleft()]
        rows = len(group[0].block.batches)
        while self._queue and self._queue[0].uploaded.done():
            if self._queue[0].uploaded.result() is not None:
                break
            rows += len(self._queue[0].block.batches)
            if rows > _MAX_GROUP_ROWS:
                break
            group.append(self._queue.popleft())
        return group

    async def _commit_or_fail(self, group: Sequence[_Queued]) -> None:
        """Commit the group. An unexpected failure costs these blocks, not the ones behind them."""
        try:
            await self._commit(group)
        except Exception as mistake:
            log.exception("A commit failed in an unexpected way")
            for queued in group:
                # A second answer to a block would be an error that ends all later commits.
                if not queued.committed.done():
                    self._fail(queued, BlockFailedError(f"internal error: {mistake!r}"))

    async def _commit(self, group: Sequence[_Queued]) -> None:
        blocks = [self._missing.mark(queued.block.commit) for queued in group]
        started = self._clock.monotonic()
        answers = await self._commit_blocks(group, blocks)
        if answers is None:
            return
        self._metrics.commit_seconds.observe(self._clock.monotonic() - started)
        if self._announced is not None:
            self._announced.committed()
        for queued, block_answers in zip(group, answers, strict=True):
            self._finish(queued, block_answers)
        advanced = _advanced(group, answers)
        self._adjust_window(len(advanced))
        try:
            self._on_commit(advanced)
        except Exception:
            # The producers are answered. Readers without the news look for themselves.
            log.exception("The news of a commit was lost in an unexpected way")

    async def _commit_blocks(
        self, group: Sequence[_Queued], blocks: Sequence[BlockToCommit]
    ) -> list[list[CommitAnswer]] | None:
        """Return the answers of the control plane, or None after failing the group."""
        count = self._announced.count if self._announced is not None else None
        error: StratalogError
        try:
            if self._fenced is not None:
                raise self._fenced
            return await self._until(
                group[0].deadline,
                lambda: self._control.log.commit_blocks(blocks, count),
                CommitInDoubtError(f"the control plane has not answered a commit {_IN_TIME}"),
            )
        except WriterRefusedError as refusal:
            await self.refused_by(refusal)
            error = self._fenced or BlockFailedError(str(refusal))
        except OutcomeUnknownError as doubt:
            log.warning("The outcome of a commit is unknown, asking for it: %s", doubt)
            answers, error = await self._settle(blocks, doubt)
            if answers is not None:
                log.info("The commit in doubt took effect: its producers are answered.")
                return answers
        except StratalogError as failure:
            error = failure
        for queued in group:
            self._fail(queued, error)
        return None

    async def refused_by(self, refusal: WriterRefusedError) -> None:
        """Fence this writer and, if the control plane went back, all the others."""
        self.fence(str(refusal))
        if self._on_refused is not None:
            self._on_refused(refusal)
        if not isinstance(refusal, ControlPlaneWentBackError):
            return
        try:
            await self._until(
                self._clock.monotonic() + self._settings.retry_ms / 1000,
                lambda: self._control.identity.halt(f"{refusal}."),
                ControlUnavailableError(f"the control plane has not answered {_IN_TIME}"),
            )
        except StratalogError as error:
            log.error("The cluster could not be halted: %s", error)

    async def _settle(
        self, blocks: Sequence[BlockToCommit], doubt: OutcomeUnknownError
    ) -> tuple[list[list[CommitAnswer]] | None, StratalogError]:
        """Return the answers of a commit in doubt, or None if it is certain never to happen."""
        deadline = self._clock.monotonic() + self._settings.retry_ms / 1000
        try:
            answers = await self._until(
                deadline,
                lambda: self._resolve(blocks),
                ControlUnavailableError(f"the control plane has not answered {_IN_TIME}"),
            )
        except WriterRefusedError as refusal:
            await self.refused_by(refusal)
            return None, BlockInDoubtError(f"{doubt}; {refusal}")
        except StratalogError as still_unknown:
            if self._announced is not None:
                self._announced.unsettled()
            return None, BlockInDoubtError(f"{doubt}; {still_unknown}")
        return answers, BlockFailedError(f"the commit did not happen: {doubt}")

    async def _resolve(self, blocks: Sequence[BlockToCommit]) -> list[list[CommitAnswer]] | None:
        count = self._announced.count if self._announced is not None else None
        try:
            return await self._control.log.resolve_commit(blocks, count)
        except OutcomeUnknownError as doubt:
            # Retry, even if the tombstones were put: putting them again changes nothing.
            raise ControlUnavailableError(str(doubt)) from doubt

    async def _until(
        self, deadline: float, call: Callable[[], Awaitable[T]], unanswered: StratalogError
    ) -> T:
        """Repeat a call that failed without effect, with growing pauses, until the deadline.

        A call that hangs is cut off at the deadline, and `unanswered` is raised.
        """
        calls = retry(call, clock=self._clock, deadline_s=deadline, on_retry=_log_retry)
        left_s = max(deadline - self._clock.monotonic(), _LEAST_S)
        return await cut_off(calls, left_s, unanswered)

    def _finish(self, queued: _Queued, answers: Sequence[CommitAnswer]) -> None:
        self._cache.add(queued.block, answers)
        self._missing.answered(queued.block.commit.batches, answers)
        if self._announced is not None:
            self._announced.answered(queued.block, answers)
        self._metrics.blocks.inc()
        self._metrics.bytes.inc(queued.block.commit.size_bytes)
        self._answer(queued)
        by_arrival = list(answers)
        for place, answer in zip(queued.block.arrival, answers, strict=True):
            by_arrival[place] = answer
        queued.committed.set_result(by_arrival)

    def _fail(self, queued: _Queued, error: StratalogError) -> None:
        """Answer the producers with the error. The sweeper removes the object, if there is one."""
        self._metrics.failed.inc()
        self._missing.gave_up(queued.block.commit.batches)
        if self._announced is not None:
            self._announced.failed(queued.block)
        log.error("Block %s was given up: %s", queued.block.commit.object_id, error)
        self._answer(queued)
        if isinstance(error, BarredObjectError):
            error = BlockFailedError(str(error))
        _give_up(queued.committed, error)

    def _answer(self, queued: _Queued) -> None:
        """Tell the policy that the requests of this block are answered, once."""
        if not queued.answered:
            queued.answered = True
            self._sealing.written(queued.senders, queued.sealed_s, self._clock.monotonic())

    def _adjust_window(self, partitions: int) -> None:
        stretch = min(max(partitions / _PARTITIONS_PER_WINDOW, 1.0), _MAX_STRETCH)
        self._sealing.window_s = self._settings.window_ms * stretch / 1000


def _refused(error: StratalogError) -> Placed:
    committed: _Committed = asyncio.get_running_loop().create_future()
    _give_up(committed, error)
    return Placed(committed, range(0))


def _give_up(committed: _Committed, error: StratalogError) -> None:
    committed.set_exception(error)
    # The requests may have ended with their connections. Looked at once, the error is not reported
    # by asyncio as one that nothing handled.
    committed.exception()


def _log_retry(error: Exception, pause_s: float) -> None:
    log.warning("Trying again in %.2f s: %s", pause_s, error)


def _advanced(group: Sequence[_Queued], answers: Sequence[Sequence[CommitAnswer]]) -> Advanced:
    advanced: Advanced = {}
    for queued, block_answers in zip(group, answers, strict=True):
        for batch, answer in zip(queued.block.commit.batches, block_answers, strict=True):
            if answer.outcome is CommitOutcome.ACCEPTED:
                end = Offset(answer.base_offset + batch.last_offset_delta + 1)
                advanced[batch.topic_partition] = end
    return advanced
