"""The driver with a real control plane and store. Spark is replaced by the test's own process."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.pipeline.failing_control import FailingControl
from tests.unit.pipeline.lab import EAGER, MERGE, PATIENT, SPLIT, Lab, change, number_in, using

from stratalog.cli.pipeline_status import status_json
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.pipeline.model import UnitKind
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.opening.errors import PrivateStoreError
from stratalog.pipeline.plan.cost import cost_of
from stratalog.pipeline.plan.selection import Reason
from stratalog.pipeline.service import kinds_of_work
from stratalog.segment.epoch_checkpoint import decode_checkpoint
from stratalog.segment.errors import KeyMissingError
from stratalog.segment.model import IndexKind
from stratalog.segment.producer_snapshot import decode_snapshot
from stratalog.settings import DAY_MS, HOUR_MS, RemoteSettings, TieringSettings

GOLDEN = Path(__file__).parents[2] / "golden"


# The work of a run.


async def test_aged_rows_become_segments_that_read_as_before(any_lab: Lab) -> None:
    lab = any_lab
    topic = await lab.topic(3)
    await lab.fill(topic)
    report = await lab.run()
    assert report.segments == 3
    assert report.merged_partitions == 3
    assert report.failed == {}
    assert [await lab.segments(topic, p) for p in range(3)] == [[(0, 24)]] * 3
    assert [await lab.rows(topic, p) for p in range(3)] == [0, 0, 0]
    await lab.check(topic)
    await lab.check_clean()
    await lab.check(topic)


async def test_each_run_goes_on_where_the_last_one_ended(lab: Lab) -> None:
    topic = await lab.topic(1)
    for _ in range(3):
        await lab.fill(topic, blocks=2)
        await lab.run()
    assert await lab.segments(topic, 0) == [(0, 8), (8, 16), (16, 24)]
    await lab.check(topic)


async def test_segments_have_the_size_that_the_topic_asks_for(lab: Lab) -> None:
    topic = await lab.topic(1, segment_bytes="500")
    await lab.fill(topic)
    report = await lab.run()
    segments = await lab.control.segments.chained(
        TopicPartition(topic.id, PartitionIndex(0)), limit=100
    )
    assert report.segments == len(segments) > 2
    assert all(segment.size_bytes <= 500 for segment in segments)
    await lab.check(topic)


async def test_every_byte_of_a_fat_partition_is_read_once(lab: Lab) -> None:
    topic = await lab.topic(2)
    await lab.fill(topic)
    report = await using(lab, replace(EAGER, task_bytes=1 << 20)).run()
    assert report.bytes_read == report.merged_bytes
    assert report.rows_removed == 12


async def test_partitions_in_many_pieces_move_together_and_are_merged_from_there(
    any_lab: Lab,
) -> None:
    lab = using(any_lab, PATIENT)
    topic = await lab.topic(3)
    await lab.fill(topic, blocks=9)
    report = await lab.run()
    assert (report.split_files, report.split_partitions, report.segments) == (1, 3, 0)
    assert [await lab.rows(topic, p) for p in range(3)] == [1, 1, 1]
    await lab.check(topic)
    await lab.check_clean()
    assert len(await lab.keys()) == 1
    await lab.check(topic)
    report = await using(lab, EAGER).run()
    assert report.segments == 3
    await lab.check_clean()
    await lab.check(topic)


async def test_partitions_with_few_pieces_come_along_only_if_another_has_many(lab: Lab) -> None:
    using(lab, PATIENT)
    topic = await lab.topic(2)
    for _ in range(PATIENT.max_rows):
        await lab.write(topic, {0: [1], 1: [1]})
    assert (await lab.run()).split_files == 0
    for _ in range(3):
        await lab.write(topic, {0: [1]})
    assert (await lab.run()).split_partitions == 2


async def test_without_work_nothing_is_started(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    jobs = lab.jobs()
    report = await using(lab, replace(EAGER, age_ms=HOUR_MS)).run(jobs)
    assert jobs.opened == 0
    assert report.did_nothing
    assert await lab.rows(topic, 0) == 6


async def test_records_that_were_joined_with_newer_ones_are_late_and_merged_as_if_they_were_not(
    any_lab: Lab,
) -> None:
    lab = any_lab
    using(lab, PATIENT)
    topic = await lab.topic(1, segment_ms=str(2 * HOUR_MS))
    await lab.fill(topic)
    await change(lab, _AN_HOUR_OLDER + " WHERE last_offset < 4")
    first_ms = await number_in(lab, "SELECT MIN(committed_ms) FROM batches")
    assert (await lab.run()).split_partitions == 1
    assert await number_in(lab, "SELECT MIN(committed_ms) FROM batches") > first_ms + HOUR_MS // 2
    [status] = await lab.control.pipeline.tier_status({topic.id: 0})
    assert (status.pending_rows, status.pending_split_files) == (1, 1)
    assert status_json(status, topic.name, first_ms + HOUR_MS)["lag_seconds"] == 3600
    assert (await lab.run()).did_nothing
    await change(lab, _AN_HOUR_OLDER)
    assert (await lab.run()).segments == 1
    assert await lab.segments(topic, 0) == [(0, 24)]
    await lab.check(topic)


_AN_HOUR_OLDER = (
    f"UPDATE batches SET committed_ms = committed_ms - {HOUR_MS}, oldest_ms = oldest_ms - {HOUR_MS}"
)


async def test_a_paused_topic_is_left_alone_and_a_triggered_one_is_not_waited_for(
    lab: Lab,
) -> None:
    using(lab, replace(EAGER, age_ms=HOUR_MS))
    topic = await lab.topic()
    await lab.fill(topic)
    await lab.control.pipeline.trigger(topic.id)
    await lab.control.pipeline.pause(topic.id)
    report = await lab.run()
    assert report.segments == 0
    assert report.waiting == {"of paused topics": 2}
    assert report.lines()[-1] == "left    2 partitions of paused topics"
    async with lab.driver() as driver:
        assert len((await driver.plan()).selection.waiting[Reason.PAUSED]) == 2
    await lab.control.pipeline.resume(topic.id)
    assert (await lab.run()).segments == 2


@pytest.mark.parametrize(
    "configs", [{"segment_bytes": "abc"}, {"local_retention_ms": "-3"}, {"retention_ms": "soon"}]
)
async def test_a_topic_whose_configs_cannot_be_read_is_left_out_and_named(
    lab: Lab, caplog: pytest.LogCaptureFixture, configs: dict[str, str]
) -> None:
    good, bad = await lab.topic(1), await lab.topic(1, "bad", **configs)
    for each in (good, bad):
        await lab.fill(each)
    assert await kinds_of_work(lab.control, lab.settings) == [UnitKind.MERGE]
    report = await lab.run()
    assert (report.segments, report.failed) == (1, {})
    assert await lab.segments(bad, 0) == []
    [name] = configs
    assert "Topic bad is not converted until it is fixed" in caplog.text
    assert name.replace("_", ".") in caplog.text
    await lab.check(good)
    await lab.check(bad)


async def test_a_trigger_converts_what_is_there_however_little_and_nothing_that_comes_later(
    lab: Lab,
) -> None:
    using(lab, replace(EAGER, age_ms=HOUR_MS, min_segment_bytes=1 << 20, max_batches_per_run=6))
    topic, quiet = await lab.topic(), await lab.topic(1, "quiet")
    for each in (topic, quiet):
        await lab.fill(each, blocks=2)
    assert (await lab.run()).did_nothing
    await lab.control.pipeline.trigger(topic.id)
    await lab.fill(topic, blocks=1)
    # All of this happens within the same few milliseconds.
    await change(lab, "UPDATE batches SET committed_ms = committed_ms + 1000 WHERE last_offset > 7")
    async with lab.driver() as driver:
        report = await driver.run_until_idle()
    assert report.segments == 2
    assert [await lab.segments(topic, p) for p in range(2)] == [[(0, 8)]] * 2
    assert await lab.segments(quiet, 0) == []
    [status] = await lab.control.pipeline.tier_status({topic.id: HOUR_MS})
    assert (status.triggered_ms, status.pending_rows) == (None, 2)
    await lab.check(topic)


async def test_only_the_topics_and_kinds_that_are_asked_for_are_converted(lab: Lab) -> None:
    one, other = await lab.topic(1), await lab.topic(1, "other")
    await lab.fill(one)
    await lab.fill(other)
    assert (await lab.run(kinds=SPLIT)).segments == 0
    async with lab.driver() as driver:
        report = await driver.run(MERGE, topics=["other"])
    assert report.segments == 1
    assert await lab.segments(one, 0) == []
    assert await lab.segments(other, 0) == [(0, 24)]


async def test_topics_that_are_not_there_are_named(lab: Lab) -> None:
    await lab.topic(1, "orders")
    async with lab.driver() as driver:
        for work in (driver.run, driver.run_until_idle, driver.plan):
            with pytest.raises(UnknownTopicError, match=r'"ordres".*did you mean "orders"'):
                await work(topics=["orders", "ordres"])
            with pytest.raises(UnknownTopicError, match='no topic "zzz"'):
                await work(topics=["zzz"])
    assert await lab.control.pipeline.runs(limit=1) == []


async def test_a_topic_that_is_deleted_between_two_runs_is_no_mistake(lab: Lab) -> None:
    topic = await lab.topic(1)
    await lab.fill(topic)
    control = FailingControl(lab.control)

    async def save_then_delete(*args: object, **rest: object) -> None:
        await lab.control.pipeline.save_run(*args, **rest)  # type: ignore[arg-type]
        await lab.control.topics.delete(topic.id)

    control.pipeline_save_run = save_then_delete  # type: ignore[attr-defined]
    async with lab.driver(control=control) as driver:
        report = await driver.run_until_idle(topics=["orders"])
    assert report.segments == 1
    assert len(await lab.control.pipeline.runs(limit=9)) == 2


async def test_a_plan_claims_and_changes_nothing(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    watched = FailingControl(lab.control)
    async with lab.driver(control=watched) as driver:
        plan = await driver.plan()
    assert [(task.kind, len(task.parts)) for task in plan.tasks] == [("merge", 1)] * 2
    assert set(watched.calls) == {
        "topics.all",
        "pipeline.aged_partitions",
        "log.partitions",
        "log.find_batches",
        "pipeline.mostly_dead_objects",
        "pipeline.coordinates_in",
        "pipeline.held_back_rows",
    }


@pytest.mark.parametrize("tiering", [EAGER, PATIENT])
async def test_the_cost_of_a_plan_is_what_the_run_then_costs(
    lab: Lab, tiering: TieringSettings
) -> None:
    using(lab, tiering)
    topic = await lab.topic(3)
    await lab.fill(topic)
    async with lab.driver() as driver:
        cost = cost_of((await driver.plan()).tasks)
        report = await driver.run()
    assert cost.bytes == report.merged_bytes + report.split_bytes
    for name in ("merged_partitions", "segments", "split_partitions", "split_files"):
        assert cost.figures[name] == getattr(report, name)
    assert cost.rows_removed == report.rows_removed
    assert cost.read_requests + cost.write_requests == report.requests


async def test_the_cost_of_a_plan_tells_of_rewrites_and_of_every_topic(lab: Lab) -> None:
    kept, gone, rest = [await lab.topic(1, name) for name in ("kept", "gone", "rest")]
    for _ in range(2):
        await lab.write_both([(kept, {0: [1]}), (gone, {0: [40]}), (rest, {0: [1]})])
    await lab.control.pipeline.pause(kept.id)
    await lab.run(kinds=MERGE)
    for _ in range(2):
        await lab.write_both([(kept, {0: [1]}), (gone, {0: [40]})])
    async with lab.driver() as driver:
        plan = await driver.plan()
        cost = cost_of(plan.tasks)
        report = await driver.run()
    expected = {
        "merged_partitions": 1,
        "segments": 1,
        "split_partitions": 0,
        "split_files": 0,
        "rewritten_partitions": 1,
        "rewritten_files": report.split_files,
    }
    # Another kind adds figures of its own.
    assert expected.items() <= cost.figures.items()
    assert cost.bytes == report.merged_bytes + report.split_bytes
    assert cost.topics == [
        ("gone", "merge", 1, report.merged_bytes),
        ("kept", "rewrite", 1, report.split_bytes),
    ]
    assert cost.to_json()["topics"] == [share._asdict() for share in cost.topics]
    assert f"  kept: rewrite 1 partition, {report.split_bytes / 1e6:.1f} MB" in cost.lines()


async def test_a_plan_rewrites_an_object_once_that_dies_further_by_it(lab: Lab) -> None:
    kept, gone, rest = [await lab.topic(1, name) for name in ("kept", "gone", "rest")]
    await lab.write_both([(kept, {0: [1]}), (gone, {0: [400]}), (rest, {0: [40]})])
    await lab.control.pipeline.pause(kept.id)
    async with lab.driver() as driver:
        await driver.run(MERGE, ["gone"])
        plan = await driver.plan()
        report = await driver.run()
    cost = cost_of(plan.tasks)
    assert cost.bytes == report.merged_bytes + report.split_bytes
    assert (cost.figures["rewritten_files"], report.split_files) == (1, 1)


async def test_a_run_without_brokers_deletes_what_nobody_needs_any_more(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    async with lab.driver(clean=True) as driver:
        report = await driver.run()
    assert report.objects_deleted == 6
    assert await lab.keys("blocks/") == []
    await lab.check(topic)


async def test_a_run_without_brokers_takes_deleted_topics_and_expired_records(lab: Lab) -> None:
    kept = await lab.topic(retention_ms="-1")
    expiring = await lab.topic(name="expiring", retention_ms=str(HOUR_MS))
    deleted = await lab.topic(name="deleted")
    old = {0: [2], 1: [1]}
    for topic in (kept, expiring, deleted):
        await lab.write(topic, old, age_ms=DAY_MS)
    await lab.delete_records(kept, 0, 1)
    await lab.control.topics.delete(deleted.id)
    lab.settings = replace(lab.settings, tiering=replace(PATIENT, age_ms=HOUR_MS))
    async with lab.driver(clean=True) as driver:
        reports = [
            await driver.run() for _ in range(2)
        ]  # The second takes the objects that the first marks.
    assert sum(report.objects_deleted for report in reports) == 2
    assert len(await lab.keys("blocks/")) == 1
    state = await lab.state(expiring, 0)
    assert (state.log_start, state.high_watermark) == (2, 2)
    await lab.check(kept)


@pytest.mark.parametrize("tiering", [EAGER, PATIENT])
async def test_runs_without_brokers_forget_the_objects_that_they_have_deleted(
    lab: Lab, tiering: TieringSettings
) -> None:
    using(lab, tiering)
    topic = await lab.topic()
    for _ in range(3):
        await lab.fill(topic)
        async with lab.driver(clean=True) as driver:
            await driver.run_until_idle()
    left = [*await lab.keys("blocks/"), *await lab.keys("splits/")]
    assert await number_in(lab, "SELECT COUNT(*) FROM objects") == len(left)
    await lab.check(topic)


async def test_a_run_lets_nothing_expire_by_the_defaults_of_its_own_settings(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.write(topic, {0: [2]}, age_ms=DAY_MS)
    lab.settings = replace(
        lab.settings,
        tiering=replace(PATIENT, age_ms=HOUR_MS),
        topic={"retention.ms": str(HOUR_MS)},
    )
    async with lab.driver(clean=True) as driver:
        await driver.run()
    assert (await lab.state(topic, 0)).log_start == 0
    await lab.check(topic)


async def test_to_clean_in_vain_does_not_fail_a_run(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    watched = FailingControl(lab.control)
    watched.errors["objects.marked"] = ControlUnavailableError("made to fail")
    async with lab.driver(control=watched, clean=True) as driver:
        assert (await driver.run()).segments == 2
    assert "keep their space" in caplog.text


async def test_a_store_in_memory_is_refused(lab: Lab) -> None:
    storage = replace(lab.settings.storage, objects="memory:")
    lab.settings = replace(lab.settings, storage=storage)
    with pytest.raises(PrivateStoreError):
        await lab.run()


async def test_a_key_that_opens_nothing_is_told_before_anything_is_done(lab: Lab) -> None:
    keys = {"key": str(GOLDEN / "test-only-public.pem")}
    remote = RemoteSettings(encryption_key="key", public_keys=keys)
    lab.settings = replace(lab.settings, remote=remote)
    with pytest.raises(KeyMissingError, match="private key 'key'"):
        await lab.run()
    assert await lab.control.pipeline.runs(limit=1) == []


async def test_runs_go_on_until_nothing_is_left(lab: Lab) -> None:
    using(lab, replace(EAGER, max_batches_per_run=6))
    topic = await lab.topic(3)
    await lab.fill(topic)
    async with lab.driver() as driver:
        report = await driver.run_until_idle()
    assert report.segments == 3
    assert report.waiting == {}
    assert len(await lab.control.pipeline.runs(limit=10)) == 4


async def test_a_run_is_in_the_history_with_its_report(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    await lab.run()
    [run] = await lab.control.pipeline.runs(limit=10)
    assert run.holder == "test"
    assert run.finished_ms is not None
    assert run.report["segments"] == 2
    assert run.report["failed"] == {}


async def test_compressed_and_encrypted_segments_are_finished_and_read(lab: Lab) -> None:
    keys = {"key": str(GOLDEN / "test-only-public.pem")}
    secret = {"key": str(GOLDEN / "test-only-private.pem")}
    remote = RemoteSettings(
        chunk_bytes=200,
        compression=True,
        encryption_key="key",
        public_keys=keys,
        private_keys=secret,
    )
    lab.settings = replace(lab.settings, remote=remote)
    topic = await lab.topic()
    for _ in range(2):
        await lab.fill(topic)
        assert (await lab.run()).segments == 2
    await lab.check(topic)


async def test_each_segment_knows_the_epochs_and_producers_up_to_its_end(lab: Lab) -> None:
    topic = await lab.topic(1, segment_bytes="400")
    for producer in (7, 8):
        await lab.write(topic, {0: [4]}, producer=producer)
        await lab.write(topic, {0: [4]})
    for producer in (9, 10):
        await lab.run()
        await lab.write(topic, {0: [4]}, producer=producer)
    segments = await lab.control.segments.chained(
        TopicPartition(topic.id, PartitionIndex(0)), limit=10
    )
    assert len(segments) > 2
    reader = lab.segment_reader()
    known = []
    for segment in segments:
        snapshot = await reader.index(segment, IndexKind.PRODUCER_SNAPSHOT)
        known.append([entry.producer_id for entry in decode_snapshot(snapshot)])
        epochs = await reader.index(segment, IndexKind.LEADER_EPOCH)
        assert decode_checkpoint(epochs) == [(0, 0)]
    await reader.close()
    assert known[0][0] == 7
    assert known[-1] == [7, 8, 9]
    assert known == sorted(known, key=len)


async def test_a_partition_that_starts_inside_a_row_is_converted(lab: Lab) -> None:
    topic = await lab.topic(1)
    await lab.fill(topic)
    await lab.delete_records(topic, 0, 5)
    report = await lab.run()
    assert (report.segments, report.failed) == (1, {})
    await lab.check(topic)


async def test_a_partition_that_is_too_large_for_a_run_is_converted_in_several(lab: Lab) -> None:
    using(lab, replace(PATIENT, max_batches_per_run=4, min_segment_bytes=500))
    topic = await lab.topic(1)
    await lab.fill(topic, blocks=10)
    ends = []
    for _ in range(3):
        await lab.run(kinds=MERGE)
        ends.append((await lab.state(topic, 0)).block_start)
    assert ends == [16, 32, 32], "the rest is too little for a segment"
    await lab.check(topic)


# Failures of one unit.
