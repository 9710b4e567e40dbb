"""Rebuilding the indexes of segments, and the commands that check, repair and show segments."""

import asyncio
import json
import re
import struct
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.segment_cluster import (
    GOLDEN,
    KEYS,
    MODES,
    Acting,
    DiesError,
    Dying,
    SegmentCluster,
    found,
    told,
)
from tests.integration.small_cluster import SmallCluster
from tests.support.ledgers import DyingControl
from tests.unit.segment.runs import batch, marker
from typer.testing import CliRunner, Result

from stratalog.batch.control import ControlType
from stratalog.checks.producer_tail import tail_between
from stratalog.checks.remote_tier import RemoteTier, beside_blocks
from stratalog.checks.report import Promise
from stratalog.checks.segment_repair import rebuild_indexes
from stratalog.cli.main import app
from stratalog.clock import SystemClock
from stratalog.control.identity.model import StoreRole
from stratalog.control.segments.model import Segment
from stratalog.janitor.segment_deletion import delete_doomed
from stratalog.objects.open import open_store
from stratalog.opening.claim import claim_anew, claim_store
from stratalog.opening.errors import MarkerMissingError
from stratalog.opening.marker import MARKER_KEY


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    small = await SmallCluster.open(tmp_path, objects=f"file:{tmp_path / 'objects'}")
    await claim_store(small.control, small.store)
    yield small
    await small.close()


@pytest.fixture
async def cluster(small: SmallCluster) -> SegmentCluster:
    return await SegmentCluster.make(small)


# Planted damage: indexes, and their repair.


async def rewrite_index(cluster: SegmentCluster, position: int, data: bytes) -> None:
    """Change bytes in the indexes of the second segment."""
    key = (await cluster.segments())[1].key_base + ".indexes"
    whole = bytearray((await cluster.store.get(key)).data)
    whole[position : position + len(data)] = data
    await cluster.store.put(key, [whole])


async def index_bytes(cluster: SegmentCluster) -> bytes:
    key = (await cluster.segments())[1].key_base + ".indexes"
    return bytes((await cluster.store.get(key)).data)


async def assert_repaired(cluster: SegmentCluster, before: bytes | None = None) -> None:
    (repair,) = await cluster.rebuild()
    assert repair.failure is None
    assert (repair.where, repair.segment.base_offset) == ("orders-0", 60)
    report = await cluster.fsck(deep=True)
    assert report.ok, told(report)
    if before is not None:
        assert await index_bytes(cluster) == before
    assert await cluster.rebuild() == []


async def test_an_offset_that_is_off_by_one_is_found_and_made_good(
    cluster: SegmentCluster,
) -> None:
    before = await index_bytes(cluster)
    (relative,) = struct.unpack_from(">i", before, 8)
    await rewrite_index(cluster, 8, struct.pack(">i", relative - 1))
    assert (await cluster.fsck()).ok
    report = await cluster.fsck(deep=True)
    assert found(report) == {("orders-0", Promise.READABLE)}
    assert (
        f"its offset index: entry 1 names offset {60 + relative - 1}, its batch ends with "
        f"{60 + relative}" in told(report)
    )
    await assert_repaired(cluster, before)


async def test_a_position_that_is_off_by_one_is_found_and_made_good(
    cluster: SegmentCluster,
) -> None:
    before = await index_bytes(cluster)
    (position,) = struct.unpack_from(">i", before, 12)
    await rewrite_index(cluster, 12, struct.pack(">i", position + 1))
    report = await cluster.fsck(deep=True)
    assert f"entry 1 points at byte {position + 1}, where no batch begins" in told(report)
    await assert_repaired(cluster, before)


async def test_a_time_that_is_off_by_one_is_found_and_made_good(cluster: SegmentCluster) -> None:
    before = await index_bytes(cluster)
    entries = 5 * 8  # Every batch but the first has an entry.
    (timestamp,) = struct.unpack_from(">q", before, entries)
    await rewrite_index(cluster, entries, struct.pack(">q", timestamp - 1))
    report = await cluster.fsck(deep=True)
    assert found(report) == {("orders-0", Promise.READABLE)}
    assert "its timestamp index: entry 0 is not the one that its log makes" in told(report)
    await assert_repaired(cluster, before)


