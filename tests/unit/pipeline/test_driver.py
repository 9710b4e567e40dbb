"""The driver with a real control plane and store. Spark is replaced by the test's own process."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.pipeline.lab import (
    EAGER,
    MERGE,
    PATIENT,
    SPLIT,
    Crash,
    Interposed,
    Lab,
    LocalJobs,
    spoil,
)

from stratalog.control.model import Topic
from stratalog.control.open import open_control_plane, open_database
from stratalog.control.pipeline_model import ClaimWish, UnitKind
from stratalog.control.plane import CommitInDoubtError, ControlPlane, ControlUnavailableError
from stratalog.ids import Offset, PartitionIndex, TopicPartition
from stratalog.objects.faulty import Fault, FaultyStore
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.pipeline import workplace
from stratalog.pipeline.bins import Bin, BinFailed, BinOutcome
from stratalog.pipeline.cost import cost_of
from stratalog.pipeline.job_errors import JobFailedError
from stratalog.pipeline.open import PrivateStoreError
from stratalog.pipeline.tasks import MergeTask, Task
from stratalog.segment.epoch_checkpoint import decode_checkpoint
from stratalog.segment.errors import KeyMissingError
from stratalog.segment.model import IndexKind
from stratalog.segment.producer_snapshot import decode_snapshot
from stratalog.settings import HOUR_MS, RemoteSettings, TieringSettings
from stratalog.testing.clock import ManualClock

GOLDEN = Path(__file__).parents[2] / "golden"


def using(lab: Lab, tiering: TieringSettings) -> Lab:
    lab.settings = replace(lab.settings, tiering=tiering)
    return lab


async def expire_claims(lab: Lab) -> None:
    """As if the claims' time were over."""
    database = await open_database(lab.settings.storage.control)
    await database.write(lambda connection: connection.execute("UPDATE claims SET expires_ms = 0"))
    await database.close()


async def take_over(lab: Lab, topic: Topic, kind: UnitKind = UnitKind.MERGE) -> None:
    """Another run claims all partitions, and has done nothing yet."""
    await expire_claims(lab)
    run = await lab.control.begin_run("another")
    wishes = [
        ClaimWish(
            partition=TopicPartition(topic.id, PartitionIndex(index)),
            kind=kind,
            first_offset=Offset(0),
            end_offset=Offset(1),
        )
        for index in range(topic.partition_count)
    ]
    claims = await lab.control.claim_ranges(run.run_id, wishes, duration_ms=HOUR_MS, max_attempts=5)
    assert len(claims) == topic.partition_count


# What a run does.


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
    segments = await lab.control.segments(TopicPartition(topic.id, PartitionIndex(0)), limit=100)
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


async def test_a_paused_topic_is_left_alone_and_a_triggered_one_is_not_waited_for(
    lab: Lab,
) -> None:
    using(lab, replace(EAGER, age_ms=HOUR_MS))
    topic = await lab.topic()
    await lab.fill(topic)
    await lab.control.trigger_pipeline(topic.id)
    await lab.control.pause_pipeline(topic.id)
    assert (await lab.run()).segments == 0
    await lab.control.resume_pipeline(topic.id)
    assert (await lab.run()).segments == 2


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


