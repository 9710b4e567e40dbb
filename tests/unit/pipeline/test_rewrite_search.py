"""Objects that are mostly dead go, whichever partition keeps their last rows."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.pipeline.failing_control import FailingControl
from tests.unit.pipeline.lab import EAGER, MERGE, PATIENT, SPLIT, Lab, path_of, using

from stratalog.block.block import SealedBlock
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.pipeline.model import UnitKind
from stratalog.control.topics.model import Topic
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.pipeline.service import kinds_of_work, new_watches
from stratalog.settings import TieringSettings


def spoil_of(lab: Lab, sealed: SealedBlock, topic: Topic) -> None:
    """Change a byte of a topic's batch in a block."""
    path = path_of(lab, sealed.commit.key)
    data = bytearray(path.read_bytes())
    batch = next(each for each in sealed.commit.batches if each.topic_id == topic.id)
    data[batch.byte_offset + batch.byte_size - 2] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(data)


async def write_dying(lab: Lab, kept: Topic, gone: Topic) -> SealedBlock:
    return await lab.write_both([(kept, {0: [1]}), (gone, {0: [40]})])


@pytest.fixture
async def kept(lab: Lab) -> Topic:
    return await lab.topic(1, "kept")


@pytest.fixture
async def gone(lab: Lab) -> Topic:
    return await lab.topic(1, "gone")


async def test_what_a_paused_topic_keeps_in_mostly_dead_blocks_is_moved_together(
    any_lab: Lab,
) -> None:
    lab = any_lab
    kept, gone = await lab.topic(1, "kept"), await lab.topic(1, "gone")
    for _ in range(3):
        await write_dying(lab, kept, gone)
    await lab.control.pipeline.pause(kept.id)
    await lab.run()
    await lab.check_clean()
    assert len(await lab.keys("blocks/")) == 0
    assert len(await lab.keys("splits/")) == 1
    await lab.check(kept)
    await lab.check(gone)


@pytest.mark.parametrize("name_length", [1, 150, 249])
async def test_what_was_rewritten_is_not_rewritten_again(lab: Lab, name_length: int) -> None:
    """However small it is: a footer with a long name is larger than a small record."""
    using(lab, PATIENT)
    topic = await lab.topic(1, "t" * name_length)
    await lab.write(topic, {0: [1]})
    reports = [await lab.run() for _ in range(3)]
    assert reports[-1].did_nothing
    assert sum(report.split_files for report in reports) <= 1
    await lab.check_clean()
    await lab.check(topic)


async def test_beside_a_broker_mostly_dead_blocks_are_work(
    lab: Lab, kept: Topic, gone: Topic
) -> None:
    await lab.control.pipeline.pause(kept.id)
    for _ in range(3):
        await write_dying(lab, kept, gone)
    while kinds := await kinds_of_work(lab.control, lab.settings):
        await lab.run(kinds=kinds)
    await lab.check_clean()
    assert await lab.keys("blocks/") == []
    await lab.check(kept)


async def write_alive(lab: Lab, topic: Topic, count: int) -> None:
    for _ in range(count):
        await lab.write(topic, {0: [40]})


