"""Deletions after a backup: the store has notes of them, and a recovery repeats them."""

from pathlib import Path

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

from stratalog.backup.manifest import BackupManifest
from stratalog.backup.restore import preview_restore, rebuild_control_plane
from stratalog.checks.fsck import run_fsck
from stratalog.clock import SystemClock
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, PartitionIndex, TopicPartition, kafka_base64
from stratalog.recovery.deletion_notes import DeletionNotes
from stratalog.recovery.report import RecoveryReport


def notes_in(lab: Lab) -> DeletionNotes:
    return DeletionNotes(lab.store, clock=SystemClock())


async def delete_records(lab: Lab, topic: Topic, partition: int, before: int) -> None:
    """Delete as a broker does, with a note."""
    await lab.delete_records(topic, partition, before)
    key = TopicPartition(topic.id, PartitionIndex(partition))
    await notes_in(lab).records_deleted({key: Offset(before)})


async def delete_topic(lab: Lab, topic: Topic) -> None:
    await lab.control.topics.delete(topic.id)
    await notes_in(lab).topics_deleted([topic.id])


async def rebuild(lab: Lab, url: str) -> RecoveryReport:
    async with opened_database(url) as database:
        return await rebuild_control_plane(
            database, stores_of(lab), skip_unproven=False, progress=silent
        )


async def recover(lab: Lab, manifest: BackupManifest | None, url: str) -> RecoveryReport:
    return await (rebuild(lab, url) if manifest is None else restore(lab, manifest, url))


async def assert_sound(lab: Lab) -> None:
    report = await run_fsck(lab.control, lab.store, deep=True, tier=tier_of(lab))
    assert [str(each) for each in report.findings if each.problem.severity == "damage"] == []


async def names(lab: Lab) -> dict[str, object]:
    return {topic.name: topic.id for topic in await lab.control.topics.all()}