@pytest.mark.parametrize(
    ("at", "wrong", "said"),
    [
        (26, 10**9, "all before offset 1000000000 was decided"),
        (26, 0, "all before offset 0 was decided"),
        (10, 1, "aborted at offset 2 began at 1"),
    ],
)
async def test_a_wrong_transaction_index_is_found_and_made_good(
    small: SmallCluster, at: int, wrong: int, said: str
) -> None:
    """Producers 6 and 7 begin in the first segment, and abort in the second."""
    cluster = SegmentCluster(small, await small.topic(partition_count=1), MODES["plain"])
    begun = [batch(1, producer_id=name, transactional=True) for name in (7, 6)]
    for batches in (begun, [marker(ControlType.ABORT, 7), marker(ControlType.ABORT, 6)]):
        await cluster.write_data(batches)
        await cluster.converter.convert(cluster.topic)
    report = await cluster.fsck(deep=True)
    assert report.ok, told(report)
    before = await index_bytes(cluster)
    [entry, _] = struct.iter_unpack(">hqqqq", before[-68:])
    # When 7 aborts at 2, 6 has been open since 1.
    assert entry == (0, 7, 0, 2, 1)
    await rewrite_index(cluster, len(before) - 68 + at, struct.pack(">q", wrong))
    report = await cluster.fsck(deep=True)
    assert said in told(report)
    assert [repair.failure for repair in await cluster.rebuild()] == [None]
    assert await index_bytes(cluster) == before
    report = await cluster.fsck(deep=True)
    assert report.ok, told(report)


@pytest.mark.parametrize("mode", MODES)
async def test_bytes_all_over_the_indexes_are_checked(small: SmallCluster, mode: str) -> None:
    cluster = await SegmentCluster.make(small, encoding=MODES[mode])
    before = await index_bytes(cluster)
    for position in range(0, len(before), 37):
        await rewrite_index(cluster, position, bytes([before[position] ^ 0x40]))
        report = await cluster.fsck(deep=True)
        assert report.damaged, f"byte {position}"
        await rewrite_index(cluster, 0, before)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["missing", "cut", "longer", "noise"])
async def test_a_damaged_indexes_object_is_made_anew(
    small: SmallCluster, mode: str, how: str
) -> None:
    cluster = await SegmentCluster.make(small, encoding=MODES[mode])
    before = await index_bytes(cluster)
    key = (await cluster.segments())[1].key_base + ".indexes"
    match how:
        case "missing":
            await cluster.store.delete([key])
        case "cut":
            await cluster.cut(key, 20)
        case "longer":
            await cluster.store.put(key, [before, b"x"])
        case "noise":
            await cluster.store.put(key, [bytes(255 - byte for byte in before)])
    assert (await cluster.fsck(deep=True)).damaged
    await assert_repaired(cluster, None if "encrypt=True" in str(MODES[mode]) else before)


async def test_the_first_segment_is_rebuilt_without_one_before_it(
    cluster: SegmentCluster,
) -> None:
    await cluster.unchain(60)
    second = (await cluster.segments())[0]
    await cluster.store.delete([second.key_base + ".indexes"])
    await assert_repaired(cluster)


async def test_neighbours_that_are_all_damaged_are_rebuilt_one_after_the_other(
    cluster: SegmentCluster,
) -> None:
    before = await index_bytes(cluster)
    for segment in await cluster.segments():
        await cluster.store.delete([segment.key_base + ".indexes"])
    assert [repair.failure for repair in await cluster.rebuild()] == [None] * 3
    report = await cluster.fsck(deep=True)
    assert report.ok, told(report)
    assert await index_bytes(cluster) == before


async def test_a_segment_with_a_damaged_log_is_not_rebuilt(cluster: SegmentCluster) -> None:
    second = (await cluster.segments())[1]
    await cluster.store.delete([second.key_base + ".indexes"])
    await cluster.flip(second.key_base + ".log", 100)
    (repair,) = await cluster.rebuild()
    assert repair.failure is not None
    assert "its log is damaged, too" in repair.failure
    assert await cluster.objects(second) == [".log", ".rsm-manifest"]
    assert repair.as_dict()["rebuilt"] is False


@pytest.mark.parametrize("whole", [False, True])
async def test_producers_are_not_guessed_after_a_segment_whose_snapshot_cannot_be_read(
    cluster: SegmentCluster, whole: bool
) -> None:
    first, second, _ = await cluster.segments()
    await cluster.store.delete([first.key_base + ".indexes"])
    await cluster.flip(first.key_base + ".log", 100)
    if whole:
        await cluster.store.delete([second.key_base + ".indexes"])
    else:
        await cluster.flip(second.key_base + ".indexes", 3)
    repairs = await cluster.rebuild()
    assert [repair.segment.base_offset for repair in repairs] == [0, 60]
    failure = repairs[1].failure
    # The remains of its own snapshot and transaction index need no guess.
    assert (failure is not None) == whole
    if failure is not None:
        assert "those of segment 0 to 59, whose producer snapshot cannot be read" in failure
        assert await cluster.objects(second) == [".log", ".rsm-manifest"]


