import asyncio
from collections.abc import Sequence

import pytest
from tests.support.faulty_control import (
    Answers,
    Commit,
    loses_the_reply,
    loses_the_request,
    refuses,
)
from tests.unit.block.rig import Rig, offsets, outcomes, soon

from stratalog.block import writer as writer_module
from stratalog.block.block import SealedBlock
from stratalog.block.errors import BlockFailedError, BlockInDoubtError, BrokerStoppingError
from stratalog.control.errors import CommitInDoubtError, ControlUnavailableError
from stratalog.control.log.model import BlockToCommit, CommitAnswer, CommitOutcome
from stratalog.control.objects.errors import BarredObjectError
from stratalog.ids import PartitionIndex
from stratalog.objects.errors import StoreUnavailableError
from stratalog.objects.faulty import Fault

# Collecting and sealing.


async def test_requests_of_one_window_share_a_block(rig: Rig) -> None:
    writer = rig.writer(window_ms=250)
    first = writer.append([rig.batch()])
    second = writer.append([rig.batch(), rig.batch(1)])
    assert await rig.clock.next_nap() == 0.25
    await rig.clock.advance(0.249)
    assert await rig.store.block_keys() == []
    await rig.clock.advance(0.001)
    assert offsets(await soon(first)) == [0]
    assert offsets(await soon(second)) == [1, 0]
    assert len(await rig.store.block_keys()) == 1
    assert rig.clock.naps.empty(), "a second window was opened for the same block"


async def test_a_window_begins_with_the_first_request_after_a_seal(rig: Rig) -> None:
    writer = rig.writer(window_ms=250)
    first = writer.append([rig.batch()])
    await rig.clock.pass_nap()
    await soon(first)
    second = writer.append([rig.batch()])
    assert await rig.clock.pass_nap() == 0.25
    assert offsets(await soon(second)) == [1]
    assert len(await rig.store.block_keys()) == 2


async def test_a_block_is_sealed_when_it_has_its_size_and_not_a_byte_sooner(rig: Rig) -> None:
    size = len(rig.batch().data)
    writer = rig.writer(max_bytes=2 * size)
    first = writer.append([rig.batch()])
    await rig.clock.next_nap()
    await rig.clock.advance(0.1)
    assert await rig.store.block_keys() == []
    second = writer.append([rig.batch()])
    assert offsets(await soon(first)) == [0]
    assert offsets(await soon(second)) == [1]


async def test_the_window_of_a_block_that_was_full_does_not_cut_the_next_one_short(
    rig: Rig,
) -> None:
    writer = rig.writer(max_bytes=2 * len(rig.batch().data), window_ms=250)
    full = [writer.append([rig.batch()]), writer.append([rig.batch()])]
    await soon(full[1])
    await rig.clock.advance(0.2)
    writer.append([rig.batch()])
    await rig.clock.advance(0.1)
    await asyncio.sleep(0)
    assert len(await rig.store.block_keys()) == 1


async def test_one_request_is_never_split(rig: Rig) -> None:
    writer = rig.writer(max_bytes=1)
    answered = writer.append([rig.batch(), rig.batch(), rig.batch(2)])
    assert offsets(await soon(answered)) == [0, 1, 0]
    assert len(await rig.store.block_keys()) == 1


async def test_answers_come_in_the_order_of_each_request(rig: Rig) -> None:
    writer = rig.writer(window_ms=1)
    first = writer.append([rig.batch(2, records=5), rig.batch(0), rig.batch(2)])
    second = writer.append([rig.batch(1), rig.batch(0)])
    await rig.clock.pass_nap()
    assert offsets(await soon(first)) == [0, 0, 5]
    assert offsets(await soon(second)) == [0, 1]


async def test_commits_tell_which_partitions_have_grown(rig: Rig) -> None:
    writer = rig.writer(max_bytes=1)
    await soon(writer.append([rig.batch(0, records=3), rig.batch(2)]))
    await soon(writer.append([rig.batch(0)]))
    assert rig.advanced == [{rig.part(0): 3, rig.part(2): 1}, {rig.part(0): 4}]


async def test_a_rejected_batch_advances_nothing(rig: Rig) -> None:
    writer = rig.writer(max_bytes=1)
    answers = await soon(writer.append([rig.batch(0), rig.batch(99)]))
    assert outcomes(answers) == [CommitOutcome.ACCEPTED, CommitOutcome.UNKNOWN_PARTITION]
    assert rig.advanced == [{rig.part(0): 1}]


