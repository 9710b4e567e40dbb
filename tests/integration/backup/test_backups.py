"""Backups of a control plane: made, listed, pruned, verified, and loaded into either database."""

from pathlib import Path

import pytest
from tests.integration.backup.drill import back_up, contents, opened_database, silent, tier_of
from tests.unit.pipeline.lab import MERGE, SPLIT, Lab

from stratalog.backup.catalog import find_backup, list_backups, prune_backups
from stratalog.backup.errors import BackupDamagedError, NoBackupError, NotEmptyError
from stratalog.backup.load import load_backup
from stratalog.backup.verify import CheckedStores, verify_backup
from stratalog.checks.report import Report
from stratalog.control.log.model import Coordinates
from stratalog.control.topics.model import Topic
from stratalog.ids import TopicPartition
from stratalog.settings import DAY_MS


async def verified(lab: Lab, *, deep: bool = False) -> Report:
    checked = CheckedStores(objects=lab.store, tier=tier_of(lab))
    manifest = await find_backup(lab.store, None)
    return await verify_backup(manifest, lab.store, checked, deep=deep, progress=silent)


async def first_row(lab: Lab, topic: Topic) -> Coordinates:
    key = TopicPartition(topic.id, (await lab.state(topic, 0)).partition)
    [row, *_] = await lab.control.log.all_coordinates(key, limit=1)
    return row


async def test_a_backup_fills_a_database_of_the_other_kind_with_the_same_rows(
    tmp_path: Path, control_url: str, restored_url: str
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        topic = await lab.topic(cleanup_policy="delete")
        await lab.fill(topic)
        await lab.run(kinds=SPLIT)
        await lab.write(topic, {0: [2]}, producer=7)
        await lab.run(kinds=MERGE)
        await lab.write(topic, {0: [2], 1: [1]}, producer=8)
        manifest = await back_up(lab)
        before = await contents(lab.control.database)
        await lab.write(topic, {0: [5]})
        async with opened_database(restored_url) as database:
            await load_backup(manifest, lab.store, database, progress=silent)
            after = await contents(database)
            assert len(after.pop("recoveries")) == 1
            assert before.pop("recoveries") == []
            # Text and numbers are in the order of keys in either database; ids are, too.
            assert after == before


async def test_a_backup_is_loaded_into_an_empty_database_only(
    tmp_path: Path, control_url: str
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        manifest = await back_up(lab)
        with pytest.raises(NotEmptyError, match="holds a cluster"):
            await load_backup(manifest, lab.store, lab.control.database, progress=silent)


async def test_a_load_that_is_repeated_changes_nothing(
    tmp_path: Path, control_url: str, restored_url: str
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        await lab.fill(await lab.topic())
        manifest = await back_up(lab)
        async with opened_database(restored_url) as database:
            await load_backup(manifest, lab.store, database, progress=silent)
            before = await contents(database)
            await load_backup(manifest, lab.store, database, progress=silent)
            assert await contents(database) == before


async def test_backups_are_listed_and_the_oldest_are_pruned(tmp_path: Path) -> None:
    async with Lab.open(tmp_path) as lab:
        names = [(await back_up(lab)).name for _ in range(3)]
        listed = await list_backups(lab.store)
        assert {each.name for each in listed} == set(names)
        assert listed[0].restorable_until_ms(2 * DAY_MS) == listed[0].created_ms + DAY_MS
        cluster_id = listed[0].cluster_id
        gone = await prune_backups(lab.store, cluster_id, keep=1, now_ms=listed[-1].created_ms)
        assert [each.name for each in gone] == [each.name for each in listed[:2]]
        assert [each.name for each in await list_backups(lab.store)] == [listed[2].name]
        with pytest.raises(NoBackupError):
            await find_backup(lab.store, listed[0].name)


async def test_pruning_removes_the_remains_of_a_backup_that_was_cut_off(tmp_path: Path) -> None:
    async with Lab.open(tmp_path) as lab:
        manifest = await back_up(lab)
        await lab.store.put("backups/cut-off/topics.jsonl.zst", [b"rows"])
        for age_ms, remain in ((0, 1), (2 * DAY_MS, 0)):
            now_ms = manifest.created_ms + age_ms
            await prune_backups(lab.store, manifest.cluster_id, keep=1, now_ms=now_ms)
            assert len(await lab.keys("backups/cut-off/")) == remain
        assert len(await list_backups(lab.store)) == 1


async def test_a_backup_verifies_after_the_pipeline_has_replaced_what_it_names(
    tmp_path: Path, control_url: str
) -> None:
    async with Lab.open(tmp_path, control_url=control_url) as lab:
        topic = await lab.topic()
        await lab.fill(topic)
        await back_up(lab)
        await lab.run()
        await lab.write(topic, {0: [1]})
        assert (await verified(lab, deep=True)).findings == []


async def test_verification_names_an_object_that_the_store_has_lost(tmp_path: Path) -> None:
    async with Lab.open(tmp_path) as lab:
        topic = await lab.topic()
        await lab.fill(topic)
        row = await first_row(lab, topic)
        await back_up(lab)
        await lab.store.delete([row.object_key])
        report = await verified(lab)
        assert any(finding.where == row.object_key for finding in report.findings)


async def test_a_member_that_was_changed_is_noticed(tmp_path: Path) -> None:
    async with Lab.open(tmp_path) as lab:
        manifest = await back_up(lab)
        key = next(key for key in manifest.keys if "/topics." in key)
        whole = bytes((await lab.store.get(key)).data)
        await lab.store.put(key, [whole[:-1] + bytes([whole[-1] ^ 1])])
        with pytest.raises(BackupDamagedError, match="checksum"):
            await verified(lab)
        await lab.store.delete([key])
        with pytest.raises(BackupDamagedError, match="missing"):
            await verified(lab)
