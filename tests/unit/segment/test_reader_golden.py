"""Segments that Kafka and Aiven's plugin wrote, read where they lie."""

import json
import shutil
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.segment.reading import GOLDEN, Shelf, finished, placed, read

from stratalog.batch.records import iter_records
from stratalog.clock import SystemClock
from stratalog.control.segments.model import EpochStart, Segment, SegmentToAdd, SegmentUploaded
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, SegmentId, TopicId
from stratalog.objects.open import open_store
from stratalog.pieces import TimedRecord
from stratalog.segment.keys import parse_uuid_text
from stratalog.segment.model import IndexKind

KEY_BASE = "pfx/topic1-lZ6vvmajTWKDBUTV6SQAtQ/7/00000000000000005000-adh9f8BMS4anaUnD8KWfWg"
FILES = GOLDEN / "segment_kafka411"
LOG = (FILES / "00000000000000005000.log").read_bytes()


def identifier(text: str) -> UUID:
    found = parse_uuid_text(text)
    assert found is not None
    return found


def adopted(manifest: str) -> Segment:
    said = json.loads(manifest)["remoteLogSegmentMetadata"]
    to_add = SegmentToAdd(
        segment_id=SegmentId(identifier("adh9f8BMS4anaUnD8KWfWg")),
        topic_id=TopicId(identifier("lZ6vvmajTWKDBUTV6SQAtQ")),
        partition=PartitionIndex(7),
        base_offset=Offset(said["startOffset"]),
        last_offset=Offset(said["endOffset"]),
        size_bytes=len(LOG),
        max_timestamp=said["maxTimestampMs"],
        leader_epochs=[EpochStart(LeaderEpoch(3), Offset(5000))],
        key_base=KEY_BASE,
    )
    uploaded = SegmentUploaded(manifest=manifest, stored_bytes=0, has_aborted=True)
    return finished(to_add, uploaded, owned=False, store_url="file:elsewhere")


@pytest.fixture(
    params=[f"{one}_{other}" for one in ("compress-false", "compress-true")
            for other in ("encrypt-false", "encrypt-true")]
)  # fmt: skip
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    folder = tmp_path / "objects"
    shutil.copytree(GOLDEN / f"aiven_{request.param}", folder)
    shelf = Shelf(open_store(f"file:{folder}", clock=SystemClock()))
    shelf.segments.append(adopted((folder / f"{KEY_BASE}.rsm-manifest").read_text()))
    return shelf


async def test_every_batch_is_read_as_kafka_wrote_it(shelf: Shelf) -> None:
    reader = shelf.reader()
    answer = await read(reader, shelf.segments, 5000)
    assert (answer.error, answer.ended, answer.next_offset) == (None, True, 9454)
    assert b"".join(answer.parts) == LOG
    await reader.close()


async def test_one_batch_costs_two_requests_at_the_most(shelf: Shelf) -> None:
    reader = shelf.reader()
    batches = placed(LOG)
    for turn, each in enumerate(batches[::97]):
        answer = await read(reader, shelf.segments, each.last, max_bytes=1)
        assert b"".join(answer.parts) == each.data
        assert shelf.requests <= 2 + turn
    await reader.close()


async def test_a_scan_gives_the_log(shelf: Shelf) -> None:
    reader = shelf.reader()
    offset, parts = 5000, []
    while offset < 9454:
        answer = await read(reader, shelf.segments, offset, max_bytes=20_000)
        assert answer.error is None
        parts += answer.parts
        offset = answer.next_offset
    assert b"".join(parts) == LOG
    await reader.close()


async def test_the_indexes_are_kafkas(shelf: Shelf) -> None:
    reader = shelf.reader()
    segment = shelf.segments[0]
    for kind, suffix in ((IndexKind.OFFSET, "index"), (IndexKind.TIMESTAMP, "timeindex")):
        written = (FILES / f"00000000000000005000.{suffix}").read_bytes()
        assert await reader.index(segment, kind) == written
    assert (
        await reader.index(segment, IndexKind.LEADER_EPOCH)
        == (GOLDEN / "leader-epoch-checkpoint").read_bytes()
    )
    await reader.close()


async def test_times_and_aborted_transactions_are_found(shelf: Shelf) -> None:
    reader = shelf.reader()
    segment = shelf.segments[0]
    records = list(iter_records(LOG, with_control=True))
    for record in records[::499]:
        first = next(each for each in records if each.timestamp >= record.timestamp)
        found = await reader.first_at_time(segment, record.timestamp, Offset(0))
        assert found is not None
        assert found[:2] == (first.offset, first.timestamp)
    best = max(records, key=lambda each: each.timestamp)
    newest = await reader.newest(segment, Offset(0))
    assert newest == TimedRecord(Offset(best.offset), best.timestamp, LeaderEpoch(3))
    # The transactions in this index were made up, and lie below the segment.
    aborted = await reader.aborted([segment], Offset(25), Offset(26))
    assert [(each.first_offset, each.last_offset) for each in aborted] == [(12, 30)]
    await reader.close()
