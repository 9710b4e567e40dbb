"""Draws docs/images/strata.svg: where the offsets of a partition live while it moves down.

A real topic is written, split and merged here, in a temporary folder and without Spark; after each
step the control plane says which object holds which offsets. The same picture comes out every time.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import cycle
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from stratalog.batch.build import build_batch
from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import TimestampType, parse_header
from stratalog.batch.records import Record
from stratalog.block.block import OpenBlock, seal
from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.control.pipeline.model import UnitKind
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import BrokerId, ObjectId, PartitionIndex, TopicPartition, WriterTag, uuid7
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import claim_store
from stratalog.pipeline.hosting.run_task import run_in_loop
from stratalog.pipeline.jobs import Begin, Bin, BinDone, BinOutcome, Jobs, nothing_to_do
from stratalog.pipeline.open import opened_driver
from stratalog.pipeline.workplace import Workplace, workplace_of
from stratalog.settings import Settings, StorageSettings, TieringSettings

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "strata.svg"

PARTITIONS = 3
RECORDS = (7, 4, 9, 5, 8, 6)
"""Of a batch, in turns. All of one size, so that the picture is to scale in bytes, too."""
VALUE = bytes(1000)
SEGMENT_BYTES = 60_000
TIERING = TieringSettings(age_ms=0, max_rows=2, min_segment_bytes=SEGMENT_BYTES)
"""Everything has aged, three pieces are many, and a rest that fills no segment waits for more."""


class Holder(Enum):
    SEGMENT = "#8b97c4"
    SPLIT_FILE = "#7da7c9"
    BLOCK = "#e9b872"


class Range(NamedTuple):
    """Offsets of the partition, and the tier that holds them."""

    start: int
    end: int
    holder: Holder


@dataclass(frozen=True)
class Band:
    """The partition after a step."""

    step: str
    note: str
    ranges: Sequence[Range]

    @property
    def end(self) -> int:
        return self.ranges[-1].end

    def count(self, holder: Holder) -> int:
        return sum(one.holder is holder for one in self.ranges)


# The topic.


@dataclass
class JobsHere:
    """Runs tasks in this process, where Spark would run them anywhere."""

    workplace: Workplace

    @asynccontextmanager
    async def open(self, cluster_id: UUID | None, writer: WriterTag) -> AsyncIterator[Jobs]:
        yield JobsHere(self.workplace.of_cluster(cluster_id, writer))

    async def run(self, bins: Sequence[Bin], begin: Begin) -> AsyncGenerator[BinOutcome, None]:
        for work in bins:
            needed = await begin(work)
            if needed is None:
                yield nothing_to_do(work)
                continue
            answers = [await run_in_loop(task, self.workplace) for task in needed.tasks]
            yield BinDone(work=work, answers=answers)

    def distrust(self) -> None:
        """Tasks of this process need no other session."""


class Strata:
    def __init__(
        self, settings: Settings, control: ControlPlane, store: ObjectStore, topic: Topic
    ) -> None:
        self._settings = settings
        self._control = control
        self._store = store
        self._topic = topic
        self._records = cycle(RECORDS)

    async def produce(self, blocks: int) -> None:
        for _ in range(blocks):
            block, records = OpenBlock(), next(self._records)
            for partition in range(PARTITIONS):
                block.add([_entry(self._topic, PartitionIndex(partition), records)])
            now_ms = SystemClock().now_ms()
            sealed = seal(
                block, object_id=ObjectId(uuid7(now_ms)), broker_id=BrokerId(1), created_ms=now_ms
            )
            await self._store.put(sealed.commit.key, sealed.parts)
            await self._control.log.commit_blocks([sealed.commit])

    async def convert(self, kind: UnitKind) -> None:
        jobs = JobsHere(workplace_of(self._settings))
        async with opened_driver(self._settings, jobs.open, control=self._control) as driver:
            report = await driver.run([kind])
        assert not report.did_nothing, report
        assert not report.failed, report.failed

    async def band(self, step: str, note: str) -> Band:
        key = TopicPartition(self._topic.id, PartitionIndex(0))
        segments = await self._control.segments.chained(key, limit=1000)
        rows = await self._control.log.all_coordinates(key, limit=1000)
        ranges = [Range(one.base_offset, one.end_offset, Holder.SEGMENT) for one in segments]
        ranges += [
            Range(row.base_offset, row.last_offset + 1, _holder(row.object_key)) for row in rows
        ]
        return Band(step, note, sorted(ranges))


def _holder(key: str) -> Holder:
    return Holder.SPLIT_FILE if key.startswith("splits/") else Holder.BLOCK


def _entry(topic: Topic, partition: PartitionIndex, records: int) -> EntryBatch:
    now_ms = SystemClock().now_ms()
    data = build_batch([Record(at, now_ms, None, VALUE) for at in range(records)])
    return EntryBatch(
        topic_id=topic.id,
        topic_name=topic.name,
        partition=partition,
        timestamp_type=TimestampType.CREATE_TIME,
        header=parse_header(data),
        data=memoryview(data),
    )


@asynccontextmanager
async def opened_strata(folder: Path) -> AsyncIterator[Strata]:
    storage = StorageSettings(
        objects=f"file:{folder / 'objects'}", control=f"sqlite:{folder / 'control.db'}"
    )
    settings = Settings(storage=storage, tiering=TIERING)
    control = await open_control_plane(storage.control)
    store = open_store(storage.objects, clock=SystemClock())
    await claim_store(control, store)
    configs = {"segment.bytes": str(SEGMENT_BYTES)}
    topic = await control.topics.create("orders", partition_count=PARTITIONS, configs=configs)
    yield Strata(settings, control, store, topic)
    await store.close()
    await control.close()


async def history(folder: Path) -> list[Band]:
    async with opened_strata(folder) as strata:
        bands = []
        await strata.produce(6)
        bands.append(await strata.band("produce", "a row for each block"))
        await strata.convert(UnitKind.SPLIT)
        bands.append(await strata.band("split", "one row for all of them"))
        await strata.produce(14)
        bands.append(await strata.band("produce", "new blocks behind it"))
        await strata.convert(UnitKind.MERGE)
        bands.append(await strata.band("merge", "full segments move down"))
        await strata.produce(3)
        bands.append(await strata.band("produce", "and so it goes on"))
        await strata.convert(UnitKind.SPLIT)
        bands.append(await strata.band("split", "the rest comes together"))
        await strata.produce(5)
        bands.append(await strata.band("produce", "all strata at once"))
    return bands


# The picture.

WIDTH, LEFT, RIGHT = 900, 190, 730
TOP, PITCH, THICK = 96, 52, 32
DARK, MIDDLE, LIGHT = "#22303f", "#48566a", "#fbfaf7"


def draw(bands: Sequence[Band]) -> str:
    height = TOP + PITCH * len(bands) + 62
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="Helvetica, Arial, sans-serif" font-size="13">',
        "  <title>One partition on its way down the strata</title>",
        f'  <rect width="{WIDTH}" height="{height}" fill="{LIGHT}"/>',
        _text(30, 34, "One partition on its way down the strata", DARK, weight="bold"),
        *_legend(),
    ]
    for number, band in enumerate(bands):
        lines += _band(band, TOP + PITCH * number, bands[-1].end)
    lines += _axis(TOP + PITCH * len(bands) - 4, bands[-1].end)
    note = (
        "Drawn from a real topic by tools/draw_strata.py, from the control plane after each step."
        " Offsets never change; their objects do."
    )
    lines.append(_text(30, height - 16, note, MIDDLE, size=12))
    return "\n".join([*lines, "</svg>", ""])


def _legend() -> Iterator[str]:
    names = {
        Holder.BLOCK: "blocks, shared by all partitions",
        Holder.SPLIT_FILE: "split files, sorted by partition",
        Holder.SEGMENT: "segments, Kafka's own format",
    }
    for place, (holder, name) in enumerate(names.items()):
        x = LEFT + 215 * place
        yield f'  <rect x="{x}" y="54" width="14" height="14" fill="{holder.value}"/>'
        yield _text(x + 20, 66, name, MIDDLE, size=12)
    yield _text(RIGHT + 20, 86, "in the control plane", MIDDLE, size=11)


def _band(band: Band, y: int, offsets: int) -> Iterator[str]:
    yield _text(30, y + 15, band.step, DARK, weight="bold")
    yield _text(30, y + 30, band.note, MIDDLE, size=11)
    yield '  <g stroke="#fff" stroke-width="2">'
    for start, end, holder in band.ranges:
        x, x_end = _x(start, offsets), _x(end, offsets)
        size = f'x="{x:.1f}" y="{y}" width="{x_end - x:.1f}" height="{THICK}"'
        yield f'    <rect {size} fill="{holder.value}"/>'
    yield "  </g>"
    rows = band.count(Holder.BLOCK) + band.count(Holder.SPLIT_FILE)
    segments = band.count(Holder.SEGMENT)
    kept = _counted(rows, "row") + (f", {_counted(segments, 'segment')}" if segments else "")
    yield _text(RIGHT + 20, y + 21, kept, DARK, size=12)


def _axis(y: int, offsets: int) -> Iterator[str]:
    yield f'  <path d="M{LEFT} {y}H{RIGHT}" stroke="{MIDDLE}" stroke-width="1.2"/>'
    for offset in range(0, offsets, 50):
        x = _x(offset, offsets)
        yield f'  <path d="M{x:.1f} {y}v5" stroke="{MIDDLE}" stroke-width="1.2"/>'
        yield _text(round(x), y + 18, str(offset), MIDDLE, size=11, anchor="middle")
    yield _text(RIGHT + 20, y + 18, "offset", MIDDLE, size=11)


def _x(offset: int, offsets: int) -> float:
    return LEFT + (RIGHT - LEFT) * offset / offsets


def _text(
    x: int, y: int, text: str, fill: str, *, size: int = 13, weight: str = "", anchor: str = ""
) -> str:
    style = f' font-weight="{weight}"' if weight else ""
    style += f' text-anchor="{anchor}"' if anchor else ""
    return f'  <text x="{x}" y="{y}" fill="{fill}" font-size="{size}"{style}>{text}</text>'


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bands = asyncio.run(history(Path(folder)))
    PICTURE.write_text(draw(bands), encoding="utf-8")


if __name__ == "__main__":
    main()
