"""Commits of sinks while a scripted control plane fails."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from tests.support.ledgers import Call, FakeControlPlane

from stratalog.batch.header import TimestampType
from stratalog.clock import SystemClock
from stratalog.control.errors import CommitInDoubtError, ControlUnavailableError
from stratalog.control.log.model import (
    BatchToCommit,
    BlockToCommit,
    CommitAnswer,
    CommitOutcome,
    PartitionState,
    WriteTier,
)
from stratalog.control.scans.errors import SinkBehindError, SinkRefusedError
from stratalog.control.scans.model import SinkOutcome
from stratalog.ids import (
    NO_BROKER,
    NO_PRODUCER,
    LeaderEpoch,
    ObjectId,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
)
from stratalog.spark.errors import SinkInDoubtError, SinkNotWrittenError, SinkPartlyWrittenError
from stratalog.spark.sink_commit import SinkCommitter

TOPIC = TopicId(UUID(int=5))
AWAY, DOUBT = ControlUnavailableError("away"), CommitInDoubtError("lost")
ACCEPTED = [[CommitAnswer(CommitOutcome.ACCEPTED, Offset(0))]]
Step = Exception | object


def _batch(partition: int = 0) -> BatchToCommit:
    return BatchToCommit(
        topic_id=TOPIC,
        partition=PartitionIndex(partition),
        byte_offset=0,
        byte_size=100,
        last_offset_delta=0,
        max_timestamp=1,
        timestamp_type=TimestampType.CREATE_TIME,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=-1,
    )


BLOCKS = [
    BlockToCommit(
        object_id=ObjectId(UUID(int=1)),
        key="blocks/1",
        size_bytes=200,
        broker_id=NO_BROKER,
        batches=[_batch()],
    )
]


def _state(tier: WriteTier) -> PartitionState:
    zero = Offset(0)
    return PartitionState(
        topic_id=TOPIC,
        partition=PartitionIndex(0),
        log_start=zero,
        remote_end=zero,
        block_start=zero,
        block_end=zero,
        high_watermark=zero,
        last_stable=zero,
        write_tier=tier,
        leader_epoch=LeaderEpoch(0),
        size_bytes=0,
        last_commit_ms=0,
    )


class Scripted(FakeControlPlane):
    """Answers each operation with the next step of its script, and notes the calls."""

    def __init__(self, tier: WriteTier | None = WriteTier.BLOCK, **scripts: Sequence[Step]) -> None:
        super().__init__()
        self._tier = tier
        self._scripts = {name: list(steps) for name, steps in scripts.items()}
        self.calls: list[str] = []

    async def around(self, name: str, call: Call) -> Any:
        if name == "log.partitions":
            return await call()
        method = name.partition(".")[2]
        self.calls.append(method)
        step = self._scripts[method].pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    async def log_partitions(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, PartitionState]:
        return {} if self._tier is None else dict.fromkeys(wanted, _state(self._tier))


class HastyClock(SystemClock):
    """Sleeping takes no time, and is counted as if it did."""

    def __init__(self) -> None:
        self._slept_s = 0.0

    def monotonic(self) -> float:
        return self._slept_s

    async def sleep(self, seconds: float) -> None:
        self._slept_s += seconds


def committer(control: Scripted) -> SinkCommitter:
    return SinkCommitter(control, clock=HastyClock(), retry_ms=1000)


@pytest.mark.parametrize("outcome", SinkOutcome)
@pytest.mark.parametrize("before", [[], [AWAY], [DOUBT], [AWAY, DOUBT, AWAY]])
async def test_a_sinks_commit_is_repeated_until_it_is_known(
    outcome: SinkOutcome, before: list[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    control = Scripted(commit_sink=[*before, outcome])
    await committer(control).commit_once("s", 1, BLOCKS)
    assert ("not written again" in caplog.text) is (outcome is SinkOutcome.REPEATED)
    assert control.calls == ["commit_sink"] * (len(before) + 1)


@pytest.mark.parametrize("failure", [AWAY, DOUBT])
async def test_a_sinks_commit_that_stays_unknown_may_be_run_again(failure: Exception) -> None:
    control = Scripted(commit_sink=[failure] * 100)
    with pytest.raises(SinkInDoubtError, match="Run the same again, with the same sinkId"):
        await committer(control).commit_once("s", 1, BLOCKS)
    assert 3 < len(control.calls) < 10


async def test_a_sinks_refusal_is_not_repeated() -> None:
    control = Scripted(commit_sink=[SinkBehindError("behind")])
    with pytest.raises(SinkBehindError):
        await committer(control).commit_once("s", 1, BLOCKS)


async def test_a_sink_notes_a_batch_without_rows_too() -> None:
    control = Scripted(commit_sink=[SinkOutcome.COMMITTED])
    await committer(control).commit_once("s", 1, [])
    assert control.calls == ["commit_sink"]


@pytest.mark.parametrize(("last", "reached"), [(None, False), (0, False), (1, True), (2, True)])
async def test_what_a_sink_has_taken_is_known_before_the_commit(
    last: int | None, reached: bool
) -> None:
    control = Scripted(last_sink_batch=[AWAY, last])
    assert await committer(control).has_reached("s", 1) is reached
    assert control.calls == ["last_sink_batch"] * 2


async def test_without_a_sink_no_rows_are_no_commit() -> None:
    control = Scripted()
    await committer(control).commit([])
    assert control.calls == []


async def test_without_a_sink_a_commit_without_effect_is_repeated() -> None:
    control = Scripted(commit_blocks=[AWAY, AWAY, ACCEPTED])
    await committer(control).commit(BLOCKS)
    assert control.calls == ["commit_blocks"] * 3


async def test_without_a_sink_a_commit_that_never_gets_through_is_told() -> None:
    with pytest.raises(SinkNotWrittenError, match="nothing was written, run it again: away"):
        await committer(Scripted(commit_blocks=[AWAY] * 100)).commit(BLOCKS)


async def test_without_a_sink_doubt_is_settled_and_never_committed_again() -> None:
    control = Scripted(commit_blocks=[DOUBT], resolve_commit=[AWAY, DOUBT, ACCEPTED])
    await committer(control).commit(BLOCKS)
    assert control.calls == ["commit_blocks", *["resolve_commit"] * 3]


async def test_without_a_sink_a_commit_that_was_barred_is_told() -> None:
    control = Scripted(commit_blocks=[DOUBT], resolve_commit=[None])
    with pytest.raises(SinkNotWrittenError, match="nothing was written, run it again: lost"):
        await committer(control).commit(BLOCKS)


async def test_without_a_sink_doubt_that_stays_is_told() -> None:
    control = Scripted(commit_blocks=[DOUBT], resolve_commit=[AWAY] * 100)
    with pytest.raises(SinkInDoubtError, match="Look at the topic's end"):
        await committer(control).commit(BLOCKS)


@pytest.mark.parametrize(
    ("tier", "why"), [(None, "does not exist"), (WriteTier.LOCAL, "is not written to in blocks")]
)
async def test_without_a_sink_nothing_is_committed_unless_all_can_be(
    tier: WriteTier | None, why: str
) -> None:
    control = Scripted(tier)
    with pytest.raises(SinkRefusedError, match=why):
        await committer(control).commit(BLOCKS)
    assert control.calls == []


async def test_without_a_sink_rows_that_were_left_out_are_told() -> None:
    left_out = [[CommitAnswer(CommitOutcome.UNKNOWN_PARTITION)]]
    with pytest.raises(SinkPartlyWrittenError, match=r"partition 0 of topic .* were left out"):
        await committer(Scripted(commit_blocks=[left_out])).commit(BLOCKS)
