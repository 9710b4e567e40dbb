"""Objects that are not there: lost, deleted since they were planned, or written elsewhere."""

import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.pipeline.lab import EAGER, MERGE, PATIENT, Lab, change, path_of, using
from tests.unit.pipeline.local_jobs import LocalJobs

from stratalog.control.errors import ControlUnavailableError
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import Segment
from stratalog.errors import StratalogError
from stratalog.objects.errors import StoreAccessError, StoreUnavailableError
from stratalog.objects.retrying import RetryingStore
from stratalog.opening.errors import MarkerMissingError
from stratalog.opening.marker import MARKER_KEY, StoreMarker, encode_marker
from stratalog.pipeline.plan.tasks import Task
from stratalog.segment.model import IndexKind
from stratalog.segment.reader import SegmentReader
from stratalog.settings import TieringSettings

NAMES = ["orders-0", "orders-1"]


@pytest.mark.parametrize("tiering", [EAGER, PATIENT])
async def test_a_lost_block_parks_its_partition_and_is_named(
    lab: Lab, tiering: TieringSettings
) -> None:
    using(lab, replace(tiering, max_attempts=2))
    topic = await lab.topic(1)
    lost = await lab.write(topic, {0: [1]})
    await lab.fill(topic)
    path_of(lab, lost.commit.key).unlink()
    reports = [await lab.run() for _ in range(3)]
    assert [report.parked for report in reports] == [[], ["orders-0"], []]
    assert reports[-1].waiting == {"parked": 1}
    [status] = await lab.control.pipeline.tier_status({topic.id: 0})
    assert lost.commit.key in status.parked[0].error


@pytest.mark.parametrize("tiering", [EAGER, PATIENT])
async def test_a_block_that_was_deleted_since_it_was_planned_is_nobodys_failure(
    lab: Lab, tiering: TieringSettings
) -> None:
    using(lab, replace(tiering, max_attempts=1))
    topic = await lab.topic(1)
    await lab.fill(topic)

    async def delete(_: Task) -> None:
        await lab.delete_records(topic, 0, 20)
        await lab.clean()

    jobs = lab.jobs()
    jobs.before = delete
    report = await lab.run(jobs)
    assert (report.failed, report.parked, report.overtaken) == ({}, [], 1)
    await lab.check(topic)


async def test_a_block_that_may_be_lost_is_not_counted_while_nobody_can_tell(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    using(lab, replace(EAGER, max_attempts=1))
    topic = await lab.topic(1)
    path_of(lab, (await lab.write(topic, {0: [1]})).commit.key).unlink()

    async def unavailable(*_: object) -> ControlPlane:
        raise ControlUnavailableError("made to fail")

    with monkeypatch.context() as broken:
        broken.setattr(lab.control.pipeline, "coordinates_in", unavailable)
        report = await lab.run()
    assert (list(report.failed), report.parked) == (["orders-0"], [])


async def test_a_store_that_is_not_there_costs_no_partition_a_failure(
    lab: Lab, tmp_path: Path
) -> None:
    using(lab, replace(EAGER, max_attempts=1))
    topic = await lab.topic(1)
    await lab.write(topic, {0: [1]})
    storage = lab.settings.storage
    elsewhere = replace(storage, objects=f"file:{tmp_path / 'not mounted'}")
    lab.settings = replace(lab.settings, storage=elsewhere)
    with pytest.raises(MarkerMissingError):
        await lab.run()
    lab.settings = replace(lab.settings, storage=storage)
    assert (await lab.run()).segments == 1
    await lab.check(topic)


async def test_lost_indexes_park_the_partition_that_goes_on_after_them(lab: Lab) -> None:
    using(lab, replace(EAGER, max_attempts=2))
    topic = await lab.topic(1)
    await lab.fill(topic)
    await lab.run()
    [indexes] = [key for key in await lab.keys("segments/") if key.endswith(".indexes")]
    path_of(lab, indexes).unlink()
    await lab.fill(topic)
    reports = [await lab.run() for _ in range(3)]
    assert [report.parked for report in reports] == [[], ["orders-0"], []]
    assert [report.overtaken for report in reports] == [0, 0, 0]
    told = reports[0].failed["orders-0"]
    assert indexes in told
    assert "run `stratalog fsck --rebuild-indexes`" in told


async def test_indexes_of_a_segment_that_was_deleted_meanwhile_are_not_missed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await lab.topic(1)
    await lab.fill(topic)
    await lab.run()
    await lab.fill(topic)
    real = SegmentReader.index

    async def too_late(self: SegmentReader, segment: Segment, kind: IndexKind) -> bytes:
        await lab.delete_records(topic, 0, 25)
        path_of(lab, segment.key_base + ".indexes").unlink()
        return await real(self, segment, kind)

    monkeypatch.setattr(SegmentReader, "index", too_late)
    report = await lab.run()
    assert (report.segments, report.failed, report.overtaken) == (1, {}, 0)
    monkeypatch.undo()
    await lab.check(topic)


def jobs_in(lab: Lab, *, objects_url: str = "", segments_url: str = "") -> LocalJobs:
    """Executors to whom a store has another address than to the driver."""
    place = lab.jobs().workplace
    stores = replace(
        place.access.stores,
        objects_url=objects_url or place.access.stores.objects_url,
        segments_url=segments_url,
    )
    return LocalJobs(replace(place, access=replace(place.access, stores=stores)))


def jobs_on_a_copy(lab: Lab, folder: Path) -> LocalJobs:
    """Executors that have all blocks, and whose writes no other machine sees."""
    shutil.copytree(folder / "objects", folder / "copy")
    return jobs_in(lab, objects_url=f"file:{folder / 'copy'}")


@pytest.mark.parametrize("tiering", [EAGER, PATIENT])
async def test_what_executors_write_elsewhere_is_a_failure_and_nothing_is_lost(
    lab: Lab, tmp_path: Path, tiering: TieringSettings
) -> None:
    using(lab, replace(tiering, max_attempts=2))
    topic = await lab.topic(2)
    await lab.fill(topic)
    jobs = jobs_on_a_copy(lab, tmp_path)
    reports = [await lab.run(jobs) for _ in range(3)]
    assert [len(report.parked) for report in reports] == [0, 2, 0]
    assert [report.segments + report.split_files + report.overtaken for report in reports] == [
        0
    ] * 3
    assert "executors write to another store" in reports[0].failed["orders-1"]
    assert [await lab.rows(topic, p) for p in range(2)] == [6, 6]
    await lab.check_clean()
    await lab.check(topic)


async def test_a_split_file_that_is_not_complete_is_a_failure(lab: Lab) -> None:
    using(lab, PATIENT)
    topic = await lab.topic(2)
    await lab.fill(topic)
    jobs = lab.jobs()

    async def truncate(_: Task) -> None:
        [key] = await lab.keys("splits/")
        path = path_of(lab, key)
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1])

    jobs.after = truncate
    report = await lab.run(jobs)
    assert (report.split_files, sorted(report.failed)) == (0, ["orders-0", "orders-1"])
    await lab.check_clean()
    await lab.check(topic)