async def test_what_was_open_at_the_end_of_an_adopted_log_is_decided_where_ours_begins(
    small: SmallCluster,
) -> None:
    cluster = await SegmentCluster.make(small, segments=0)
    await cluster.write_data([batch(10, producer_id=9, transactional=True)])
    await cluster.converter.convert(cluster.topic)
    small.damage("UPDATE segments SET owned = false")
    await cluster.write(1)
    await cluster.converter.convert(cluster.topic)
    theirs, ours = await cluster.segments()
    await cluster.store.delete([ours.key_base + ".indexes"])
    (repair,) = await cluster.rebuild()
    assert repair.failure is None
    theirs, ours = await cluster.segments()
    assert await open_in(cluster, theirs, theirs) == {9: 20}
    assert await open_in(cluster, theirs, ours) == await open_in(cluster, ours, ours) == {}


async def open_in(cluster: SegmentCluster, before: Segment, segment: Segment) -> dict[int, int]:
    """Where open transactions began, by producer, between two segments."""
    tail = await tail_between(before, segment, cluster.tier)
    assert tail is not None
    entries = tail.producers.values()
    return {one.producer_id: one.txn_first_offset for one in entries if one.txn_first_offset >= 0}


async def test_a_segment_of_somebody_else_is_checked_and_not_rebuilt(
    cluster: SegmentCluster,
) -> None:
    cluster.cluster.damage("UPDATE segments SET owned = false")
    report = await cluster.fsck(deep=True)
    assert report.ok, told(report)
    second = (await cluster.segments())[1]
    await cluster.store.delete([second.key_base + ".indexes"])
    (repair,) = await cluster.rebuild()
    assert repair.failure == "it belongs to another cluster"
    assert (await cluster.fsck()).damaged


async def test_a_store_without_a_marker_is_not_written_to(cluster: SegmentCluster) -> None:
    await cluster.store.delete([MARKER_KEY])
    with pytest.raises(MarkerMissingError, match="nothing is rebuilt"):
        await cluster.rebuild()


# The commands.


@pytest.fixture
async def stored(small: SmallCluster, tmp_path: Path) -> AsyncIterator[SegmentCluster]:
    """Lay out a cluster below `tmp_path`, with segments in a store of their own."""
    remote = open_store(f"file:{tmp_path / 'remote'}", clock=SystemClock())
    await claim_anew(small.control, remote, StoreRole.SEGMENTS)
    made = SegmentCluster(small, await small.topic(partition_count=1), MODES["both"])
    made.converter = replace(made.converter, segment_store=remote)
    for _ in range(3):
        await made.write(6)
        await made.converter.convert(made.topic)
    made.store = remote
    yield made
    await remote.close()


def command(tmp_path: Path, *arguments: str, keys: bool = True) -> Result:
    given = ["--set", f"remote.objects=file:{tmp_path / 'remote'}"]
    if keys:
        given += ["--set", f"remote.private_keys.key1={GOLDEN / 'test-only-private.pem'}"]
    runner = CliRunner(env={"NO_COLOR": "1"})
    return runner.invoke(app, [*arguments, *given])


async def run(tmp_path: Path, *arguments: str, keys: bool = True) -> Result:
    """On a thread, because a command runs a loop of its own."""
    data = ["--data", str(tmp_path)] if arguments[0] == "fsck" else []
    return await asyncio.to_thread(command, tmp_path, *arguments, *data, keys=keys)


async def test_the_command_checks_segments_and_makes_their_indexes_anew(
    stored: SegmentCluster, tmp_path: Path
) -> None:
    second = (await stored.segments())[1]
    result = await run(tmp_path, "fsck", "--deep")
    assert result.exit_code == 0, result.output
    assert "3 segments" in result.stdout
    result = await run(tmp_path, "fsck", "--rebuild-indexes")
    assert result.exit_code == 0, result.output
    assert "No indexes of segments are damaged." in result.stdout
    await stored.flip(second.key_base + ".indexes", 20)
    result = await run(tmp_path, "fsck", "--deep")
    assert result.exit_code == 1
    assert f"{second.key_base}.indexes: the offset index" in result.stdout
    result = await run(tmp_path, "fsck", "--deep", "--rebuild-indexes")
    assert result.exit_code == 0, result.output
    assert "rebuilt orders-0: segment 60 to 119" in result.stdout
    await stored.store.delete([second.key_base + ".indexes", second.key_base + ".log"])
    result = await run(tmp_path, "fsck", "--rebuild-indexes", "--json")
    assert result.exit_code == 1
    (repair,) = json.loads(result.stdout)["repairs"]
    assert (repair["where"], repair["rebuilt"]) == ("orders-0", False)


