import asyncio
from collections.abc import AsyncIterable, Sequence
from dataclasses import replace
from pathlib import Path
from weakref import ref

import pytest
import zstandard
from Crypto.PublicKey import RSA
from tests.unit.pipeline.task_checks import check_logs, partition_of
from tests.unit.pipeline.world import (
    Sent,
    WatchedStore,
    World,
    merge_of,
    payload,
    segment_plan,
    sent,
)

from stratalog.batch.header import TimestampType
from stratalog.ids import Offset
from stratalog.objects.errors import StoreUnavailableError
from stratalog.objects.store import Buffer, Range
from stratalog.pipeline.kinds.merge_task import run_merge
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.key_ring import KeyRing

GOLDEN = Path(__file__).parents[2] / "golden"
PATIENCE_S = 30.0


async def three_blocks(partitions: int = 3, *, size: int = 10) -> World:
    world = World()
    for _ in range(3):
        await world.commit(*(sent(each, 2, size) for each in range(partitions) for _ in "ab"))
    return world


async def test_segments_are_the_stamped_batches_of_their_partitions() -> None:
    world = await three_blocks()
    done = await run_merge(merge_of(world.segments()), world.place())
    assert [partition_of(log) for log in done.made] == [0, 1, 2]
    assert not done.failed
    await check_logs(world, done)


async def test_a_partition_may_have_several_segments_in_a_task() -> None:
    world = await three_blocks()
    done = await run_merge(merge_of(world.segments(at=1)), world.place())
    assert [(partition_of(log), log.built.base_offset) for log in done.made] == [
        (0, 0), (0, 4), (1, 0), (1, 4), (2, 0), (2, 4),
    ]  # fmt: skip
    await check_logs(world, done)


async def test_append_times_and_epochs_are_stamped() -> None:
    world = World()
    await world.commit(sent(0, timestamp_type=TimestampType.LOG_APPEND_TIME), sent(0))
    world.epochs[0] = 3
    await world.commit(sent(0, 4, timestamp_type=TimestampType.LOG_APPEND_TIME))
    done = await run_merge(merge_of(world.segments()), world.place())
    await check_logs(world, done)
    (log,) = done.made
    assert [(each.epoch, each.start_offset) for each in log.built.leader_epochs] == [(0, 0), (3, 2)]
    assert log.built.max_timestamp == world.rows[0][-1].committed_ms


async def test_dead_bytes_are_left_out() -> None:
    world = World()
    await world.commit(sent(0), sent(0, dead=True), sent(0, 3), sent(1, dead=True), sent(2))
    done = await run_merge(merge_of(world.segments()), world.place())
    assert [log.built.last_offset for log in done.made] == [3, 0]
    await check_logs(world, done)


async def test_every_attempt_writes_under_names_of_its_own() -> None:
    world = await three_blocks()
    task = merge_of(world.segments())
    first = await run_merge(task, world.place())
    second = await run_merge(task, world.place())
    ids = {log.segment_id for log in [*first.made, *second.made]}
    assert len(ids) == 6
    assert len(await world.keys("segments/")) == 6
    assert all(segment_id.version == 7 for segment_id in ids)


async def test_a_block_is_read_once_for_all_segments_of_a_task() -> None:
    world = await three_blocks(20)
    await run_merge(merge_of(world.segments(at=2)), world.place())
    assert sorted(key for key, _ in world.store.reads) == sorted(world.blocks)


async def test_only_the_ranges_that_a_task_needs_are_read() -> None:
    world = await three_blocks(10)
    done = await run_merge(merge_of(world.segments()[3:6]), world.place())
    wanted = sum(log.built.size_bytes for log in done.made)
    assert sum(end - start for _, ranges in world.store.reads for start, end in ranges) == wanted


async def test_objects_that_contradict_each_other_are_merged_all_the_same() -> None:
    world = World()
    await world.commit(sent(0), sent(1, 2))
    await world.commit(sent(0, 3), sent(1))
    first, second = world.rows[1]
    # The same blocks the other way round, as split files of different runs may have it.
    world.rows[1] = [
        second._replace(base_offset=Offset(0), last_offset=Offset(0)),
        first._replace(base_offset=Offset(1), last_offset=Offset(2)),
    ]
    done = await run_merge(merge_of(world.segments()), world.place())
    assert not done.failed
    await check_logs(world, done)
    assert len(world.store.reads) == 3


