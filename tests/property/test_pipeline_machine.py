"""Any order of writes, deletions, runs, crashes and sweeps leaves every record where it was.

A state machine drives a real control plane, a real store and a real broker, with drivers whose jobs
run in this process, and compares the records that a Kafka client reads with a dictionary.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kio.schema.errors import ErrorCode
from tests.property.pipeline_model import check_gone, check_kept
from tests.support.wire import FETCH_BYTES, Wire, batch_of, connected
from tests.unit.pipeline.dying_process import DyingProcess, When, dying
from tests.unit.pipeline.lab import EAGER, PATIENT, Lab, expire_claims

from stratalog.clock import SystemClock
from stratalog.control.log.model import PartitionState
from stratalog.control.pipeline.model import UnitKind
from stratalog.control.topics.model import Topic
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.janitor.retention import Retention, enforce_retention
from stratalog.objects.faulty import Fault, FaultyStore, ScriptedFaults
from stratalog.pipeline.plan.tasks import Task
from stratalog.settings import HOUR_MS
from stratalog.testing.broker import FAST, Broker

T = TypeVar("T")
PARTITIONS = 2
FETCHES = (1, 300, FETCH_BYTES)
OLD_MS = 2 * HOUR_MS
RETENTIONS = st.builds(
    Retention, ms=st.sampled_from([None, HOUR_MS]), bytes=st.sampled_from([None, 0, 300, 2000])
)
STEPS = (
    "pipeline.claim_ranges",
    "log.find_batches",
    "pipeline.begin_claims",
    "segments.add",
    "epochs",
    "segments.finish",
    "segments.chain",
    "pipeline.commit_split",
    "pipeline.release_claims",
    "pipeline.put_back_claims",
    # Of the store.
    "get_ranges",
    "put_stream",
    "head",
    "put",
)
SWEEPING = ("list", "objects.bar", "segments.bar", "delete", "objects.forget", "segments.forget")
READ_FAULTS = (Fault.UNAVAILABLE, Fault.SHORT_READ, Fault.CORRUPT_READ)
WRITE_FAULTS = (Fault.UNAVAILABLE, Fault.LOST_REPLY)
FAULTS = st.sampled_from(
    [
        *(("get_ranges", fault) for fault in READ_FAULTS),
        *((name, fault) for name in ("put", "put_stream", "head") for fault in WRITE_FAULTS),
        ("put_stream", Fault.BROKEN_STREAM),
    ]
)


def dying_at(steps: Sequence[str]) -> st.SearchStrategy[DyingProcess]:
    """Processes that die at one of these calls, or at any."""
    when = st.sampled_from(When)
    return st.builds(
        DyingProcess, st.sampled_from(steps), nth=st.integers(0, 2), when=when
    ) | st.builds(DyingProcess, st.none(), nth=st.integers(0, 60), when=when)


class PipelineMachine(RuleBasedStateMachine):
    lab: Lab
    topic: Topic
    wire: Wire

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory(prefix="stratalog-machine-")
        self._open = AsyncExitStack()
        self._changed = True
        self._fetches = cycle(FETCHES)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        self._changed = True
        return self._loop.run(work)

    @initialize(segment_bytes=st.sampled_from([300, 1000, 1 << 20]))
    def begin(self, segment_bytes: int) -> None:
        self.do(self._begin(segment_bytes))

    async def _begin(self, segment_bytes: int) -> None:
        opened = Lab.open(Path(self._folder.name), tiering=EAGER)
        self.lab = await self._open.enter_async_context(opened)
        self.topic = await self.lab.topic(PARTITIONS, segment_bytes=str(segment_bytes))
        settings = replace(FAST, storage=self.lab.settings.storage)
        broker = self._open.enter_context(Broker(settings))
        self.wire = self._open.enter_context(connected(broker.bootstrap))

    def teardown(self) -> None:
        if hasattr(self, "wire"):
            self.do(self._finish())
            self._read_through_kafka(FETCH_BYTES)
        self.do(self._open.aclose())
        self._loop.close()
        self._folder.cleanup()

    async def _finish(self) -> None:
        """Whatever happened: another run or two convert the rest, and nothing is left over."""
        self._use(patient=False)
        for _ in range(2):
            await expire_claims(self.lab)
            report = await self.lab.run()
            assert report.failed == {}
        for partition in range(PARTITIONS):
            state = await self.lab.state(self.topic, partition)
            assert state.block_start == state.high_watermark
        await self.lab.check_clean()
        await self.lab.check(self.topic)

    # Actions of users.

    @rule(
        batches=st.dictionaries(
            st.integers(0, PARTITIONS - 1),
            st.lists(st.integers(1, 4), min_size=1, max_size=3),
            min_size=1,
        ),
        blocks=st.integers(1, 4),
        age_ms=st.sampled_from([0, OLD_MS]),
    )
    def write(self, batches: dict[int, list[int]], blocks: int, age_ms: int) -> None:
        for _ in range(blocks):
            self.do(self.lab.write(self.topic, batches, age_ms=age_ms))

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        records=st.integers(1, 4),
        age_ms=st.sampled_from([0, OLD_MS]),
    )
    def produce(self, partition: int, records: int, age_ms: int) -> None:
        values = self.lab.values(records)
        batch = batch_of(values, timestamp_ms=SystemClock().now_ms() - age_ms)
        answer = self.wire.produce(self.topic.name, batch, partition=partition)
        assert answer.error_code is ErrorCode.none
        self.lab.note(self.topic, partition, values, size_bytes=len(batch), age_ms=age_ms)
        assert answer.base_offset == self._end(partition) - records
        self._changed = True

    def _end(self, partition: int) -> int:
        return len(self.lab.written[TopicPartition(self.topic.id, PartitionIndex(partition))])

    @rule(partition=st.integers(0, PARTITIONS - 1), part=st.floats(0, 1))
    def delete_records(self, partition: int, part: float) -> None:
        self.do(self._delete(partition, part))

    async def _delete(self, partition: int, part: float) -> None:
        state = await self.lab.state(self.topic, partition)
        span = state.high_watermark - state.log_start
        await self.lab.delete_records(self.topic, partition, state.log_start + round(span * part))

    # Retention.

    @rule(kept=RETENTIONS, chunk_rows=st.sampled_from([1, 2000]))
    def expire(self, kept: Retention, chunk_rows: int) -> None:
        self.do(self._expire(kept, chunk_rows))

    async def _expire(self, kept: Retention, chunk_rows: int = 2000) -> None:
        await enforce_retention(self.lab.control, lambda _: kept, chunk_rows=chunk_rows)
        for state in await self._note_expired(kept):
            await check_gone(self.lab, self.topic, state, kept)

    async def _note_expired(self, kept: Retention) -> list[PartitionState]:
        """Take the starts over to which retention went, if it was allowed to."""
        states = [await self.lab.state(self.topic, index) for index in range(PARTITIONS)]
        for state in states:
            key = state.topic_partition
            check_kept(self.lab.batches[key], kept, self.lab.deleted[key], state.log_start)
            self.lab.deleted[key] = state.log_start
        return states

    @rule(kept=RETENTIONS, mortal=dying_at(["log.enforce_retention"]))
    def die_while_records_expire(self, kept: Retention, mortal: DyingProcess) -> None:
        control = mortal.control(self.lab.control)

        async def expire_and_die() -> None:
            with dying():
                await enforce_retention(control, lambda _: kept, chunk_rows=1)
            await self._note_expired(kept)

        self.do(expire_and_die())

    # The pipeline.

    def _use(self, *, patient: bool) -> None:
        tiering = replace(PATIENT if patient else EAGER, task_bytes=1000, max_attempts=100)
        self.lab.settings = replace(self.lab.settings, tiering=tiering)

    @rule(patient=st.booleans(), kinds=st.sets(st.sampled_from(UnitKind), min_size=1))
    def run(self, patient: bool, kinds: set[UnitKind]) -> None:
        self._use(patient=patient)
        report = self.do(self.lab.run(kinds=sorted(kinds)))
        assert report.failed == {}

    @rule(patient=st.booleans(), partition=st.integers(0, PARTITIONS - 1), part=st.floats(0, 1))
    def delete_records_in_mid_run(self, patient: bool, partition: int, part: float) -> None:
        self._run_beside(patient, lambda: self._delete(partition, part))

    @rule(patient=st.booleans(), kept=RETENTIONS)
    def expire_in_mid_run(self, patient: bool, kept: Retention) -> None:
        self._run_beside(patient, lambda: self._expire(kept))

    @rule(patient=st.booleans())
    def be_overtaken(self, patient: bool) -> None:
        """A run whose claims expire while it works; another does the work meanwhile."""

        async def lose_claims() -> None:
            await expire_claims(self.lab)
            await self.lab.run()

        self._run_beside(patient, lose_claims)

    def _run_beside(self, patient: bool, work: Callable[[], Awaitable[None]]) -> None:
        """Run while something else happens, which is no failure of the run."""
        self._use(patient=patient)
        jobs = self.lab.jobs()

        async def happen(_: Task) -> None:
            await work()

        jobs.after = happen
        report = self.do(self.lab.run(jobs))
        assert report.failed == {}

    @rule(patient=st.booleans(), mortal=dying_at(STEPS))
    def crash(self, patient: bool, mortal: DyingProcess) -> None:
        self._use(patient=patient)
        self._provide_work()
        jobs = self.lab.jobs()
        jobs.wrap = mortal.store

        async def run_and_die() -> None:
            with dying():
                await self.lab.run(jobs, control=mortal.control(self.lab.control))
            await expire_claims(self.lab)

        self.do(run_and_die())

    @rule(patient=st.booleans(), faults=st.lists(FAULTS, min_size=1, max_size=3))
    def run_on_a_store_that_fails(self, patient: bool, faults: list[tuple[str, Fault]]) -> None:
        """Failed work waits for the next run."""
        self._use(patient=patient)
        self._provide_work()
        plan = ScriptedFaults(faults)
        jobs = self.lab.jobs()
        jobs.wrap = lambda store: FaultyStore(store, plan, clock=SystemClock())
        self.do(self.lab.run(jobs))

    def _provide_work(self) -> None:
        """Enough small pieces that there is something to split, or to merge."""
        self.do(self.lab.fill(self.topic, blocks=EAGER.max_rows + 1, records=1))

    @rule()
    def sweep(self) -> None:
        self.do(self.lab.clean())

    @rule(mortal=dying_at(SWEEPING))
    def die_while_sweeping(self, mortal: DyingProcess) -> None:
        async def sweep_and_die() -> None:
            with dying():
                await self.lab.clean(
                    control=mortal.control(self.lab.control), store=mortal.store(self.lab.store)
                )

        self.do(sweep_and_die())

    # The view of a Kafka client.

    @invariant()
    @precondition(lambda self: self._changed and hasattr(self, "wire"))
    def everything_is_where_it_was(self) -> None:
        self._read_through_kafka(next(self._fetches))
        self._changed = False

    def _read_through_kafka(self, max_bytes: int) -> None:
        name = self.topic.name
        for partition in range(PARTITIONS):
            key = TopicPartition(self.topic.id, PartitionIndex(partition))
            start, written = self.lab.deleted[key], self.lab.written[key]
            found = self.wire.fetch_values(
                name, partition=partition, start=start, max_bytes=max_bytes
            )
            assert found == written[start:]
            for outside in (start - 1, len(written) + 1):
                error, _ = self.wire.fetch(name, partition, outside)
                assert error is ErrorCode.offset_out_of_range


TestPipelineMachine = PipelineMachine.TestCase
TestPipelineMachine.settings = settings(
    max_examples=30,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
