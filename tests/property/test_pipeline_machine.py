"""Any order of writes, deletions, runs, crashes and sweeps leaves every record where it was.

A state machine drives a real control plane and a real store, with drivers whose jobs run in this
process, and compares what can be read with a dictionary.
"""

import asyncio
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.pipeline.lab import EAGER, PATIENT, Crash, Interposed, Lab

from stratalog.control.model import Topic
from stratalog.control.open import open_database
from stratalog.control.pipeline_model import UnitKind
from stratalog.pipeline.tasks import Task

T = TypeVar("T")
PARTITIONS = 2
STEPS = (
    "claim_ranges",
    "find_batches",
    "add_segment",
    "epochs",
    "finish_segment",
    "chain_segment",
    "commit_split",
    "release_claims",
)


class PipelineMachine(RuleBasedStateMachine):
    lab: Lab
    topic: Topic

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory(prefix="stratalog-machine-")
        self._open = AsyncExitStack()
        self._changed = True

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)

    @initialize(segment_bytes=st.sampled_from([300, 1000, 1 << 20]))
    def begin(self, segment_bytes: int) -> None:
        self.do(self._begin(segment_bytes))

    async def _begin(self, segment_bytes: int) -> None:
        opened = Lab.open(Path(self._folder.name), tiering=EAGER)
        self.lab = await self._open.enter_async_context(opened)
        self.topic = await self.lab.topic(PARTITIONS, segment_bytes=str(segment_bytes))

    def teardown(self) -> None:
        if hasattr(self, "lab"):
            self.do(self._finish())
        self.do(self._open.aclose())
        self._loop.close()
        self._folder.cleanup()

    async def _finish(self) -> None:
        """Whatever happened: another run or two convert the rest, and nothing is left over."""
        self._use(patient=False)
        for _ in range(2):
            await self._expire()
            report = await self.lab.run()
            assert report.failed == {}
        for partition in range(PARTITIONS):
            state = await self.lab.state(self.topic, partition)
            assert state.block_start == state.high_watermark
        await self.lab.check_clean()
        await self.lab.check(self.topic)

    # What users do.

    @rule(
        batches=st.dictionaries(
            st.integers(0, PARTITIONS - 1),
            st.lists(st.integers(1, 4), min_size=1, max_size=3),
            min_size=1,
        ),
        blocks=st.integers(1, 4),
    )
    def write(self, batches: dict[int, list[int]], blocks: int) -> None:
        for _ in range(blocks):
            self.do(self.lab.write(self.topic, batches))
        self._changed = True

    @rule(partition=st.integers(0, PARTITIONS - 1), part=st.floats(0, 1))
    def delete_records(self, partition: int, part: float) -> None:
        self.do(self._delete(partition, part))

    async def _delete(self, partition: int, part: float) -> None:
        state = await self.lab.state(self.topic, partition)
        span = state.high_watermark - state.log_start
        await self.lab.delete_records(self.topic, partition, state.log_start + round(span * part))
        self._changed = True

    # What the pipeline does.

    def _use(self, *, patient: bool) -> None:
        tiering = replace(PATIENT if patient else EAGER, task_bytes=1000, max_attempts=100)
        self.lab.settings = replace(self.lab.settings, tiering=tiering)

    @rule(patient=st.booleans(), kinds=st.sets(st.sampled_from(UnitKind), min_size=1))
    def run(self, patient: bool, kinds: set[UnitKind]) -> None:
        self._use(patient=patient)
        report = self.do(self.lab.run(kinds=sorted(kinds)))
        assert report.failed == {}
        self._changed = True

    @rule(patient=st.booleans(), partition=st.integers(0, PARTITIONS - 1), part=st.floats(0, 1))
    def delete_records_in_mid_run(self, patient: bool, partition: int, part: float) -> None:
        self._use(patient=patient)
        jobs = self.lab.jobs()

        async def delete(_: Task) -> None:
            await self._delete(partition, part)

        jobs.after = delete
        report = self.do(self.lab.run(jobs))
        assert report.failed == {}
        self._changed = True

    @rule(
        patient=st.booleans(),
        step=st.sampled_from(STEPS),
        when=st.sampled_from(["before", "after"]),
    )
    def crash(self, patient: bool, step: str, when: str) -> None:
        self._use(patient=patient)
        dying = Interposed(self.lab.control)
        dying.crash_at = (step, when)

        async def run_and_die() -> None:
            try:
                await self.lab.run(control=dying.as_control())
            except Crash:
                await self._expire()

        self.do(run_and_die())
        self._changed = True

    @rule(patient=st.booleans())
    def be_overtaken(self, patient: bool) -> None:
        """A run whose claims expire while it works; another does the work meanwhile."""
        self._use(patient=patient)
        jobs = self.lab.jobs()

        async def lose_claims(_: Task) -> None:
            await self._expire()
            await self.lab.run()

        jobs.after = lose_claims
        report = self.do(self.lab.run(jobs))
        assert report.failed == {}
        self._changed = True

    async def _expire(self) -> None:
        database = await open_database(self.lab.settings.storage.control)
        await database.write(
            lambda connection: connection.execute("UPDATE claims SET expires_ms = 0")
        )
        await database.close()

    @rule()
    def sweep(self) -> None:
        self.do(self.lab.clean())
        self._changed = True

    @invariant()
    @precondition(lambda self: self._changed and hasattr(self, "lab"))
    def everything_is_where_it_was(self) -> None:
        self.do(self.lab.check(self.topic))
        self._changed = False


TestPipelineMachine = PipelineMachine.TestCase
TestPipelineMachine.settings = settings(
    max_examples=12,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
