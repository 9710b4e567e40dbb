"""Restore drills: a control plane is lost, and comes back from a backup and the store."""

import json
from pathlib import Path

import pytest
from tests.integration.backup.drill import (
    DrillWriter,
    back_up,
    lab_on,
    opened_database,
    restore,
    silent,
    stores_of,
    tier_of,
)
from tests.unit.pipeline.lab import MERGE, SPLIT, Lab

from stratalog.backup.restore import rebuild_control_plane
from stratalog.checks.fsck import run_fsck
from stratalog.control.plane import ControlPlane
from stratalog.ids import NO_PRODUCER, system_entropy
from stratalog.opening.claim import claim_store
from stratalog.opening.errors import ControlPlaneBehindError, RecoveryUnfinishedError
from stratalog.opening.recovered import check_recovered
from stratalog.recovery.errors import UnprovenOffsetsError
from stratalog.segment.keys import MANIFEST_SUFFIX


async def assert_sound(lab: Lab) -> None:
    report = await run_fsck(lab.control, lab.store, deep=True, tier=tier_of(lab))
    damage = [str(each) for each in report.findings if each.problem.severity == "damage"]
    assert damage == []


async def test_nothing_is_lost_when_the_pipeline_has_replaced_all_that_a_backup_names(
    tmp_path: Path, control_url: str, restored_url: str
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        topic = await lab.topic()
        writer = DrillWriter(lab)
        for _ in range(5):
            await writer.write(topic, {0: [3, 1], 1: [2]})
        manifest = await back_up(lab)
        await lab.run(kinds=SPLIT)
        await writer.write(topic, {0: [1], 1: [1]})
        await lab.run(kinds=MERGE)
        # The window of backups is 0 here: the blocks that the backup names are gone.
        await lab.clean()
        for _ in range(3):
            await writer.write(topic, {0: [2], 1: [1]}, producer=NO_PRODUCER)
        report = await restore(lab, manifest, restored_url)
        assert not report.unproven
        async with lab_on(restored_url, lab) as after:
            await after.check(topic)
            await assert_sound(after)


async def test_a_restored_cluster_is_written_and_converted_again(
    tmp_path: Path, control_url: str, restored_url: str
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        topic = await lab.topic()
        writer = DrillWriter(lab)
        await writer.write(topic, {0: [3], 1: [2]}, producer=7)
        manifest = await back_up(lab)
        await writer.write(topic, {0: [4, 1]})
        await writer.write(topic, {1: [2]})
        await lab.delete_records(topic, 0, 2)
        await restore(lab, manifest, restored_url)
        async with lab_on(restored_url, lab) as after:
            # A delete after the backup is not known any more.
            after.deleted.clear()
            await after.check(topic)
            again = DrillWriter(after)
            await again.write(topic, {0: [2], 1: [1]})
            await after.run()
            await after.check(topic)
            await assert_sound(after)


async def test_records_that_were_deleted_before_the_backup_do_not_come_back(
    tmp_path: Path, control_url: str, restored_url: str
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        topic = await lab.topic()
        writer = DrillWriter(lab)
        for _ in range(4):
            await writer.write(topic, {0: [3], 1: [2]})
        await lab.delete_records(topic, 0, 5)
        manifest = await back_up(lab)
        await writer.write(topic, {0: [3], 1: [2]})
        await lab.run()
        await restore(lab, manifest, restored_url)
        async with lab_on(restored_url, lab) as after:
            await after.check(topic)
            await assert_sound(after)


async def test_a_topic_that_was_made_after_the_backup_is_made_again_from_the_store(
    tmp_path: Path,
) -> None:
    async with Lab.open(tmp_path) as lab:
        await lab.topic(name="old")
        manifest = await back_up(lab)
        topic = await lab.topic(name="young", partitions=2)
        writer = DrillWriter(lab)
        await writer.write(topic, {0: [3], 1: [2]})
        await writer.write(topic, {0: [1], 1: [1]})
        report = await restore(lab, manifest, f"sqlite:{tmp_path / 'restored.db'}")
        assert report.new_topics == ["young"]
        async with lab_on(f"sqlite:{tmp_path / 'restored.db'}", lab) as after:
            assert {each.name: each.id for each in await after.control.topics.all()}[
                "young"
            ] == topic.id
            await after.check(topic)


async def test_a_block_that_was_never_committed_does_not_become_a_part_of_the_log(
    tmp_path: Path,
) -> None:
    url = f"sqlite:{tmp_path / 'restored.db'}"
    async with Lab.open(tmp_path) as lab:
        topic = await lab.topic(partitions=1)
        writer = DrillWriter(lab)
        await writer.upload(topic, {0: [7]})
        await writer.write(topic, {0: [3]})
        manifest = await back_up(lab)
        await writer.write(topic, {0: [2]})
        await restore(lab, manifest, url)
        async with lab_on(url, lab) as after:
            await after.check(topic)


async def test_the_last_blocks_of_two_writers_are_skipped_only_if_that_is_wanted(
    tmp_path: Path, control_url: str, restored_url: str
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        topic = await lab.topic(partitions=1)
        manifest = await back_up(lab)
        await DrillWriter(lab).write(topic, {0: [3]})
        await DrillWriter(lab).write(topic, {0: [2]})
        with pytest.raises(UnprovenOffsetsError, match="orders-0 offsets 0 to 4"):
            await restore(lab, manifest, restored_url)
        async with opened_database(restored_url) as database:
            with pytest.raises(RecoveryUnfinishedError):
                await check_recovered(ControlPlane(database, system_entropy))
        report = await restore(lab, manifest, restored_url, skip_unproven=True)
        assert len(report.kept) == 2
        async with lab_on(restored_url, lab) as after:
            await check_recovered(after.control)
            state = await after.state(topic, 0)
            assert state.high_watermark == 5
            [lost] = await after.control.lost.of_topic(topic.id)
            assert (lost.first_offset, lost.end_offset) == (0, 5)
            # Readers go on behind the range, and the log after it.
            await assert_sound(after)
            row, *_ = await after.control.log.all_coordinates(state.topic_partition, limit=10)
            assert (row.base_offset, row.last_offset) == (0, 4)
            # The objects stay, whatever the janitor does.
            await after.clean()
            assert set(report.kept) <= set(await after.keys("blocks/"))


async def test_producers_and_generations_go_on_above_all_that_was_given_out(
    tmp_path: Path, control_url: str, restored_url: str
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        manifest = await back_up(lab)
        given = await lab.control.log.allocate_producer_ids(1)
        for _ in range(3):
            await claim_store(lab.control, lab.store)
        await restore(lab, manifest, restored_url)
        async with lab_on(restored_url, lab) as after:
            assert await after.control.log.allocate_producer_ids(1) > given
            await claim_store(after.control, after.store)
            with pytest.raises(ControlPlaneBehindError):
                await claim_store(lab.control, lab.store)


async def test_a_producer_whose_newer_records_were_not_read_may_go_on(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'restored.db'}"
    async with Lab.open(tmp_path) as lab:
        topic = await lab.topic(partitions=1)
        writer = DrillWriter(lab)
        await writer.write(topic, {0: [3]}, producer=7)
        manifest = await back_up(lab)
        await writer.write(topic, {0: [2]}, producer=8)
        await restore(lab, manifest, url)
        async with lab_on(url, lab) as after:
            found = await after.control.log.active_producers(
                [(await after.state(topic, 0)).topic_partition]
            )
            [producers] = found.values()
            assert [each.producer_id for each in producers] == [7, 8]


@pytest.mark.parametrize("has_segments", [True, False])
async def test_a_control_plane_is_rebuilt_from_the_store_alone(
    tmp_path: Path, control_url: str, restored_url: str, has_segments: bool
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        topic = await lab.topic()
        writer = DrillWriter(lab)
        for _ in range(6):
            await writer.write(topic, {0: [3, 1], 1: [2]})
        if has_segments:
            await lab.run(kinds=SPLIT)
            await lab.run(kinds=MERGE)
            await lab.clean()
        for _ in range(3):
            await writer.write(topic, {0: [1], 1: [2, 2]})
        cluster = await lab.control.identity.cluster()
        async with opened_database(restored_url) as database:
            report = await rebuild_control_plane(
                database, stores_of(lab), skip_unproven=False, progress=silent
            )
        assert report.new_topics == ["orders"]
        async with lab_on(restored_url, lab) as after:
            assert (await after.control.identity.cluster()).cluster_id == cluster.cluster_id
            await after.check(topic)
            await assert_sound(after)
            await DrillWriter(after).write(topic, {0: [1]})
            await after.run()
            await after.check(topic)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("segmentLeaderEpochs", {"0": None}),
        ("segmentLeaderEpochs", {"zero": 0}),
        ("endOffset", 1 << 70),
        ("maxTimestampMs", 1 << 70),
    ],
)
async def test_a_segment_that_nobody_can_describe_does_not_end_a_rebuild(
    tmp_path: Path, field: str, value: object
) -> None:
    async with Lab.open(tmp_path) as lab:
        topic = await lab.topic()
        await DrillWriter(lab).write(topic, {0: [3, 1], 1: [2]})
        await lab.run(kinds=MERGE)
        [changed, *_] = [
            info.key async for info in lab.store.list("") if info.key.endswith(MANIFEST_SUFFIX)
        ]
        manifest = json.loads(bytes((await lab.store.get(changed)).data))
        manifest["remoteLogSegmentMetadata"][field] = value
        await lab.store.put(changed, [json.dumps(manifest).encode()])
        async with opened_database(f"sqlite:{tmp_path / 'restored.db'}") as database:
            report = await rebuild_control_plane(
                database, stores_of(lab), skip_unproven=True, progress=silent
            )
        assert [text for text in report.unreadable if text.startswith(changed)]


async def test_a_rebuild_takes_the_newest_backup_for_its_ground(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'restored.db'}"
    async with Lab.open(tmp_path) as lab:
        topic = await lab.topic(retention_ms="1000")
        writer = DrillWriter(lab)
        await writer.write(topic, {0: [3], 1: [2]})
        manifest = await back_up(lab)
        await writer.write(topic, {0: [3], 1: [2]})
        async with opened_database(url) as database:
            report = await rebuild_control_plane(
                database, stores_of(lab), skip_unproven=False, progress=silent
            )
        assert manifest.name in report.remarks[0]
        assert "Deletions after it are repeated" in report.remarks[1]
        assert all(partition.inferred for partition in report.partitions)
        assert "whose producer got an error" in report.remarks[2]
        async with lab_on(url, lab) as after:
            await after.check(topic)
            [restored] = await after.control.topics.all()
            assert restored.configs == {"retention.ms": "1000"}


class CrashError(Exception):
    """The end of a process at a step of a restore."""


@pytest.mark.parametrize("step", ["migrate", "load", "apply", "accept", "claim", "finish"])
async def test_a_restore_that_was_cut_off_at_any_step_is_run_again(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:{tmp_path / 'restored.db'}"
    places = {
        "migrate": "stratalog.control.recoveries.load.load_table",
        "load": "stratalog.backup.restore._complete",
        "apply": "stratalog.control.recoveries.ledger.mark_unreferenced",
        "accept": "stratalog.control.identity.ledger.IdentityLedger.accept",
        "claim": "stratalog.recovery.completion.claim_anew",
        "finish": "stratalog.control.recoveries.ledger.RecoveriesLedger.finish",
    }

    async def crash(*_: object, **__: object) -> None:
        raise CrashError

    async with Lab.open(tmp_path) as lab:
        topic = await lab.topic()
        writer = DrillWriter(lab)
        await writer.write(topic, {0: [3], 1: [2]})
        manifest = await back_up(lab)
        await lab.run()
        await writer.write(topic, {0: [1], 1: [2]})
        with monkeypatch.context() as patched:
            patched.setattr(places[step], crash)
            with pytest.raises(CrashError):
                await restore(lab, manifest, url)
        await restore(lab, manifest, url)
        async with lab_on(url, lab) as after:
            await check_recovered(after.control)
            await claim_store(after.control, after.store)
            await after.check(topic)
            await assert_sound(after)