async def test_the_command_says_which_key_is_missing(
    stored: SegmentCluster, tmp_path: Path
) -> None:
    result = await run(tmp_path, "fsck", "--deep", keys=False)
    assert result.exit_code == 1
    assert "its key pair 'key1' has no private key here" in result.stdout


async def test_inspect_shows_each_object_of_a_segment(
    stored: SegmentCluster, tmp_path: Path
) -> None:
    second = tmp_path / "remote" / (await stored.segments())[1].key_base
    result = await run(tmp_path, "inspect", f"{second}.rsm-manifest")
    assert result.exit_code == 0, result.output
    assert re.search(r"^encrypted_for +key1$", result.stdout, re.MULTILINE)
    assert re.search(r"^startOffset +60$", result.stdout, re.MULTILINE)
    result = await run(tmp_path, "inspect", f"{second}.indexes")
    assert result.exit_code == 0, result.output
    assert "offset, 68 bytes, 5 entries" in result.stdout
    assert "transaction" not in result.stdout.partition("\n\n")[2].partition("offset,")[2]
    result = await run(tmp_path, "inspect", f"{second}.log", "--records")
    assert result.exit_code == 0, result.output
    assert re.search(r" 60-69 +0 +10 +none .* 1007/0 +0 +ok$", result.stdout, re.MULTILINE)
    told = json.loads((await run(tmp_path, "inspect", f"{second}.log", "--json")).stdout)
    assert [batch["header"]["base_offset"] for batch in told["batches"]] == [*range(60, 120, 10)]
    result = await run(tmp_path, "inspect", f"{second}.log", keys=False)
    assert result.exit_code == 1
    assert "has no private key here" in result.stderr


# A repair that is cut off.


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("method", "nth"), [("put", 1), ("put", 2), ("segments.replace_upload", 1)]
)
@pytest.mark.parametrize("mode", ["plain", "both"])
async def test_a_repair_that_was_cut_off_is_begun_anew(
    small: SmallCluster, mode: str, method: str, nth: int, after: bool
) -> None:
    # With another distance between entries, so that the repair changes every size.
    cluster = await SegmentCluster.make(small, segments=0)
    cluster.converter = replace(
        cluster.converter, encoding=MODES[mode], index_interval_bytes=20_000
    )
    for _ in range(2):
        await cluster.write(6)
        await cluster.converter.convert(cluster.topic)
    second = (await cluster.segments())[1]
    await cluster.flip(second.key_base + ".indexes", 3)
    control = DyingControl(cluster.control, method, DiesError, nth=nth, after=after)
    store: Any = Dying(cluster.store, method, nth, after=after)
    tier = RemoteTier(stores=beside_blocks(store), keys=KEYS)
    with pytest.raises(DiesError):
        await rebuild_indexes(control, tier)
    done = method == "segments.replace_upload" and after
    assert (await cluster.fsck(deep=True)).ok == done
    assert [repair.failure for repair in await cluster.rebuild()] == ([] if done else [None])
    report = await cluster.fsck(deep=True)
    assert report.ok, told(report)
    assert (await cluster.segments())[1].uploaded != second.uploaded


async def test_a_segment_whose_deletion_began_during_its_repair_is_left_to_the_sweeper(
    cluster: SegmentCluster,
) -> None:
    second = (await cluster.segments())[1]
    await cluster.store.delete([second.key_base + ".indexes"])

    async def remove() -> None:
        await cluster.unchain(120)
        stores = beside_blocks(cluster.store)
        await delete_doomed(cluster.control.segments, stores, grace_ms=0, chunk_rows=10)

    store: Any = Acting(cluster.store, "put", remove)
    (repair,) = await rebuild_indexes(
        cluster.control, RemoteTier(stores=beside_blocks(store), keys=KEYS)
    )
    assert repair.failure is not None
    assert "cannot be uploaded again" in repair.failure
    assert await cluster.objects(second) == [".indexes", ".rsm-manifest"]
    report = await cluster.fsck(deep=True)
    assert not report.damaged, told(report)
    assert len(report.findings) == 2