@pytest.fixture
def small_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages of two objects."""
    monkeypatch.setattr("stratalog.pipeline.kinds.rewrite_search._PAGE", 2)
    monkeypatch.setattr("stratalog.pipeline.kinds.rewrite_search._WATCH_PAGES", 2)


@pytest.mark.usefixtures("small_looks")
async def test_a_look_goes_on_where_the_last_one_ended_and_begins_again(
    lab: Lab, kept: Topic, gone: Topic
) -> None:
    await lab.control.pipeline.pause(kept.id)
    await write_alive(lab, kept, 9)
    await write_dying(lab, kept, gone)
    await lab.run(kinds=MERGE)
    watches = new_watches()
    control = FailingControl(lab.control)

    async def kinds() -> Sequence[UnitKind]:
        return await kinds_of_work(control, lab.settings, watches)

    assert [await kinds() for _ in range(4)] == [[], [], SPLIT, SPLIT]
    assert control.calls.count("pipeline.mostly_dead_objects") == 2 + 2 + 1 + 1
    await lab.run(kinds=SPLIT)
    control.calls.clear()
    assert [await kinds() for _ in range(4)] == [[], [], [], []]
    assert control.calls.count("pipeline.mostly_dead_objects") == 2 + 2 + 2 + 2
    await write_dying(lab, kept, gone)
    await lab.run(kinds=MERGE)
    assert SPLIT in [await kinds() for _ in range(4)]


@pytest.mark.usefixtures("small_looks")
async def test_a_run_goes_through_all_objects_page_by_page(
    lab: Lab, kept: Topic, gone: Topic
) -> None:
    await lab.control.pipeline.pause(kept.id)
    await write_alive(lab, kept, 9)
    await write_dying(lab, kept, gone)
    await lab.run()
    await lab.clean()
    assert len(await lab.keys("blocks/")) == 9
    assert len(await lab.keys("splits/")) == 1


@pytest.mark.parametrize(
    "failing",
    ["pipeline.mostly_dead_objects", "pipeline.coordinates_in", "pipeline.held_back_rows"],
)
async def test_a_look_for_rewrites_that_fails_costs_a_run_the_rewrites_alone(
    lab: Lab, kept: Topic, gone: Topic, caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    await lab.control.pipeline.pause(kept.id)
    await write_dying(lab, kept, gone)
    control = FailingControl(lab.control)
    control.errors[failing] = ControlUnavailableError("a statement took too long")
    async with lab.driver(control=control, clean=True) as driver:
        report = await driver.run()
    assert (report.segments, report.split_files) == (1, 0)
    assert "objects.marked" in control.calls[control.calls.index(failing) :]
    [run] = await lab.control.pipeline.runs(limit=9)
    assert run.finished_ms is not None
    assert "mostly dead were not looked for" in caplog.text
    assert "a statement took too long" in caplog.text
    assert (await lab.run()).split_files == 1


@pytest.mark.parametrize("failing", ["pipeline.mostly_dead_objects", "pipeline.held_back_rows"])
async def test_a_look_for_rewrites_that_fails_hides_no_other_work(
    lab: Lab, kept: Topic, gone: Topic, caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    await lab.control.pipeline.pause(kept.id)
    await write_alive(lab, gone, 1)
    control = FailingControl(lab.control)
    control.errors[failing] = ControlUnavailableError("a statement took too long")
    assert await kinds_of_work(control, lab.settings) == MERGE
    assert "mostly dead were not looked for" in caplog.text
    assert failing not in control.errors


async def test_a_damaged_block_that_parks_its_partition_pins_no_other(
    lab: Lab, kept: Topic, gone: Topic
) -> None:
    using(lab, replace(EAGER, max_attempts=2))
    bad = await write_dying(lab, kept, gone)
    spoil_of(lab, bad, kept)
    for _ in range(12):
        await write_dying(lab, kept, gone)
        await lab.run()
        await lab.clean()
    await lab.run()
    await lab.clean()
    assert await lab.keys("blocks/") == [bad.commit.key]
    assert (await lab.run()).waiting == {"parked": 1}
    assert await kinds_of_work(lab.control, lab.settings) == []
    await lab.check(gone)


async def test_rows_on_both_sides_of_a_damaged_one_are_moved(
    lab: Lab, kept: Topic, gone: Topic
) -> None:
    await lab.control.pipeline.pause(kept.id)
    blocks = [await write_dying(lab, kept, gone) for _ in range(7)]
    for bad in (blocks[2], blocks[4]):
        spoil_of(lab, bad, kept)
    first = await lab.run()
    assert list(first.failed) == ["kept-0"]
    assert bad.commit.key in str(first.failed) or blocks[2].commit.key in str(first.failed)
    async with lab.driver() as driver:
        report = await driver.run_until_idle()
    assert (report.failed, report.parked) == ({}, [])
    await lab.clean()
    assert sorted(await lab.keys("blocks/")) == sorted([blocks[2].commit.key, blocks[4].commit.key])


async def test_a_rewrite_forgives_no_failed_conversion(lab: Lab, kept: Topic, gone: Topic) -> None:
    using(lab, replace(EAGER, max_attempts=2))
    for _ in range(2):
        await write_dying(lab, kept, gone)
    spoil_of(lab, await lab.write(kept, {0: [1]}), kept)
    await lab.run(kinds=MERGE)
    await lab.control.pipeline.pause(kept.id)
    assert (await lab.run()).split_files == 1
    await lab.control.pipeline.resume(kept.id)
    assert (await lab.run(kinds=MERGE)).parked == ["kept-0"]


async def test_objects_that_cannot_be_rewritten_starve_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.pipeline.kinds.rewrite_search._PAGE", 2)
    async with Lab.open(tmp_path) as lab:
        kept, gone = await lab.topic(1, "kept"), await lab.topic(1, "gone")
        await lab.control.pipeline.pause(kept.id)
        for _ in range(5):
            spoil_of(lab, await write_dying(lab, kept, gone), kept)
        good = await write_dying(lab, kept, gone)
        async with lab.driver() as driver:
            await driver.run_until_idle()
        await lab.clean()
        assert good.commit.key not in await lab.keys("blocks/")


async def moved_bytes(lab: Lab, tiering: TieringSettings) -> int:
    return (await using(lab, tiering).run(kinds=[UnitKind.SPLIT])).split_bytes


async def test_rewrites_stay_within_the_bytes_of_a_run(lab: Lab, kept: Topic, gone: Topic) -> None:
    lab.number_from(1000)  # So that all rows are of the same size.
    for _ in range(6):
        await write_dying(lab, kept, gone)
    await lab.control.pipeline.pause(kept.id)
    await lab.run(kinds=MERGE)
    row = (
        await lab.control.log.all_coordinates(TopicPartition(kept.id, PartitionIndex(0)), limit=1)
    )[0].byte_size
    assert await moved_bytes(lab, replace(EAGER, max_bytes_per_run=2 * row)) == 2 * row
    assert await moved_bytes(lab, replace(EAGER, max_bytes_per_run=row - 1)) == row
    assert await moved_bytes(lab, EAGER) == 3 * row


# Small files of partitions that no run converts.


async def pieces_of(lab: Lab, topic: Topic) -> tuple[int, int]:
    """Of a topic's only partition: its rows in split files, and how many files those are."""
    key = TopicPartition(topic.id, PartitionIndex(0))
    rows = [row for row in await lab.control.log.all_coordinates(key, limit=1000) if row.stamped]
    return len(rows), len({row.object_id for row in rows})