@pytest.mark.parametrize(
    ("at", "complaint"),
    [(3, None), (16, "magic"), (10, "short"), (61, "CRC"), (23, "CRC")],
)
async def test_a_damaged_batch_costs_its_own_partition_only(at: int, complaint: str | None) -> None:
    world = await three_blocks()
    bad = world.rows[1][1]
    await world.damage(bad, at)
    plans = world.segments()
    done = await run_merge(merge_of(plans), world.place())
    if complaint is None:
        # The base offset that a producer wrote is stamped over.
        assert not done.failed
        return
    assert [partition_of(log) for log in done.made] == [0, 2]
    (failure,) = done.failed
    assert failure.token == plans[1].token
    assert not failure.retriable
    assert f"object {bad.object_key}" in failure.error
    assert f"offset {bad.base_offset}" in failure.error
    assert complaint in failure.error
    assert len(await world.keys("segments/")) == 2


async def test_an_object_that_is_gone_is_worth_another_plan() -> None:
    world = await three_blocks()
    await world.commit(sent(1))
    await world.store.delete([world.blocks[-1]])
    done = await run_merge(merge_of(world.segments()), world.place())
    assert [partition_of(log) for log in done.made] == [0, 2]
    (failure,) = done.failed
    assert failure.retriable
    assert world.blocks[-1] in failure.error
    assert f"offset {world.rows[1][-1].base_offset}" in failure.error
    assert len(await world.keys("segments/")) == 2


async def test_a_store_that_does_not_answer_is_worth_another_try() -> None:
    world = await three_blocks()
    world.store.failures[world.blocks[1]] = StoreUnavailableError("get: 503")
    done = await run_merge(merge_of(world.segments()), world.place())
    assert not done.made
    assert [failure.retriable for failure in done.failed] == [True] * 3
    assert all("503" in failure.error for failure in done.failed)
    assert not await world.keys("segments/")


async def test_an_upload_that_fails_costs_its_own_partition_only() -> None:
    world = await three_blocks()
    world.store.failures["/1/"] = StoreUnavailableError("put: 503")
    done = await run_merge(merge_of(world.segments()), world.place())
    assert [partition_of(log) for log in done.made] == [0, 2]
    assert [(failure.error, failure.retriable) for failure in done.failed] == [("put: 503", True)]


async def test_a_block_that_was_cut_short_is_good_for_those_before_the_cut() -> None:
    world = await three_blocks()
    data = bytes((await world.store.get(world.blocks[0])).data)
    await world.store.put(world.blocks[0], [data[:-10]])
    done = await run_merge(merge_of(world.segments()), world.place())
    assert [partition_of(log) for log in done.made] == [0, 1]
    (failure,) = done.failed
    assert not failure.retriable
    assert world.blocks[0] in failure.error


async def test_a_hole_between_rows_is_refused() -> None:
    world = await three_blocks()
    plan = world.segments()[1]
    done = await run_merge(
        merge_of([replace(plan, rows=[plan.rows[0], plan.rows[2]])]), world.place()
    )
    (failure,) = done.failed
    assert not failure.retriable
    assert "a gap" in failure.error
    assert not await world.keys("segments/")


@pytest.mark.parametrize("change", [{"size_bytes": 1}, {"last_offset": Offset(99)}])
async def test_a_segment_that_is_not_the_planned_one_is_not_stored(change: dict[str, int]) -> None:
    world = await three_blocks()
    plans = [*world.segments()]
    plans[0] = replace(plans[0], **change)  # type: ignore[arg-type]
    done = await run_merge(merge_of(plans), world.place())
    assert [failure.token for failure in done.failed] == [plans[0].token]
    assert "planned were" in done.failed[0].error
    assert len(await world.keys("segments/")) == 2


