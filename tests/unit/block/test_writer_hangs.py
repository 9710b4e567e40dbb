"""A store or a control plane that takes calls and never answers them."""

import asyncio
import gc
from collections.abc import Sequence

import pytest
from tests.support.faulty_control import Answers, Commit, refuses
from tests.unit.block.rig import Rig, offsets, soon

from stratalog.block import writer as writer_module
from stratalog.block.cut_off import cut_off
from stratalog.block.errors import BlockFailedError, BlockInDoubtError
from stratalog.control.log.model import BlockToCommit
from stratalog.control.writers.model import CommitCount
from stratalog.objects.errors import StoreUnavailableError


@pytest.fixture
def no_grace(patient_writers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are cut off at the deadline itself. The time until then passes for real."""
    monkeypatch.setattr(writer_module, "_LEAST_S", 0.0)


@pytest.mark.usefixtures("no_grace")
async def test_a_store_that_never_answers_is_given_up_when_its_time_is_over(rig: Rig) -> None:
    rig.store.gated = True
    writer = rig.writer(max_bytes=1, retry_ms=100)
    lost = [writer.append([rig.batch()]) for _ in range(2)]
    gates = [await rig.store.next_put() for _ in lost]
    for answered in lost:
        with pytest.raises(StoreUnavailableError, match="retry_ms"):
            await soon(answered)
    assert rig.control.commits == []
    for gate in gates:
        gate.set()


async def test_an_upload_that_waited_for_others_still_gets_a_try(rig: Rig) -> None:
    rig.store.gated = True
    writer = rig.writer(max_bytes=1, retry_ms=1000, parallel_uploads=1)
    first = writer.append([rig.batch()])
    second = writer.append([rig.batch()])
    gate = await rig.store.next_put()
    await rig.clock.advance(60)
    rig.store.gated = False
    gate.set()
    assert [offsets(await soon(answered)) for answered in (first, second)] == [[0], [1]]


async def hangs(commit: Commit, blocks: Sequence[BlockToCommit]) -> Answers:
    await asyncio.Event().wait()
    raise AssertionError


async def commits_and_hangs(commit: Commit, blocks: Sequence[BlockToCommit]) -> Answers:
    await commit(blocks)
    return await hangs(commit, blocks)


@pytest.mark.usefixtures("no_grace")
async def test_a_commit_that_never_answers_is_settled_when_its_time_is_over(rig: Rig) -> None:
    writer = rig.writer(max_bytes=1, retry_ms=2000)
    rig.control.commit_troubles += [commits_and_hangs, hangs]
    assert offsets(await soon(writer.append([rig.batch()]))) == [0]
    with pytest.raises(BlockFailedError, match="did not happen"):
        await soon(writer.append([rig.batch()]))
    assert offsets(await soon(writer.append([rig.batch()]))) == [1]


@pytest.mark.usefixtures("no_grace")
async def test_a_control_plane_that_never_answers_leaves_a_doubt(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unanswered(
        blocks: Sequence[BlockToCommit], _count: CommitCount | None
    ) -> Answers | None:
        return await hangs(rig.control.inner.log.commit_blocks, blocks)

    monkeypatch.setattr(rig.control, "log_resolve_commit", unanswered)
    rig.control.commit_troubles.append(hangs)
    with pytest.raises(BlockInDoubtError, match="retry_ms"):
        await soon(rig.writer(max_bytes=1, retry_ms=100).append([rig.batch()]))


async def test_a_call_that_cannot_be_stopped_does_not_delay_the_answer() -> None:
    freed = asyncio.Event()

    async def stubborn() -> None:
        try:
            await freed.wait()
        except asyncio.CancelledError:
            await freed.wait()
            raise ValueError("too late") from None

    with pytest.raises(StoreUnavailableError, match="cut"):
        await soon(cut_off(stubborn(), 0.01, StoreUnavailableError("cut")))
    freed.set()


async def test_a_failure_that_its_request_no_longer_waits_for_is_not_reported(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    # A captured line would hold the error, its frames and the future for ever.
    caplog.set_level("CRITICAL", logger=writer_module.__name__)
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(told))
    rig.control.commit_troubles.append(refuses(BlockFailedError("not today")))
    writer = rig.writer(max_bytes=1)

    writer.append([rig.batch()])
    await writer.close()

    rig.writers.clear()
    gc.collect()
    assert reported == []