async def test_rows_and_files_of_a_paused_topic_stay_few(any_lab: Lab) -> None:
    lab = using(any_lab, replace(EAGER, max_rows=8))
    kept, gone = await lab.topic(1, "kept"), await lab.topic(1, "gone")
    await lab.control.pipeline.pause(kept.id)
    moved_bytes = 0
    for _ in range(40):
        await write_dying(lab, kept, gone)
        moved_bytes += (await lab.run()).split_bytes
        assert max(await pieces_of(lab, kept)) <= 9
        await lab.clean()
    await lab.check_clean()
    assert await lab.keys("blocks/") == []
    assert len(await lab.keys("splits/")) <= 8
    key = TopicPartition(kept.id, PartitionIndex(0))
    written_bytes = sum(batch.size_bytes for batch in lab.batches[key])
    assert moved_bytes <= 4 * written_bytes, "a byte is copied a few times at the most"
    await lab.check(kept)


async def test_rows_and_files_of_a_parked_partition_stay_few(
    lab: Lab, kept: Topic, gone: Topic
) -> None:
    using(lab, replace(EAGER, max_rows=8, max_attempts=1))
    spoil_of(lab, await write_dying(lab, kept, gone), kept)
    for _ in range(25):
        await write_dying(lab, kept, gone)
        await lab.run()
        await lab.clean()
        assert max(await pieces_of(lab, kept)) <= 9
    report = await lab.run()
    assert (report.waiting, report.failed) == ({"parked": 1}, {})
    assert len(await lab.keys("blocks/")) == 1, "the damaged one"


@pytest.mark.parametrize(("files", "joined"), [(8, False), (9, True)])
async def test_small_files_are_joined_once_they_are_too_many(
    lab: Lab, kept: Topic, gone: Topic, files: int, joined: bool
) -> None:
    await lab.control.pipeline.pause(kept.id)
    using(lab, replace(EAGER, max_rows=1000))
    for _ in range(files):
        await write_dying(lab, kept, gone)
        await lab.run()
    assert await pieces_of(lab, kept) == (files, files)
    using(lab, replace(EAGER, max_rows=8))
    assert (await kinds_of_work(lab.control, lab.settings) == [UnitKind.SPLIT]) is joined
    async with lab.driver() as driver:
        planned = (await driver.plan()).tasks
        report = await driver.run_until_idle()
    assert len(planned) == report.split_files == joined
    assert await pieces_of(lab, kept) == ((1, 1) if joined else (files, files))
    assert await kinds_of_work(lab.control, lab.settings) == []
    await lab.check_clean()
    await lab.check(kept)


async def test_small_files_are_joined_within_the_bytes_of_a_run(
    lab: Lab, kept: Topic, gone: Topic
) -> None:
    lab.number_from(1000)  # So that all rows are of the same size.
    await lab.control.pipeline.pause(kept.id)
    using(lab, replace(EAGER, max_rows=1000))
    for _ in range(12):
        await write_dying(lab, kept, gone)
        await lab.run()
    key = TopicPartition(kept.id, PartitionIndex(0))
    row = (await lab.control.log.all_coordinates(key, limit=1))[0].byte_size
    few = replace(EAGER, max_rows=8, max_bytes_per_run=4 * row)
    assert await moved_bytes(lab, few) == 0, "as few as these would not make a difference"
    assert await moved_bytes(lab, replace(few, max_bytes_per_run=6 * row)) == 6 * row
    assert await pieces_of(lab, kept) == (7, 7)


async def test_rows_between_which_others_are_kept_are_not_moved_for_ever(
    lab: Lab, kept: Topic, gone: Topic
) -> None:
    using(lab, replace(EAGER, max_rows=4))
    await lab.control.pipeline.pause(kept.id)
    for _ in range(12):
        await lab.write(kept, {0: [40]})
        await write_dying(lab, kept, gone)
        async with lab.driver() as driver:
            await driver.run_until_idle()
    assert await pieces_of(lab, kept) == (12, 12)
    assert len(await lab.keys("blocks/")) == 24
    assert (await lab.run()).did_nothing
    assert await kinds_of_work(lab.control, lab.settings) == []