async def test_a_row_that_ends_elsewhere_is_refused() -> None:
    world = await three_blocks()
    row = world.rows[0][0]
    world.rows[0][0] = row._replace(last_offset=Offset(row.last_offset - 1))
    done = await run_merge(merge_of(world.segments()), world.place())
    assert len(done.failed) == 1
    assert f"object {row.object_key}" in done.failed[0].error


async def test_of_rows_that_are_built_together_the_wrong_one_is_named() -> None:
    world = await three_blocks()
    wrong = world.rows[0][1]
    await world.damage(wrong, 61)
    done = await run_merge(merge_of(world.segments()), world.place())
    (failure,) = done.failed
    assert f"object {wrong.object_key}" in failure.error
    assert "CRC" in failure.error


async def test_rows_that_meet_at_another_offset_than_they_say_are_refused() -> None:
    world = await three_blocks()
    first, second, *_ = world.rows[0]
    world.rows[0][0] = first._replace(last_offset=Offset(first.last_offset - 1))
    world.rows[0][1] = second._replace(base_offset=Offset(second.base_offset - 1))
    done = await run_merge(merge_of(world.segments()), world.place())
    (failure,) = done.failed
    assert f"object {first.object_key}" in failure.error
    assert len(await world.keys("segments/")) == 2


async def test_a_stamped_row_must_say_its_own_offsets() -> None:
    world = await three_blocks()
    world.rows[0][1] = world.rows[0][1]._replace(stamped=True)
    done = await run_merge(merge_of(world.segments()), world.place())
    (failure,) = done.failed
    assert "where 4 is next" in failure.error
    assert not failure.retriable


async def test_after_a_failure_later_segments_of_that_claim_are_not_made() -> None:
    world = await three_blocks()
    plans = world.segments(at=1)
    await world.damage(world.rows[1][0], 61)
    done = await run_merge(merge_of(plans), world.place())
    assert [(partition_of(log), log.built.base_offset) for log in done.made] == [
        (0, 0), (0, 4), (2, 0), (2, 4),
    ]  # fmt: skip
    assert [failure.token for failure in done.failed] == [plans[2].token]
    assert "CRC" in done.failed[0].error


async def test_before_a_failure_earlier_segments_of_that_claim_are_kept() -> None:
    world = await three_blocks()
    plans = world.segments(at=1)
    await world.damage(world.rows[1][2], 61)
    done = await run_merge(merge_of(plans), world.place())
    assert (1, 0) in [(partition_of(log), log.built.base_offset) for log in done.made]
    assert [failure.token for failure in done.failed] == [plans[2].token]
    assert len(done.made) == 5


async def test_a_compressed_log_opens_with_any_zstd() -> None:
    world = await three_blocks(size=5000)
    place = world.place(encoding=Encoding(chunk_bytes=4096, compress=True))
    done = await run_merge(merge_of(world.segments()), place)
    for log in done.made:
        stored = await world.log_in_store(log.key_base)
        assert log.uploaded.stored_bytes == len(stored) < log.built.size_bytes
        reader = zstandard.ZstdDecompressor().stream_reader(stored, read_across_frames=True)
        assert reader.read() == await world.log_of(world.rows[partition_of(log)])


async def test_a_log_is_encrypted_with_the_public_key_alone() -> None:
    world = await three_blocks()
    public_key = RSA.import_key((GOLDEN / "test-only-public.pem").read_bytes())
    place = world.place(
        encoding=Encoding(encrypt=True), keys=KeyRing({"k1": public_key}, active="k1")
    )
    done = await run_merge(merge_of(world.segments()), place)
    assert [log.uploaded.encryption and log.uploaded.encryption.key_id for log in done.made] == [
        "k1"
    ] * 3
    assert payload(2)[61:] not in await world.log_in_store(done.made[0].key_base)