# Uploading and committing.


async def test_uploads_run_side_by_side_and_commit_in_the_order_of_sealing(rig: Rig) -> None:
    rig.store.gated = True
    writer = rig.writer(max_bytes=1)
    first = writer.append([rig.batch(value=b"first")])
    slow = await rig.store.next_put()
    second = writer.append([rig.batch(value=b"second")])
    (await rig.store.next_put()).set()
    await rig.store.until_put(1)
    assert not second.committed.done()
    assert rig.control.commits == []
    slow.set()
    assert offsets(await soon(first)) == [0]
    assert offsets(await soon(second)) == [1]


async def test_blocks_that_wait_are_committed_together(rig: Rig) -> None:
    rig.store.gated = True
    writer = rig.writer(max_bytes=1)
    answers = [writer.append([rig.batch()]) for _ in range(4)]
    gates = [await rig.store.next_put() for _ in answers]
    for gate in gates[1:]:
        gate.set()
    await rig.store.until_put(3)
    gates[0].set()
    assert [offsets(await soon(answer)) for answer in answers] == [[0], [1], [2], [3]]
    assert [len(blocks) for blocks in rig.control.commits] == [4]


async def test_one_commit_carries_a_bounded_number_of_batches(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_MAX_GROUP_ROWS", 4)
    rig.store.gated = True
    writer = rig.writer(max_bytes=1)
    answers = [writer.append([rig.batch(), rig.batch()]) for _ in range(3)]
    gates = [await rig.store.next_put() for _ in answers]
    for gate in gates[1:]:
        gate.set()
    await rig.store.until_put(2)
    gates[0].set()
    assert [offsets(await soon(answer)) for answer in answers] == [[0, 1], [2, 3], [4, 5]]
    assert [len(blocks) for blocks in rig.control.commits] == [2, 1]


async def test_no_more_uploads_run_at_once_than_are_allowed(rig: Rig) -> None:
    rig.store.gated = True
    writer = rig.writer(max_bytes=1, parallel_uploads=2)
    answers = [writer.append([rig.batch()]) for _ in range(3)]
    gates = [await rig.store.next_put() for _ in range(2)]
    await asyncio.sleep(0.01)
    assert rig.store.waiting.empty()
    gates[1].set()
    (await rig.store.next_put()).set()
    gates[0].set()
    assert [offsets(await soon(answer)) for answer in answers] == [[0], [1], [2]]


async def test_a_window_stretches_with_the_partitions_of_a_commit_and_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_PARTITIONS_PER_WINDOW", 2)
    await rig.control.inner.topics.add_partitions(rig.topic.id, partition_count=9)
    writer = rig.writer(window_ms=100)

    async def window_after(partitions: int) -> float:
        answered = writer.append([rig.batch(place) for place in range(partitions)])
        await rig.clock.pass_nap()
        await soon(answered)
        probe = writer.append([rig.batch()])
        seconds = await rig.clock.pass_nap()
        await soon(probe)
        return seconds

    assert await window_after(2) == pytest.approx(0.1)
    assert await window_after(3) == pytest.approx(0.15)
    assert await window_after(8) == pytest.approx(0.4)
    assert await window_after(9) == pytest.approx(0.4)
    assert await window_after(1) == pytest.approx(0.1)


# Failing.


async def test_a_failed_upload_is_tried_again_with_growing_pauses(rig: Rig) -> None:
    rig.store.faults.remaining += [("put", Fault.UNAVAILABLE), ("put", Fault.LOST_REPLY)] * 2
    answered = rig.writer(max_bytes=1).append([rig.batch()])
    pauses = [await rig.clock.pass_nap() for _ in range(4)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4])
    assert offsets(await soon(answered)) == [0]
    assert len(await rig.store.block_keys()) == 1


async def test_an_upload_is_given_up_when_its_time_is_over(rig: Rig) -> None:
    rig.store.faults.remaining += [("put", Fault.UNAVAILABLE)] * 10
    answered = rig.writer(max_bytes=1, retry_ms=750).append([rig.batch()])
    for _ in range(4):
        await rig.clock.pass_nap()
    with pytest.raises(StoreUnavailableError):
        await soon(answered)
    assert len(rig.store.faults.remaining) == 5, "tries at 0, 50, 150, 350 and 750 ms"
    assert await rig.high_watermark() == 0