@pytest.mark.parametrize("tiering", [EAGER, PATIENT])
@pytest.mark.parametrize("error", [StoreUnavailableError, StoreAccessError])
async def test_a_store_that_does_not_tell_what_was_written_parks_nobody(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    tiering: TieringSettings,
    error: type[StratalogError],
) -> None:
    using(lab, replace(tiering, max_attempts=1))
    topic = await lab.topic(2)
    await lab.fill(topic)

    async def refuse(*_: object) -> None:
        raise error("made to fail")

    with monkeypatch.context() as broken:
        broken.setattr(RetryingStore, "head", refuse)
        report = await lab.run()
    assert (len(report.failed), report.parked) == (2, [])
    assert report.segments + report.split_files == 0
    assert not (await lab.run()).did_nothing
    await lab.check(topic)


async def test_a_rewrite_that_is_written_elsewhere_counts_for_no_partition(
    lab: Lab, tmp_path: Path
) -> None:
    using(lab, replace(EAGER, max_attempts=1))
    kept, gone = await lab.topic(1, "kept"), await lab.topic(1, "gone")
    await lab.control.pipeline.pause(kept.id)
    await lab.write_both([(kept, {0: [1]}), (gone, {0: [40]})])
    await lab.run(kinds=MERGE)
    jobs = jobs_on_a_copy(lab, tmp_path)
    reports = [await lab.run(jobs) for _ in range(2)]
    assert [list(report.failed) for report in reports] == [["kept-0"], []], "not tried again soon"
    assert [report.parked for report in reports] == [[], []]
    await lab.check_clean()
    await lab.check(kept)


# Executors that do not see the store.


def missing(folder: Path) -> None:
    """Nothing is there."""


def mount_point(folder: Path) -> None:
    folder.mkdir()


def another_clusters(folder: Path) -> None:
    folder.mkdir()
    marker = StoreMarker(cluster_id=UUID(int=1), generation=1)
    (folder / MARKER_KEY).write_bytes(encode_marker(marker))


def spoiled(folder: Path) -> None:
    folder.mkdir()
    (folder / MARKER_KEY).write_bytes(b"no marker")


def unreadable(folder: Path) -> None:
    folder.symlink_to(folder.parent / ("x" * 300))


@pytest.mark.parametrize("make", [missing, mount_point, another_clusters, spoiled, unreadable])
@pytest.mark.parametrize("tiering", [EAGER, PATIENT])
async def test_executors_that_do_not_see_the_store_cost_no_partition_a_failure(
    lab: Lab, tmp_path: Path, tiering: TieringSettings, make: Callable[[Path], None]
) -> None:
    using(lab, replace(tiering, max_attempts=1))
    topic = await lab.topic(2)
    await lab.fill(topic)
    elsewhere = tmp_path / "elsewhere"
    make(elsewhere)
    report = await lab.run(jobs_in(lab, objects_url=f"file:{elsewhere}"))
    assert (report.parked, report.overtaken, sorted(report.failed)) == ([], 0, NAMES)
    told = report.failed["orders-0"]
    assert f"file:{elsewhere} is not this cluster's store on {socket.gethostname()}" in told
    assert not (await lab.run()).did_nothing
    await lab.check(topic)


@pytest.mark.parametrize("make", [missing, mount_point])
async def test_executors_make_nothing_where_the_store_should_be(
    lab: Lab, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    topic = await lab.topic(2)
    await lab.fill(topic)
    elsewhere = tmp_path / "elsewhere"
    make(elsewhere)
    url = f"file:{elsewhere}"
    for jobs in (jobs_in(lab, objects_url=url), jobs_in(lab, segments_url=url)):
        report = await lab.run(jobs)
        assert (sorted(report.failed), report.parked) == (NAMES, [])
    assert elsewhere.exists() == (make is mount_point)
    assert [*elsewhere.glob("*")] == []


async def test_a_store_that_nobody_has_claimed_is_worked_on(tmp_path: Path) -> None:
    async with Lab.open(tmp_path) as lab:
        topic = await lab.topic(2)
        await lab.fill(topic)
        path_of(lab, MARKER_KEY).unlink()
        await change(lab, "UPDATE cluster SET generation = 0")
        assert (await lab.run()).segments == 2
        await lab.check(topic)