@pytest.mark.parametrize("read_ahead_bytes", [1, 1000])
@pytest.mark.parametrize("portion_bytes", [1, 300, 1 << 20])
async def test_many_segments_never_wait_for_each_other(
    read_ahead_bytes: int, portion_bytes: int
) -> None:
    """Neither with room for one piece, nor when none has enough to be woken for."""
    world = World()
    for number in range(6):
        here = [each for each in range(40) if (each + number) % 3]
        await world.commit(*(sent(each, 1 + each % 3) for each in here))
    async with asyncio.timeout(PATIENCE_S):
        done = await run_merge(
            merge_of(world.segments(at=2)),
            world.place(),
            read_ahead_bytes=read_ahead_bytes,
            portion_bytes=portion_bytes,
        )
    assert not done.failed
    assert len(done.made) == 80
    await check_logs(world, done)


class _Tracked(bytearray):
    """Bytes of which it is known whether anybody holds them."""


class HoldingStore(WatchedStore):
    """Hands out tracked memory, and takes nothing of any stream before the test lets it."""

    def __init__(self, inner: WatchedStore) -> None:
        super().__init__(inner)
        self.gate = asyncio.Event()
        self.much_is_held = asyncio.Event()
        self._handed_out: list[ref[_Tracked]] = []
        self.most_live_bytes = 0

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[Range],
        *,
        into: Sequence[memoryview] | None = None,
        mapped: bool = False,
    ) -> list[Buffer]:
        buffers = [
            _Tracked(each)
            for each in await super().get_ranges(key, ranges, into=into, mapped=mapped)
        ]
        self._handed_out += map(ref, buffers)
        self.most_live_bytes = max(self.most_live_bytes, self.live_bytes)
        if self.live_bytes > 80_000:
            self.much_is_held.set()
        return [*buffers]

    @property
    def live_bytes(self) -> int:
        held = [handed() for handed in self._handed_out]
        return sum(len(each) for each in held if each is not None)

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> int:
        size_bytes = 0
        await self.gate.wait()
        async for part in parts:
            size_bytes += len(part)
        return size_bytes


async def test_reading_waits_for_uploads_that_do_not_move() -> None:
    world = World()
    for _ in range(30):
        await world.commit(sent(0, size=10_000), sent(1, size=10_000))
    world.store = store = HoldingStore(world.store)
    limit, portion = 100_000, 25_000
    running = asyncio.ensure_future(
        run_merge(
            merge_of(world.segments()),
            world.place(),
            read_ahead_bytes=limit,
            portion_bytes=portion,
        )
    )
    async with asyncio.timeout(PATIENCE_S):
        await store.much_is_held.wait()
    for _ in range(200):
        await asyncio.sleep(0)
    assert not running.done()
    assert store.live_bytes <= limit + 2 * portion
    store.gate.set()
    async with asyncio.timeout(PATIENCE_S):
        done = await running
    assert [log.built.size_bytes for log in done.made] == [30 * len(payload(1, 10_000))] * 2
    assert store.most_live_bytes <= limit + 2 * portion
    assert store.live_bytes == 0


async def test_a_thin_partition_does_not_keep_whole_blocks_in_memory() -> None:
    """A log has memory of its own, although one request has read it with its neighbours."""
    world = World()
    for _ in range(3):
        await world.commit(sent(0, size=10), sent(1, size=100_000))
    pieces: list[memoryview] = []

    class Keeping(WatchedStore):
        async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> int:
            size_bytes = 0
            async for part in parts:
                pieces.append(memoryview(part))
                size_bytes += len(part)
            return size_bytes

    world.store = Keeping(world.store)
    await run_merge(merge_of(world.segments()), world.place())
    assert len(pieces) == 2
    for piece in pieces:
        assert memoryview(piece.obj).nbytes < 2 * len(piece)


async def test_a_batch_larger_than_all_that_may_be_read_ahead_is_merged() -> None:
    world = World()
    await world.commit(sent(0, size=50_000), Sent(1, payload(1, 3_000_000), 1))
    done = await run_merge(merge_of(world.segments()), world.place(), read_ahead_bytes=1000)
    assert len(done.made) == 2
    await check_logs(world, done)


async def test_a_segment_without_rows_is_refused() -> None:
    world = await three_blocks()
    plan = replace(segment_plan(world.rows[0]), rows=[])
    done = await run_merge(merge_of([plan, *world.segments()[1:]]), world.place())
    assert "has no batch" in done.failed[0].error
    assert len(done.made) == 2