async def test_a_block_that_is_given_up_does_not_stop_those_behind_it(rig: Rig) -> None:
    rig.store.faults.remaining += [("put", Fault.UNAVAILABLE)]
    writer = rig.writer(max_bytes=1, retry_ms=1)
    lost = writer.append([rig.batch()])
    kept = writer.append([rig.batch()])
    with pytest.raises(StoreUnavailableError):
        await soon(lost)
    assert offsets(await soon(kept)) == [0]


async def test_an_unexpected_failure_of_an_upload_costs_its_block_only(rig: Rig) -> None:
    rig.store.failure = ZeroDivisionError("ours")
    writer = rig.writer(max_bytes=1)
    lost = writer.append([rig.batch()])
    kept = writer.append([rig.batch()])
    with pytest.raises(BlockFailedError, match="ZeroDivisionError"):
        await soon(lost)
    assert offsets(await soon(kept)) == [0]


async def test_a_failed_commit_is_tried_again(rig: Rig) -> None:
    rig.control.commit_troubles += [refuses(ControlUnavailableError("away"))] * 2
    answered = rig.writer(max_bytes=1).append([rig.batch()])
    pauses = [await rig.clock.pass_nap() for _ in range(2)]
    assert pauses == pytest.approx([0.05, 0.1])
    assert offsets(await soon(answered)) == [0]
    assert len(rig.control.commits) == 3


async def test_a_commit_is_given_up_when_its_time_is_over(rig: Rig) -> None:
    rig.control.commit_troubles += [refuses(ControlUnavailableError("away"))] * 10
    answered = rig.writer(max_bytes=1, retry_ms=100).append([rig.batch()])
    await rig.clock.pass_nap()
    with pytest.raises(ControlUnavailableError):
        await soon(answered)
    assert await rig.high_watermark() == 0
    assert len(await rig.store.block_keys()) == 1, "the object stays for the sweeper"


async def test_an_unexpected_failure_of_a_commit_costs_its_blocks_only(rig: Rig) -> None:
    rig.control.commit_troubles.append(refuses(ZeroDivisionError("ours")))
    writer = rig.writer(max_bytes=1)
    with pytest.raises(BlockFailedError, match="ZeroDivisionError"):
        await soon(writer.append([rig.batch()]))
    assert offsets(await soon(writer.append([rig.batch()]))) == [0]


async def test_news_of_a_commit_that_are_lost_cost_no_block(rig: Rig) -> None:
    writer = rig.writer(max_bytes=1)
    advanced, rig.advanced = rig.advanced, None  # type: ignore[assignment]
    assert offsets(await soon(writer.append([rig.batch()]))) == [0]
    rig.advanced = advanced
    assert offsets(await soon(writer.append([rig.batch()]))) == [1]