async def test_a_plan_claims_and_changes_nothing(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    watched = Interposed(lab.control)
    async with lab.driver(control=watched.as_control()) as driver:
        plan = await driver.plan()
    assert sum(len(task.segments) for task in plan.tasks if isinstance(task, MergeTask)) == 2
    assert set(watched.calls) == {"topics", "aged_partitions", "partitions", "find_batches"}


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
    assert (cost.segments, cost.split_files) == (report.segments, report.split_files)
    assert cost.rows_removed == report.rows_removed
    assert cost.read_requests + cost.write_requests == report.requests
    assert cost.merged_partitions == report.merged_partitions
    assert cost.split_partitions == report.split_partitions


async def test_a_run_without_brokers_deletes_what_nobody_needs_any_more(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    async with lab.driver(clean=True) as driver:
        report = await driver.run()
    assert report.objects_deleted == 6
    assert await lab.keys("blocks/") == []
    await lab.check(topic)


async def test_to_clean_in_vain_does_not_fail_a_run(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    watched = Interposed(lab.control)
    watched.errors["marked_objects"] = ControlUnavailableError("made to fail")
    async with lab.driver(control=watched.as_control(), clean=True) as driver:
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
    assert await lab.control.runs(limit=1) == []


async def test_runs_go_on_until_nothing_is_left(lab: Lab) -> None:
    using(lab, replace(EAGER, max_batches_per_run=6))
    topic = await lab.topic(3)
    await lab.fill(topic)
    async with lab.driver() as driver:
        report = await driver.run_until_idle()
    assert report.segments == 3
    assert report.waiting == {}
    assert len(await lab.control.runs(limit=10)) == 4


async def test_a_run_is_in_the_history_with_its_report(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    await lab.run()
    [run] = await lab.control.runs(limit=10)
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
    segments = await lab.control.segments(TopicPartition(topic.id, PartitionIndex(0)), limit=10)
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


# What goes wrong with one unit.


async def test_a_corrupt_block_parks_its_partition_and_nothing_else(any_lab: Lab) -> None:
    lab = using(any_lab, replace(EAGER, max_attempts=2))
    topic = await lab.topic(3)
    await lab.fill(topic)
    bad = await lab.write(topic, {0: [2], 1: [2], 2: [2]})
    spoil(lab, bad, 1)
    report = await lab.run()
    assert report.segments == 2
    assert list(report.failed) == ["orders-1"]
    assert bad.commit.key in report.failed["orders-1"]
    assert report.parked == []
    assert (await lab.run()).parked == ["orders-1"]
    assert (await lab.run()).waiting == {"parked": 1}
    [status] = await lab.control.tier_status({topic.id: 0})
    assert [unit.partition.partition for unit in status.parked] == [1]
    assert bad.commit.key in status.parked[0].error


async def test_segments_before_a_corrupt_block_are_kept(lab: Lab) -> None:
    topic = await lab.topic(1, segment_bytes="400")
    await lab.fill(topic)
    spoil(lab, await lab.write(topic, {0: [1]}), 0)
    report = await lab.run()
    assert report.segments > 1
    assert list(report.failed) == ["orders-0"]
    assert (await lab.state(topic, 0)).block_start > 0


async def test_a_corrupt_block_costs_a_split_only_its_own_part(lab: Lab) -> None:
    using(lab, PATIENT)
    topic = await lab.topic(3)
    await lab.fill(topic)
    spoil(lab, await lab.write(topic, {0: [2], 1: [2], 2: [2]}), 1)
    report = await lab.run()
    assert report.split_partitions == 2
    assert list(report.failed) == ["orders-1"]
    assert [await lab.rows(topic, p) for p in range(3)] == [1, 7, 1]


class Down:
    """Answers 503 to every read of a block, once all retries are used up."""

    def next(self, operation: str, key: str) -> Fault | None:
        return Fault.UNAVAILABLE if operation == "get_ranges" else None


async def test_a_store_that_does_not_answer_parks_nobody(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    using(lab, replace(EAGER, max_attempts=1))
    topic = await lab.topic()
    await lab.fill(topic)

    def open_faulty(url: str, *args: object, **rest: object) -> ObjectStore:
        inner = open_store(url, *args, **rest)  # type: ignore[arg-type]
        return FaultyStore(inner, Down(), clock=ManualClock())

    with monkeypatch.context() as broken:
        broken.setattr(workplace, "open_store", open_faulty)
        report = await lab.run()
    assert (report.segments, report.parked) == (0, [])
    assert set(report.failed) == {"orders-0", "orders-1"}
    assert (await lab.run()).segments == 2
    await lab.check_clean()
    await lab.check(topic)


@pytest.mark.parametrize("method", ["add_segment", "finish_segment", "chain_segment", "epochs"])
async def test_a_control_plane_that_fails_once_parks_nobody(lab: Lab, method: str) -> None:
    using(lab, replace(EAGER, max_attempts=1))
    topic = await lab.topic()
    await lab.fill(topic)
    watched = Interposed(lab.control)
    watched.errors[method] = ControlUnavailableError("made to fail")
    report = await lab.run(control=watched.as_control())
    assert report.parked == []
    assert await lab.control.unchained_segments(older_than_ms=0, limit=10) == []
    await lab.run()
    assert [await lab.segments(topic, p) for p in range(2)] == [[(0, 24)]] * 2
    await lab.check_clean()
    await lab.check(topic)


@pytest.mark.parametrize("method", ["chain_segment", "commit_split"])
async def test_doubt_about_a_commit_is_settled_by_repeating_it(lab: Lab, method: str) -> None:
    using(lab, EAGER if method == "chain_segment" else PATIENT)
    topic = await lab.topic()
    await lab.fill(topic)
    doubtful = InDoubt(lab.control, method)
    report = await lab.run(control=doubtful.as_control())
    assert report.failed == {}
    assert report.segments + report.split_partitions == 2
    await lab.check_clean()
    await lab.check(topic)


class InDoubt(Interposed):
    """The answer to one call is lost, after it has taken effect."""

    def __init__(self, inner: ControlPlane, method: str) -> None:
        super().__init__(inner)
        self._method = method

    def __getattr__(self, name: str) -> object:
        call = super().__getattr__(name)
        if name != self._method:
            return call

        async def lossy(*args: object, **rest: object) -> object:
            self._method = ""
            await call(*args, **rest)  # type: ignore[operator]
            raise CommitInDoubtError("made to lose its answer")

        return lossy


# What goes wrong with Spark.


class Failing:
    """Bins with the task of a certain partition fail as a whole."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def __call__(self, work: Bin) -> BinOutcome | None:
        for task in work.tasks:
            segments = task.segments if isinstance(task, MergeTask) else ()
            if any(segment.partition == self._partition for segment in segments):
                return BinFailed(work=work, error=JobFailedError("the worker died"))
        return None


async def test_a_task_that_kills_its_bin_costs_only_its_own_units(lab: Lab) -> None:
    using(lab, replace(EAGER, task_bytes=1, max_attempts=1))
    topic = await lab.topic(6)
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.fail = Failing(1)
    report = await lab.run(jobs)
    assert report.segments == 5
    assert report.parked == ["orders-1"]
    assert report.failed["orders-1"] == "the worker died"


async def test_nobody_is_to_blame_if_all_bins_fail(lab: Lab) -> None:
    using(lab, replace(EAGER, max_attempts=1))
    topic = await lab.topic(2)
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.fail = lambda work: BinFailed(work=work, error=JobFailedError("no executors"))
    report = await lab.run(jobs)
    assert (report.parked, set(report.failed)) == ([], {"orders-0", "orders-1"})
    assert len(jobs.bins) == 1, "to repeat it would be in vain"
    assert (await lab.run()).segments == 2


async def test_claims_are_given_back_if_spark_does_not_start(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)

    class NoSpark(LocalJobs):
        def open(self) -> AsyncIterator[LocalJobs]:  # type: ignore[override]
            raise JobFailedError("no Java")

    with pytest.raises(JobFailedError):
        await lab.run(NoSpark(lab.jobs().workplace))
    [run] = await lab.control.runs(limit=1)
    assert run.finished_ms is None
    assert (await lab.run()).segments == 2


# Others at work at the same time.


async def test_a_claim_that_another_run_took_over_commits_nothing(any_lab: Lab) -> None:
    lab = any_lab
    topic = await lab.topic()
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.after = lambda task: take_over(lab, topic)
    report = await using(lab, replace(EAGER, task_bytes=1 << 20)).run(jobs)
    assert (report.segments, report.overtaken, report.failed) == (0, 2, {})
    assert await lab.rows(topic, 0) == 6
    await expire_claims(lab)
    assert (await lab.run()).segments == 2
    await lab.check_clean()
    await lab.check(topic)


async def test_a_split_under_a_lost_claim_swaps_nothing(any_lab: Lab) -> None:
    lab = using(any_lab, PATIENT)
    topic = await lab.topic()
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.after = lambda task: take_over(lab, topic)
    report = await lab.run(jobs)
    assert (report.split_files, report.overtaken) == (0, 2)
    assert await lab.rows(topic, 0) == 6
    await lab.check(topic)


async def test_an_owner_that_wakes_up_late_finds_its_work_done(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    jobs = lab.jobs()

    async def be_late(_: Task) -> None:
        await expire_claims(lab)
        assert (await lab.run()).segments == 2

    jobs.after = be_late
    report = await using(lab, replace(EAGER, task_bytes=1 << 20)).run(jobs)
    assert (report.segments, report.overtaken) == (0, 2)
    assert await lab.segments(topic, 0) == [(0, 24)]
    await lab.check_clean()
    await lab.check(topic)


async def test_two_drivers_share_the_work_and_do_nothing_twice(any_lab: Lab) -> None:
    lab = using(any_lab, replace(EAGER, task_bytes=1))
    topic = await lab.topic(8)
    await lab.fill(topic)
    other = await open_control_plane(lab.settings.storage.control)
    reports = await asyncio.gather(lab.run(), lab.run(control=other))
    await other.close()
    assert sum(report.segments for report in reports) == 8
    assert all(report.failed == {} for report in reports)
    assert [await lab.segments(topic, p) for p in range(8)] == [[(0, 24)]] * 8
    await lab.check_clean()
    await lab.check(topic)


async def test_a_range_that_was_converted_after_the_look_is_nobodys_failure(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    slow = Interposed(lab.control)

    async def look_then_wait(ages_ms: object) -> object:
        found = await lab.control.aged_partitions(ages_ms)  # type: ignore[arg-type]
        await lab.run()
        return found

    slow.aged_partitions = look_then_wait  # type: ignore[attr-defined]
    report = await lab.run(control=slow.as_control())
    assert (report.segments, report.failed, report.overtaken) == (0, {}, 2)
    await lab.check(topic)


async def test_a_range_that_was_split_after_the_look_is_cut_at_its_rows(lab: Lab) -> None:
    """Another run has seen more rows, and one of its new rows reaches beyond our claim."""
    using(lab, PATIENT)
    topic = await lab.topic(1)
    await lab.fill(topic)
    slow = Interposed(lab.control)

    async def look_then_wait(ages_ms: object) -> object:
        found = await lab.control.aged_partitions(ages_ms)  # type: ignore[arg-type]
        await lab.fill(topic)
        await lab.run()
        return found

    slow.aged_partitions = look_then_wait  # type: ignore[attr-defined]
    report = await lab.run(control=slow.as_control())
    assert report.failed == {}
    await lab.check(topic)


async def test_claims_are_renewed_while_work_goes_on(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    clock, watched = ManualClock(), Interposed(lab.control)
    jobs = lab.jobs()
    jobs.before = lambda task: clock.advance(EAGER.splitter_claim_duration_ms / 1000)
    async with lab.driver(jobs, control=watched.as_control(), clock=clock) as driver:
        report = await driver.run()
    assert report.segments == 2
    assert watched.calls.count("renew_claims") >= 2


async def test_a_unit_whose_claim_is_not_renewed_is_dropped(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    clock, watched = ManualClock(), Interposed(lab.control)
    jobs = lab.jobs()

    async def lose_claims(_: Task) -> None:
        await expire_claims(lab)
        await clock.advance(EAGER.splitter_claim_duration_ms / 1000)
        await watched.answered["renew_claims"].wait()

    jobs.after = lose_claims
    async with lab.driver(jobs, control=watched.as_control(), clock=clock) as driver:
        report = await driver.run()
    assert (report.segments, report.overtaken) == (0, 2)
    assert "add_segment" not in watched.calls


# Deletions in the middle.


@pytest.mark.parametrize("tiering", [EAGER, PATIENT])
@pytest.mark.parametrize("offset", [1, 6, 23, 24])
async def test_records_deleted_in_mid_run_never_come_back(
    any_lab: Lab, tiering: TieringSettings, offset: int
) -> None:
    lab = using(any_lab, replace(tiering, task_bytes=1 << 20))
    topic = await lab.topic()
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.after = lambda task: lab.delete_records(topic, 0, offset)
    report = await lab.run(jobs)
    assert report.failed == {}
    await lab.check(topic)
    await lab.run()
    await lab.check_clean()
    await lab.check(topic)


async def test_what_is_left_after_a_deletion_in_mid_merge_is_chained(lab: Lab) -> None:
    topic = await lab.topic(1, segment_bytes="400")
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.after = lambda task: lab.delete_records(topic, 0, 14)
    report = await using(lab, replace(EAGER, task_bytes=1 << 20)).run(jobs)
    assert report.segments > 0
    segments = await lab.segments(topic, 0)
    assert segments[0][0] <= 14 < segments[0][1]
    assert segments[-1][1] == 24
    await lab.check_clean()
    await lab.check(topic)


@pytest.mark.parametrize("tiering", [EAGER, PATIENT])
async def test_a_topic_deleted_in_mid_run_stays_deleted(
    any_lab: Lab, tiering: TieringSettings
) -> None:
    lab = using(any_lab, replace(tiering, task_bytes=1 << 20))
    topic = await lab.topic()
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.after = lambda task: lab.control.delete_topic(topic.id)
    report = await lab.run(jobs)
    assert (report.segments, report.split_files, report.failed) == (0, 0, {})
    await lab.check_clean()
    assert await lab.keys() == []


# Crashes.

_STEPS = [
    "begin_run",
    "aged_partitions",
    "claim_ranges",
    "find_batches",
    "add_segment",
    "epochs",
    "finish_segment",
    "chain_segment",
    "release_claims",
    "save_run",
]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", _STEPS)
@pytest.mark.parametrize("janitor_first", [False, True])
async def test_a_killed_merge_is_finished_by_the_next_run_and_leaves_nothing(
    lab: Lab, step: str, when: str, janitor_first: bool
) -> None:
    topic = await lab.topic(2, segment_bytes="500")
    await lab.fill(topic)
    dying = Interposed(lab.control)
    dying.crash_at = (step, when)
    with pytest.raises(Crash):
        await lab.run(control=dying.as_control())
    await lab.check(topic)
    await expire_claims(lab)
    if janitor_first:
        await lab.check_clean()
        await lab.check(topic)
    report = await lab.run()
    assert report.failed == {}
    assert [(await lab.state(topic, p)).block_start for p in range(2)] == [24, 24]
    await lab.check_clean()
    await lab.check(topic)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["claim_ranges", "commit_split", "release_claims"])
async def test_a_killed_split_is_finished_by_the_next_run_and_leaves_nothing(
    lab: Lab, step: str, when: str
) -> None:
    using(lab, PATIENT)
    topic = await lab.topic(2)
    await lab.fill(topic)
    dying = Interposed(lab.control)
    dying.crash_at = (step, when)
    with pytest.raises(Crash):
        await lab.run(control=dying.as_control())
    await lab.check(topic)
    await expire_claims(lab)
    await lab.run()
    assert [await lab.rows(topic, p) for p in range(2)] == [1, 1]
    await lab.check_clean()
    assert len(await lab.keys()) == 1
    await lab.check(topic)


async def test_a_log_that_was_swept_before_its_segment_was_added_is_given_up(lab: Lab) -> None:
    topic = await lab.topic(1)
    await lab.fill(topic)
    jobs = lab.jobs()

    async def sweep(_: Task) -> None:
        await lab.clean()

    jobs.after = sweep
    report = await lab.run(jobs)
    assert (report.segments, report.overtaken, report.failed) == (0, 1, {})
    await lab.check(topic)
    assert (await lab.run()).segments == 1
    await lab.check_clean()
    await lab.check(topic)


# Dead weight.


async def test_what_a_paused_topic_keeps_in_mostly_dead_blocks_is_moved_together(
    lab: Lab,
) -> None:
    kept, gone = await lab.topic(1), await lab.topic(1, "gone")
    for _ in range(3):
        await lab.write_both([(kept, {0: [1]}), (gone, {0: [40]})])
    await lab.control.pause_pipeline(kept.id)
    await lab.run()
    await lab.check_clean()
    assert len(await lab.keys("blocks/")) == 0
    assert len(await lab.keys("splits/")) == 1
    await lab.check(kept)
    await lab.check(gone)
