"""Blocks that are sealed before their window ends: order, sequences and doubt hold in them too."""

import asyncio

import pytest
from tests.support.faulty_control import loses_the_reply, loses_the_request
from tests.unit.block.rig import Rig, offsets, outcomes, soon

from stratalog.block.errors import BlockFailedError
from stratalog.block.placed import Placed
from stratalog.block.writer import BlockWriter
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.log.model import CommitOutcome
from stratalog.objects.errors import StoreUnavailableError
from stratalog.objects.faulty import Fault


def early_writer(rig: Rig, *, max_bytes: int = 8 << 20, retry_ms: int = 30_000) -> BlockWriter:
    return rig.writer(
        requests_per_second=1_000_000, window_ms=60_000, max_bytes=max_bytes, retry_ms=retry_ms
    )


async def send(rig: Rig, writer: BlockWriter, first: int, count: int) -> list[Placed]:
    """Let an idempotent producer send requests of one record, one after the other."""
    return [
        await turn(writer.append([rig.batch(producer=5, sequence=sequence)], 1))
        for sequence in range(first, first + count)
    ]


async def turn(placed: Placed) -> Placed:
    """Let the writer decide about a request before the next one comes."""
    await asyncio.sleep(0)
    return placed


async def test_a_lone_request_is_answered_while_the_window_stands_still(rig: Rig) -> None:
    assert offsets(await soon(early_writer(rig).append([rig.batch()]))) == [0]


async def test_requests_that_have_arrived_together_share_an_early_block(rig: Rig) -> None:
    writer = early_writer(rig)
    together = [writer.append([rig.batch()], sender) for sender in range(5)]
    assert [offsets(await soon(one)) for one in together] == [[place] for place in range(5)]
    assert len(await rig.store.block_keys()) == 1


async def test_without_a_budget_a_lone_request_waits_for_its_window(rig: Rig) -> None:
    answered = rig.writer(requests_per_second=0, window_ms=250).append([rig.batch()])
    assert await rig.clock.pass_nap() == 0.25
    assert offsets(await soon(answered)) == [0]


async def test_a_burst_collects_behind_two_early_blocks_and_follows_them_in_order(
    rig: Rig,
) -> None:
    rig.store.gated = True
    writer = early_writer(rig)
    burst = await send(rig, writer, 0, 8)
    first, second = await rig.store.next_put(), await rig.store.next_put()
    await asyncio.sleep(0.01)
    assert rig.store.waiting.empty(), "the others share a block"
    second.set()
    await rig.store.until_put(1)
    assert not burst[1].committed.done()
    first.set()
    (await rig.store.next_put()).set()
    assert [offsets(await soon(one)) for one in burst] == [[place] for place in range(8)]
    assert len(await rig.store.block_keys()) == 3


async def test_what_follows_an_early_block_that_failed_is_turned_away_in_every_later_one(
    rig: Rig,
) -> None:
    rig.store.faults.remaining += [("put", Fault.UNAVAILABLE)]
    writer = early_writer(rig, retry_ms=1)
    burst = await send(rig, writer, 0, 6)
    with pytest.raises(StoreUnavailableError):
        await soon(burst[0])
    for follower in burst[1:]:
        assert outcomes(await soon(follower)) == [CommitOutcome.FOLLOWS_MISSING]
    again = await send(rig, writer, 0, 6)
    assert [offsets(await soon(one)) for one in again] == [[place] for place in range(6)]


async def test_early_blocks_behind_a_doubt_wait_until_it_is_settled(rig: Rig) -> None:
    rig.control.commit_troubles.append(loses_the_reply)
    rig.control.resolve_troubles.append(ControlUnavailableError("away"))
    writer = early_writer(rig)
    burst = await send(rig, writer, 0, 6)
    while (nap := await rig.clock.next_nap()) != pytest.approx(0.05):
        assert nap == pytest.approx(60.0), "the window of the burst's rest"
    assert len(rig.control.commits) == 1
    await rig.clock.advance(0.05)
    assert [offsets(await soon(one)) for one in burst] == [[place] for place in range(6)]


async def test_an_early_block_whose_commit_never_happened_is_sent_again_in_order(rig: Rig) -> None:
    rig.control.commit_troubles.append(loses_the_request)
    writer = early_writer(rig)
    burst = await send(rig, writer, 0, 4)
    results = await soon(asyncio.gather(*burst, return_exceptions=True))
    lost = sum(isinstance(result, BlockFailedError) for result in results)
    assert lost >= 1
    for result in results[lost:]:
        assert not isinstance(result, BaseException)
        assert outcomes(result) == [CommitOutcome.FOLLOWS_MISSING]
    again = await send(rig, writer, 0, 4)
    assert [offsets(await soon(one)) for one in again] == [[place] for place in range(4)]


async def test_a_block_that_failed_makes_room_for_the_next_one(rig: Rig) -> None:
    rig.store.faults.remaining += [("put", Fault.UNAVAILABLE)] * 2
    writer = early_writer(rig, retry_ms=1)
    *failing, third = [await turn(writer.append([rig.batch()], sender)) for sender in (1, 2, 3)]
    for one in failing:
        with pytest.raises(StoreUnavailableError):
            await soon(one)
    assert offsets(await soon(third)) == [0]


async def test_closing_commits_the_block_that_collects_behind_early_ones(rig: Rig) -> None:
    writer = early_writer(rig)
    burst = await send(rig, writer, 0, 5)
    await soon(writer.close())
    assert [offsets(one.answers()) for one in burst] == [[place] for place in range(5)]


async def test_a_reason_is_counted_for_every_block(rig: Rig) -> None:
    writer = early_writer(rig, max_bytes=2 * len(rig.batch().data))
    await soon(writer.append([rig.batch()]))
    await soon(writer.append([rig.batch(), rig.batch()]))
    assert rig.sealed("early") == 1
    assert rig.sealed("full") == 1