async def test_an_unexpected_failure_after_the_first_answer_of_a_commit_ends_no_later_commit(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.store.gated = True
    writer = rig.writer(max_bytes=1)
    first, second = (writer.append([rig.batch()]) for _ in range(2))
    gates = [await rig.store.next_put() for _ in range(2)]
    gates[1].set()
    await rig.store.until_put(1)
    keeping = rig.cache.add

    def failing(block: SealedBlock, answers: Sequence[CommitAnswer]) -> None:
        keeping(block, answers)
        if first.committed.done():
            raise ZeroDivisionError("ours")

    monkeypatch.setattr(rig.cache, "add", failing)
    gates[0].set()
    assert offsets(await soon(first)) == [0]
    with pytest.raises(BlockFailedError, match="ZeroDivisionError"):
        await soon(second)
    monkeypatch.undo()
    rig.store.gated = False
    assert offsets(await soon(writer.append([rig.batch()]))) == [2]


async def test_a_producer_that_is_gone_does_not_keep_others_from_their_answers(rig: Rig) -> None:
    writer = rig.writer(window_ms=1)
    gone = asyncio.ensure_future(writer.append([rig.batch()]))
    there = writer.append([rig.batch()])
    await asyncio.sleep(0)
    gone.cancel()
    await rig.clock.pass_nap()
    assert offsets(await soon(there)) == [1]


# Doubt.


async def test_a_commit_in_doubt_that_took_effect_is_answered_with_its_offsets(rig: Rig) -> None:
    rig.control.commit_troubles.append(loses_the_reply)
    writer = rig.writer(max_bytes=1)
    assert offsets(await soon(writer.append([rig.batch(records=2), rig.batch(1)]))) == [0, 0]
    assert offsets(await soon(writer.append([rig.batch()]))) == [2]
    assert len(rig.control.commits) == 2, "it must not be committed again"
    assert rig.advanced[0] == {rig.part(0): 2, rig.part(1): 1}


async def test_a_commit_in_doubt_that_did_not_happen_is_barred_for_ever(rig: Rig) -> None:
    rig.control.commit_troubles.append(loses_the_request)
    writer = rig.writer(max_bytes=1)
    with pytest.raises(BlockFailedError):
        await soon(writer.append([rig.batch()]))
    with pytest.raises(BarredObjectError):
        await rig.control.inner.log.commit_blocks(rig.control.commits[0])
    assert offsets(await soon(writer.append([rig.batch()]))) == [0]


async def test_blocks_behind_a_doubt_wait_until_it_is_settled(rig: Rig) -> None:
    rig.control.commit_troubles.append(loses_the_reply)
    rig.control.resolve_troubles.append(ControlUnavailableError("away"))
    writer = rig.writer(max_bytes=1)
    doubtful = writer.append([rig.batch()])
    behind = writer.append([rig.batch()])
    assert await rig.clock.next_nap() == pytest.approx(0.05)
    assert len(rig.control.commits) == 1
    await rig.clock.advance(0.05)
    assert offsets(await soon(doubtful)) == [0]
    assert offsets(await soon(behind)) == [1]


async def test_a_doubt_about_the_answer_to_a_doubt_is_asked_about_again(rig: Rig) -> None:
    rig.control.commit_troubles.append(loses_the_reply)
    rig.control.resolve_troubles.append(CommitInDoubtError("again"))
    answered = rig.writer(max_bytes=1).append([rig.batch()])
    await rig.clock.pass_nap()
    assert offsets(await soon(answered)) == [0]


async def test_a_doubt_that_nobody_can_settle_is_told_as_one(rig: Rig) -> None:
    rig.control.commit_troubles.append(loses_the_reply)
    rig.control.resolve_troubles += [ControlUnavailableError("away")] * 10
    writer = rig.writer(max_bytes=1, retry_ms=100)
    doubtful = writer.append([rig.batch()])
    await rig.clock.pass_nap()
    with pytest.raises(BlockInDoubtError, match="away"):
        await soon(doubtful)
    rig.control.resolve_troubles.clear()
    assert offsets(await soon(writer.append([rig.batch()]))) == [1], "it had taken effect"


async def test_a_block_that_was_swept_before_its_commit_is_given_up(rig: Rig) -> None:
    async def swept(commit: Commit, blocks: Sequence[BlockToCommit]) -> Answers:
        await rig.control.inner.objects.bar({block.object_id: block.key for block in blocks})
        return await commit(blocks)

    rig.control.commit_troubles.append(swept)
    writer = rig.writer(max_bytes=1)
    with pytest.raises(BlockFailedError):
        await soon(writer.append([rig.batch()]))
    assert await rig.high_watermark() == 0


# Producers whose batches were given up.


async def test_what_follows_a_given_up_beginning_is_turned_away_until_that_returns(
    rig: Rig,
) -> None:
    rig.store.faults.remaining += [("put", Fault.UNAVAILABLE)]
    writer = rig.writer(max_bytes=1, retry_ms=1)
    first = writer.append([rig.batch(producer=5, sequence=0)])
    queued = writer.append([rig.batch(producer=5, sequence=1)])
    with pytest.raises(StoreUnavailableError):
        await soon(first)
    assert outcomes(await soon(queued)) == [CommitOutcome.FOLLOWS_MISSING]
    later = await soon(writer.append([rig.batch(producer=5, sequence=2)]))
    assert outcomes(later) == [CommitOutcome.FOLLOWS_MISSING]
    for sequence in range(3):
        again = await soon(writer.append([rig.batch(producer=5, sequence=sequence)]))
        assert (outcomes(again), offsets(again)) == ([CommitOutcome.ACCEPTED], [sequence])


async def test_the_rest_of_a_block_is_written_when_some_of_it_is_turned_away(rig: Rig) -> None:
    rig.store.faults.remaining += [("put", Fault.UNAVAILABLE)]
    writer = rig.writer(max_bytes=1, retry_ms=1)
    with pytest.raises(StoreUnavailableError):
        await soon(writer.append([rig.batch(0, producer=5, sequence=0)]))
    mixed = await soon(
        writer.append(
            [
                rig.batch(0, value=b"plain"),
                rig.batch(0, producer=5, sequence=1),
                rig.batch(0, producer=6, sequence=9),
                rig.batch(1, producer=5, sequence=3),
            ]
        )
    )
    assert outcomes(mixed) == [
        CommitOutcome.ACCEPTED,
        CommitOutcome.FOLLOWS_MISSING,
        CommitOutcome.ACCEPTED,
        CommitOutcome.ACCEPTED,
    ]
    assert offsets(mixed) == [0, -1, 1, 0]


async def test_a_beginning_that_is_given_up_twice_is_still_waited_for(rig: Rig) -> None:
    writer = rig.writer(max_bytes=1, retry_ms=1)
    for _ in range(2):
        rig.store.faults.remaining += [("put", Fault.UNAVAILABLE)]
        with pytest.raises(StoreUnavailableError):
            await soon(writer.append([rig.batch(producer=5, sequence=0)]))
        refused = await soon(writer.append([rig.batch(producer=5, sequence=1)]))
        assert outcomes(refused) == [CommitOutcome.FOLLOWS_MISSING]
    assert offsets(await soon(writer.append([rig.batch(producer=5, sequence=0)]))) == [0]


async def test_a_doubtful_beginning_that_took_effect_is_no_gap(rig: Rig) -> None:
    rig.control.commit_troubles.append(loses_the_reply)
    rig.control.resolve_troubles += [ControlUnavailableError("away")]
    writer = rig.writer(max_bytes=1, retry_ms=1)
    with pytest.raises(BlockInDoubtError):
        await soon(writer.append([rig.batch(producer=5, sequence=0)]))
    again = await soon(writer.append([rig.batch(producer=5, sequence=0)]))
    assert (outcomes(again), offsets(again)) == ([CommitOutcome.DUPLICATE], [0])
    assert offsets(await soon(writer.append([rig.batch(producer=5, sequence=1)]))) == [1]


async def test_a_producer_that_went_on_through_another_broker_is_welcome_back(rig: Rig) -> None:
    rig.store.faults.remaining += [("put", Fault.UNAVAILABLE)]
    writer, elsewhere = rig.writer(max_bytes=1, retry_ms=1), rig.writer(max_bytes=1)
    with pytest.raises(StoreUnavailableError):
        await soon(writer.append([rig.batch(producer=5, sequence=0)]))
    for sequence in range(2):
        await soon(elsewhere.append([rig.batch(producer=5, sequence=sequence)]))
    back = await soon(writer.append([rig.batch(producer=5, sequence=2)]))
    assert (outcomes(back), offsets(back)) == ([CommitOutcome.ACCEPTED], [2])


async def test_a_new_epoch_of_a_producer_may_begin_anew(rig: Rig) -> None:
    rig.store.faults.remaining += [("put", Fault.UNAVAILABLE)]
    writer = rig.writer(max_bytes=1, retry_ms=1)
    with pytest.raises(StoreUnavailableError):
        await soon(writer.append([rig.batch(producer=5, sequence=0)]))
    bumped = await soon(writer.append([rig.batch(producer=5, epoch=1, sequence=0)]))
    assert outcomes(bumped) == [CommitOutcome.ACCEPTED]


# Closing.


async def test_closing_commits_and_answers_what_was_taken(rig: Rig) -> None:
    writer = rig.writer()
    answered = writer.append([rig.batch()])
    await writer.close()
    assert answered.committed.done()
    assert offsets(answered.answers()) == [0]
    assert await rig.high_watermark() == 1


async def test_closing_waits_for_uploads_under_way(rig: Rig) -> None:
    rig.store.gated = True
    writer = rig.writer(max_bytes=1)
    answered = writer.append([rig.batch()])
    gate = await rig.store.next_put()
    closing = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    gate.set()
    await soon(closing)
    assert offsets(answered.answers()) == [0]


async def test_nothing_is_taken_after_closing(rig: Rig) -> None:
    writer = rig.writer()
    await writer.close()
    with pytest.raises(BrokerStoppingError):
        await writer.append([rig.batch()])
    assert await rig.store.block_keys() == []


async def test_a_committed_block_is_served_from_memory(rig: Rig) -> None:
    writer = rig.writer(max_bytes=1)
    await soon(writer.append([rig.batch(partition=1)]))
    [row] = await rig.control.inner.log.all_coordinates(rig.part(1), limit=10)
    assert row.partition == PartitionIndex(1)
    assert rig.cache.find(row.object_id, row.byte_offset, row.byte_offset + row.byte_size)
