"""A lost segment that is given up: readers go on over it, and a crash leaves only garbage."""

import asyncio
from contextlib import AbstractContextManager
from unittest.mock import patch

import pytest
from tests.unit.pipeline.lab import MERGE, Lab, change, path_of
from tests.unit.pipeline.losses import problems
from typer.testing import CliRunner

import stratalog
from stratalog.admin.errors import StillReadableError
from stratalog.admin.principal import ANONYMOUS
from stratalog.block.batch_index import BatchIndex
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.reader import BlockReader
from stratalog.checks.errors import LostRangeError
from stratalog.checks.lost_segments import SegmentLoss
from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.report import Promise
from stratalog.cli.admin import admin_of
from stratalog.cli.main import app
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.log.model import TimeQuery
from stratalog.control.lost.ledger import LostRangesLedger
from stratalog.control.segments.lifecycle import SegmentOperations
from stratalog.control.segments.model import Segment
from stratalog.control.topics.model import Topic
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.opening.workers import encoding_of
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.remote_log_metadata import export_records
from stratalog.segment.stores import SegmentStores
from stratalog.topic.offsets import TopicOffsets
from stratalog.topic.times import RecordTimes


def tier(lab: Lab) -> RemoteTier:
    remote = lab.settings.remote
    keys = KeyRing.load(remote.public_keys, remote.private_keys, remote.encryption_key)
    return RemoteTier(stores=SegmentStores(lab.store, lambda url: lab.store), keys=keys)


async def plan(lab: Lab, key: str) -> SegmentLoss:
    return await admin_of(lab.control, lab.settings).lost_ranges.plan_segment(
        ANONYMOUS, tier(lab), key
    )


async def mark(lab: Lab, loss: SegmentLoss, *, force: bool = False) -> None:
    await admin_of(lab.control, lab.settings).lost_ranges.mark_segment(
        ANONYMOUS, tier(lab), encoding_of(lab.settings.remote), loss, reason="gone", force=force
    )
    note_lost(lab, loss.segment)


def note_lost(lab: Lab, segment: Segment) -> None:
    lab.lost[segment.topic_partition] |= set(range(segment.base_offset, segment.end_offset))


async def chain(lab: Lab, topic: Topic) -> list[Segment]:
    return await lab.control.segments.chained(
        TopicPartition(topic.id, PartitionIndex(0)), limit=100
    )


async def three_segments(lab: Lab) -> Topic:
    topic = await lab.topic(partitions=1)
    for _ in range(3):
        await lab.write(topic, {0: [3, 1]})
        assert (await lab.run(kinds=MERGE)).commits
    assert await lab.segments(topic, 0) == [(0, 4), (4, 8), (8, 12)]
    return topic


@pytest.mark.parametrize("where", [0, 1, 2])
async def test_readers_and_checks_go_on_over_a_lost_segment(lab: Lab, where: int) -> None:
    topic = await three_segments(lab)
    lost = (await chain(lab, topic))[where]
    path_of(lab, lost.key_base + ".log").unlink()
    assert await problems(lab)
    loss = await plan(lab, lost.key_base + ".log")
    assert (loss.topic_name, loss.has_log) == ("orders", False)
    await mark(lab, loss)
    await lab.check(topic)
    assert await problems(lab) == []
    assert await lab.segments(topic, 0) == [(0, 4), (4, 8), (8, 12)]
    [noted] = await lab.control.lost.of_topic(topic.id)
    assert (noted.first_offset, noted.end_offset) == (lost.base_offset, lost.end_offset)
    # The next segment continues its producers.
    await lab.write(topic, {0: [2]})
    assert (await lab.run(kinds=MERGE)).commits
    await lab.check(topic)
    await lab.clean()
    assert all(lost.key_base not in key for key in await lab.keys())
    await lab.check_clean()
    assert await problems(lab) == []
    for segment in await chain(lab, topic):
        assert len(list(export_records(segment, topic.name))) == 2


async def test_no_look_up_by_time_leads_to_a_lost_segment(lab: Lab) -> None:
    topic = await three_segments(lab)
    for segment in (await chain(lab, topic))[:2]:
        path_of(lab, segment.key_base + ".log").unlink()
        await mark(lab, await plan(lab, segment.key_base + ".log"))
    key = TopicPartition(topic.id, PartitionIndex(0))
    query = TimeQuery(topic_id=key.topic_id, partition=key.partition, timestamp=0)
    [piece] = await lab.control.log.find_by_time([query])
    assert piece is not None
    assert piece.base_offset == 8
    [newest] = await lab.control.log.find_newest([key])
    assert newest is not None
    assert newest.base_offset == 8


