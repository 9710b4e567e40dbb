"""All programs make and read the cluster's own segments in the same store."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.pipeline.lab import Lab, change
from typer.testing import CliRunner, Result

from stratalog.cli.main import app
from stratalog.clock import SystemClock
from stratalog.control.topics.model import Topic
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import claim_segments
from stratalog.opening.errors import MarkerMissingError, WrongSegmentStoreError
from stratalog.opening.marker import MARKER_KEY
from stratalog.opening.segment_store import note_moved
from stratalog.scan.open import opened_scanner
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.settings import RemoteSettings


class ApartLab:
    """A lab whose brokers keep segments in a folder of their own."""

    def __init__(self, lab: Lab, topic: Topic, folder: Path) -> None:
        self.lab = lab
        self.topic = topic
        self.folder = folder
        self.objects = Path(lab.settings.storage.objects.removeprefix("file:"))

    def keep_in(self, folder: Path | None) -> None:
        """Change the settings of those who come from now on."""
        objects = None if folder is None else f"file:{folder}"
        self.lab.settings = replace(self.lab.settings, remote=RemoteSettings(objects=objects))

    def store(self) -> ObjectStore:
        url = self.lab.settings.remote.objects
        return self.lab.store if url is None else open_store(url, clock=SystemClock())

    async def start_broker(self) -> None:
        await claim_segments(self.lab.control, self.lab.store, self.store())

    async def convert(self) -> None:
        await self.lab.fill(self.topic)
        assert (await self.lab.run()).segments == 1

    async def check(self) -> None:
        own = self.store()
        self.lab.segment_reader = lambda: SegmentReader(  # type: ignore[method-assign]
            stores=SegmentStores(own, lambda url: own),
            keys=KeyRing(),
            settings=self.lab.settings.remote,
        )
        await self.lab.check(self.topic)

    async def command(self, *words: str) -> Result:
        """On a thread, because a command runs a loop of its own."""
        storage, remote = self.lab.settings.storage, self.lab.settings.remote
        flags = ["--objects", storage.objects, "--control", storage.control]
        flags += ["--set", f"remote.objects={remote.objects or ''}"]
        runner = CliRunner(env={"NO_COLOR": "1"})
        return await asyncio.to_thread(runner.invoke, app, [*words, *flags])


def told(result: Result) -> str:
    """Without the ends of lines, which depend on the terminal."""
    return " ".join(result.output.split())


@pytest.fixture
async def apart(tmp_path: Path) -> AsyncIterator[ApartLab]:
    folder = tmp_path / "apart"
    async with Lab.open(tmp_path, remote=RemoteSettings(objects=f"file:{folder}")) as lab:
        yield ApartLab(lab, await lab.topic(1), folder)


@pytest.fixture
async def beside(tmp_path: Path) -> AsyncIterator[ApartLab]:
    async with Lab.open(tmp_path) as lab:
        yield ApartLab(lab, await lab.topic(1), tmp_path / "apart")


async def test_segments_are_made_and_read_in_a_store_of_their_own(apart: ApartLab) -> None:
    await apart.convert()
    await apart.start_broker()
    await apart.convert()
    assert await apart.lab.keys("segments/") == []
    await apart.check()


async def test_a_driver_whose_segment_store_is_not_mounted_is_refused(apart: ApartLab) -> None:
    await apart.lab.fill(apart.topic)
    apart.folder.rename(apart.folder.with_name("elsewhere"))
    with pytest.raises(MarkerMissingError, match=r"has no stratalog.json.*remote\.objects"):
        await apart.lab.run()
    assert await apart.lab.segments(apart.topic, 0) == []


async def test_a_driver_that_would_put_segments_beside_the_blocks_is_refused(
    apart: ApartLab,
) -> None:
    await apart.lab.fill(apart.topic)
    apart.keep_in(None)
    with pytest.raises(WrongSegmentStoreError, match=r"store of their own.*/objects: set remote\."):
        await apart.lab.run()
    assert await apart.lab.segments(apart.topic, 0) == []


async def test_a_driver_that_would_put_segments_apart_from_the_blocks_is_refused(
    beside: ApartLab,
) -> None:
    await beside.lab.fill(beside.topic)
    beside.keep_in(beside.folder)
    with pytest.raises(WrongSegmentStoreError, match=r"and remote\.objects names .*apart:"):
        await beside.lab.run()
    assert await beside.lab.segments(beside.topic, 0) == []


async def test_the_same_store_may_have_another_address(apart: ApartLab, tmp_path: Path) -> None:
    await apart.convert()
    apart.keep_in(apart.folder.rename(tmp_path / "mounted elsewhere"))
    await apart.start_broker()
    await apart.convert()
    await apart.check()


async def test_as_long_as_there_are_no_segments_a_broker_may_choose_anew(beside: ApartLab) -> None:
    beside.keep_in(beside.folder)
    await beside.start_broker()
    await beside.convert()
    await beside.check()


async def test_a_broker_whose_segments_lie_elsewhere_is_refused(
    apart: ApartLab, tmp_path: Path
) -> None:
    await apart.convert()
    apart.keep_in(None)
    with pytest.raises(WrongSegmentStoreError, match="store of their own"):
        await apart.start_broker()
    empty = tmp_path / "empty"
    apart.keep_in(empty)
    with pytest.raises(WrongSegmentStoreError, match=r"empty has none of the segments.*mounted"):
        await apart.start_broker()
    assert not (empty / MARKER_KEY).exists()


async def test_a_segment_store_that_only_lost_its_marker_gets_it_back(apart: ApartLab) -> None:
    await apart.convert()
    (apart.folder / MARKER_KEY).unlink()
    with pytest.raises(MarkerMissingError):
        await apart.lab.run()
    await apart.start_broker()
    await apart.convert()
    await apart.check()


async def test_before_any_broker_has_noted_it_segments_that_are_there_show_the_place(
    apart: ApartLab,
) -> None:
    """As in a cluster whose brokers are older than the note."""
    await apart.convert()
    await change(apart.lab, "UPDATE cluster SET segments_apart = NULL")
    await apart.convert()
    await apart.lab.fill(apart.topic)
    apart.keep_in(None)
    with pytest.raises(WrongSegmentStoreError, match="has none of the segments"):
        await apart.lab.run()
    apart.keep_in(apart.folder)
    await apart.start_broker()
    assert (await apart.lab.control.identity.cluster()).segments_apart


async def test_those_who_only_read_are_told_as_well(apart: ApartLab) -> None:
    await apart.convert()
    async with opened_scanner(apart.lab.settings):
        pass
    assert (await apart.command("fsck")).exit_code == 0
    apart.keep_in(None)
    with pytest.raises(WrongSegmentStoreError, match=r"set remote\.objects"):
        async with opened_scanner(apart.lab.settings):
            pass
    for flags in ((), ("--rebuild-indexes",)):
        refused = await apart.command("fsck", *flags)
        assert refused.exit_code == 1
        assert "lie in a store of their own" in told(refused)


async def test_segments_that_were_copied_are_noted_in_their_new_place(beside: ApartLab) -> None:
    await beside.convert()
    beside.keep_in(beside.folder)
    refused = await beside.command("segments", "moved")
    assert refused.exit_code == 1
    assert "copy all segments there first" in told(refused)
    shutil.copytree(beside.objects / "segments", beside.folder / "segments")
    with pytest.raises(WrongSegmentStoreError, match="stratalog segments moved"):
        await beside.start_broker()
    assert "Found 1 segment," in told(await beside.command("segments", "moved"))
    await beside.start_broker()
    shutil.rmtree(beside.objects / "segments")
    await beside.convert()
    await beside.check()
    beside.keep_in(None)
    with pytest.raises(WrongSegmentStoreError, match="has no segments/"):
        await note_moved(beside.lab.control, beside.lab.store, beside.lab.store)