async def test_the_whole_drill_loses_nothing_and_brings_nothing_back(
    tmp_path: Path, control_url: str, restored_url: str
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        kept, dropped = await lab.topic(name="kept"), await lab.topic(name="dropped")
        writer = DrillWriter(lab)
        for _ in range(4):
            await writer.write(kept, {0: [3, 1], 1: [2]})
            await writer.write(dropped, {0: [1], 1: [1]})
        manifest = await back_up(lab)
        await lab.run(kinds=SPLIT)
        await lab.run(kinds=MERGE)
        await delete_records(lab, kept, 0, 7)
        await delete_topic(lab, dropped)
        for _ in range(3):
            await writer.write(kept, {0: [2], 1: [1, 1]})
        await lab.delete_records(kept, 1, 3)  # The broker dies before the note.
        report = await restore(lab, manifest, restored_url)
        assert report.deleted_records == [("kept-0", 7)]
        assert report.deleted_topics == ["dropped"]
        async with lab_on(restored_url, lab) as after:
            after.deleted.pop(TopicPartition(kept.id, PartitionIndex(1)))
            await after.check(kept)
            await assert_sound(after)
            assert await names(after) == {"kept": kept.id}
            [deleted] = await after.control.topics.deleted()
            await after.control.topics.undelete(deleted.id, "dropped")
            await after.check(dropped)


async def test_a_rebuild_from_the_bucket_alone_repeats_deletions(
    tmp_path: Path, control_url: str, restored_url: str
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        kept, dropped = await lab.topic(name="kept"), await lab.topic(name="dropped")
        writer = DrillWriter(lab)
        for _ in range(3):
            await writer.write(kept, {0: [3, 1], 1: [2]})
            await writer.write(dropped, {0: [1], 1: [1]})
        await delete_records(lab, kept, 0, 5)
        await delete_topic(lab, dropped)
        await rebuild(lab, restored_url)
        async with lab_on(restored_url, lab) as after:
            await after.check(kept)
            await assert_sound(after)
            assert await names(after) == {"kept": kept.id}


async def test_no_offset_is_given_again_where_all_newer_records_were_deleted(
    tmp_path: Path, control_url: str, restored_url: str
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        topic = await lab.topic(partitions=1)
        writer = DrillWriter(lab)
        await writer.write(topic, {0: [3]})
        manifest = await back_up(lab)
        await writer.write(topic, {0: [4]})
        await delete_records(lab, topic, 0, 7)
        # The window of backups is 0 here: no object tells of the offsets from 3 on.
        await lab.clean()
        assert await lab.keys("blocks/") == []
        report = await restore(lab, manifest, restored_url)
        assert not report.unproven
        async with lab_on(restored_url, lab) as after:
            await after.check(topic)
            await DrillWriter(after).write(topic, {0: [2]})
            await after.check(topic)
            await assert_sound(after)


async def test_a_topic_that_was_deleted_and_made_anew_keeps_its_name(
    tmp_path: Path, control_url: str, restored_url: str
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        old = await lab.topic(partitions=1)
        writer = DrillWriter(lab)
        await writer.write(old, {0: [3]})
        manifest = await back_up(lab)
        await lab.control.topics.delete(old.id)  # By a version without notes.
        new = await lab.topic(partitions=1)
        await writer.write(new, {0: [2]})
        await writer.write(new, {0: [1]})
        report = await restore(lab, manifest, restored_url)
        assert report.new_topics == ["orders"]
        async with lab_on(restored_url, lab) as after:
            other = f"orders.{kafka_base64(old.id)}"
            assert await names(after) == {"orders": new.id, other: old.id}
            await after.check(new)
            await after.check(old)


async def test_a_rebuild_gives_the_name_of_a_deleted_topic_to_the_one_that_was_made_anew(
    tmp_path: Path,
) -> None:
    url = f"sqlite:{tmp_path / 'restored.db'}"
    async with Lab.open(tmp_path) as lab:
        old = await lab.topic(partitions=1)
        writer = DrillWriter(lab)
        await writer.write(old, {0: [3]})
        await delete_topic(lab, old)
        new = await lab.topic(partitions=1)
        await writer.write(new, {0: [2]})
        await rebuild(lab, url)
        async with lab_on(url, lab) as after:
            assert await names(after) == {"orders": new.id}
            await after.check(new)


async def test_an_undeleted_topic_stays(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'restored.db'}"
    async with Lab.open(tmp_path) as lab:
        topic = await lab.topic(partitions=1)
        await DrillWriter(lab).write(topic, {0: [3]})
        manifest = await back_up(lab)
        await delete_topic(lab, topic)
        await lab.control.topics.undelete(topic.id, "orders")
        await notes_in(lab).topic_undeleted(topic.id)
        report = await restore(lab, manifest, url)
        assert report.deleted_topics == []
        async with lab_on(url, lab) as after:
            await after.check(topic)


async def test_a_preview_tells_the_deletions_and_a_damaged_note(tmp_path: Path) -> None:
    async with Lab.open(tmp_path) as lab:
        topic = await lab.topic(partitions=1)
        await DrillWriter(lab).write(topic, {0: [3]})
        manifest = await back_up(lab)
        await delete_records(lab, topic, 0, 2)
        await lab.store.put("deletions/damaged", [b"{"])
        report = await preview_restore(manifest, lab.store, stores_of(lab), progress=silent)
        lines = "\n".join(report.lines())
        assert "orders-0: records before offset 2 are deleted again" in lines
        assert "deletions/damaged" in lines
        assert report.as_dict()["deleted_records"] == [["orders-0", 2]]


async def test_a_repeated_recovery_repeats_no_deletion(tmp_path: Path) -> None:
    first, second = (f"sqlite:{tmp_path / name}.db" for name in ("first", "second"))
    async with Lab.open(tmp_path) as lab:
        topic = await lab.topic(partitions=1)
        await DrillWriter(lab).write(topic, {0: [3]})
        await delete_records(lab, topic, 0, 2)
        manifest = await back_up(lab)
        for url in (first, second):
            report = await recover(lab, manifest, url)
            assert list(report.deleted_records) == []