async def test_a_partition_that_is_lost_as_a_whole_has_no_newest_record(lab: Lab) -> None:
    topic = await three_segments(lab)
    for segment in await chain(lab, topic):
        await mark(lab, await plan(lab, segment.key_base + ".log"), force=True)
    reader = lab.segment_reader()
    blocks = BlockReader(store=lab.store, cache=FreshBlocks(0))
    index = BatchIndex(control=lab.control, store=lab.store)
    times = RecordTimes(blocks=blocks, index=index, segments=reader)
    key = TopicPartition(topic.id, PartitionIndex(0))
    offsets = TopicOffsets(control=lab.control, times=times)
    query = TimeQuery(topic_id=key.topic_id, partition=key.partition, timestamp=0)
    assert await offsets.newest([key]) == {key: None}
    assert await offsets.at_time([query]) == [None]
    await reader.close()


async def test_a_scan_goes_on_over_a_lost_segment(lab: Lab) -> None:
    topic = await three_segments(lab)
    lost = (await chain(lab, topic))[1]
    path_of(lab, lost.key_base + ".log").unlink()
    await mark(lab, await plan(lab, lost.key_base + ".log"))

    def scan() -> list[int]:
        reader = stratalog.read("orders", columns=["offset"], settings=lab.settings)
        return [int(each) for each in reader.read_all()["offset"].to_pylist()]

    assert await asyncio.to_thread(scan) == [0, 1, 2, 3, 8, 9, 10, 11]


async def test_a_segment_without_records_and_without_a_note_is_a_hole(lab: Lab) -> None:
    topic = await three_segments(lab)
    lost = (await chain(lab, topic))[1]
    await mark(lab, await plan(lab, lost.key_base + ".log"), force=True)
    await change(lab, "DELETE FROM lost_ranges")
    assert await problems(lab) == [Promise.DENSE]


async def test_a_log_that_is_in_the_store_is_given_up_by_force_only(lab: Lab) -> None:
    topic = await three_segments(lab)
    lost = (await chain(lab, topic))[1]
    loss = await plan(lab, lost.key_base + ".log")
    with pytest.raises(StillReadableError, match="is in the store"):
        await mark(lab, loss)
    assert await lab.control.lost.of_topic(topic.id) == []
    await mark(lab, loss, force=True)
    await lab.check(topic)
    assert await problems(lab) == []


@pytest.mark.parametrize("operation", ["add", "finish"])
async def test_a_crash_before_the_replacement_is_finished_leaves_garbage(
    lab: Lab, operation: str
) -> None:
    await _crash(lab, patch.object(SegmentOperations, operation, side_effect=_crashed()))


async def test_a_crash_between_upload_and_swap_leaves_garbage(lab: Lab) -> None:
    await _crash(lab, patch.object(LostRangesLedger, "swap", side_effect=_crashed()))


def _crashed() -> Exception:
    return ControlUnavailableError("crash")


async def _crash(lab: Lab, crash: AbstractContextManager[object]) -> None:
    topic = await three_segments(lab)
    before = await chain(lab, topic)
    path_of(lab, before[1].key_base + ".log").unlink()
    loss = await plan(lab, before[1].key_base + ".log")
    keys = set(await lab.keys())
    with crash, pytest.raises(ControlUnavailableError):
        await mark(lab, loss)
    assert await chain(lab, topic) == before
    assert await lab.control.lost.of_topic(topic.id) == []
    await lab.clean()
    assert set(await lab.keys()) <= keys
    assert await chain(lab, topic) == before
    await mark(lab, loss)
    await lab.check(topic)
    await lab.check_clean()
    assert await problems(lab) == []


async def test_other_objects_of_a_segment_and_strangers_are_refused(lab: Lab) -> None:
    topic = await three_segments(lab)
    lost = (await chain(lab, topic))[1]
    with pytest.raises(LostRangeError, match="--rebuild-indexes"):
        await plan(lab, lost.key_base + ".indexes")
    await mark(lab, await plan(lab, lost.key_base + ".log"), force=True)
    with pytest.raises(LostRangeError, match="no records are served"):
        await plan(lab, lost.key_base + ".log")


async def test_the_command_gives_a_segment_up(lab: Lab) -> None:
    topic = await three_segments(lab)
    lost = (await chain(lab, topic))[1]
    path_of(lab, lost.key_base + ".log").unlink()
    places = ("--objects", lab.settings.storage.objects, "--control", lab.settings.storage.control)
    command = ["store", "mark-lost", lost.key_base + ".log", "--reason", "a test", *places]

    async def run(*more: str) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, app, [*command, *more])
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    assert "orders-0, offsets 4 to 7: a segment" in await run("--dry-run")
    assert await lab.control.lost.of_topic(topic.id) == []
    assert "Marked 4 offsets of a segment of orders as lost." in await run("--yes")
    note_lost(lab, lost)
    await lab.check(topic)
    assert await problems(lab) == []
