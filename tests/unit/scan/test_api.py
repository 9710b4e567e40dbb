"""`stratalog.read`, as those call it who have pandas, polars or DuckDB."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from tests.unit.batch.edits import with_body
from tests.unit.scan.rig import NOW_MS, ScanRig

import stratalog
from stratalog.batch.build import build_batch
from stratalog.batch.header import Codec
from stratalog.batch.records import Record
from stratalog.control.errors import NoControlPlaneError
from stratalog.control.plane import ControlPlane
from stratalog.scan.errors import (
    PartitionNotFoundError,
    ScanDamagedError,
    ScanRefusedError,
    SnapshotGoneError,
    TopicNotFoundError,
)
from stratalog.scan.left_out import LeftOutBatch


@pytest.fixture
async def orders(rig: ScanRig) -> ScanRig:
    """100 records in partition 0, of both tiers, and 20 in partition 1."""
    topic = await rig.topic(partitions=2)
    await rig.write(topic, {0: [30, 30]}, codec=Codec.ZSTD)
    await rig.convert(topic)
    await rig.write(topic, {0: [40], 1: [20]})
    return rig


def read(rig: ScanRig, *topics: str, **how: Any) -> pa.Table:
    return stratalog.read(topics or "orders", settings=rig.settings, **how).read_all()


def offsets(rig: ScanRig, **how: Any) -> list[tuple[int, int]]:
    table = read(rig, columns=["partition", "offset"], **how)
    return list(zip(*table.to_pydict().values(), strict=True))


EVERYTHING = [(0, offset) for offset in range(100)] + [(1, offset) for offset in range(20)]


async def test_pandas_polars_and_duckdb_take_what_is_read(orders: ScanRig) -> None:
    frame = stratalog.read("orders", settings=orders.settings).read_pandas()
    assert list(zip(frame["partition"], frame["offset"], strict=True)) == EVERYTHING
    polars = pl.from_arrow(stratalog.read("orders", settings=orders.settings))
    assert isinstance(polars, pl.DataFrame)
    assert polars.select("partition", "offset").rows() == EVERYTHING
    reader = stratalog.read("orders", settings=orders.settings)
    counted = duckdb.sql('SELECT tier, count(*), max("offset") FROM reader GROUP BY 1 ORDER BY 1')
    assert counted is not None
    assert counted.fetchall() == [("block", 60, 99), ("remote", 60, 59)]
    del reader


async def test_pandas_polars_and_duckdb_see_which_records_have_no_headers(orders: ScanRig) -> None:
    written = [*orders.records["orders", 0], *orders.records["orders", 1]]
    expected = [len(record.headers) or None for record in written]
    assert set(expected) == {2, None}
    frame = read(orders, columns=["headers"]).to_pandas()
    assert [None if each is None else len(each) for each in frame["headers"]] == expected
    reader = stratalog.read("orders", columns=["headers"], settings=orders.settings)
    polars = pl.from_arrow(reader)
    assert isinstance(polars, pl.DataFrame)
    assert polars["headers"].null_count() == expected.count(None)
    assert polars["headers"].list.len().to_list() == expected
    reader = stratalog.read("orders", columns=["headers"], settings=orders.settings)
    counted = duckdb.sql("SELECT len(headers) FROM reader")
    assert counted is not None
    assert [length for (length,) in counted.fetchall()] == expected
    del reader


async def test_a_mistyped_path_is_named_and_nothing_is_made_there(
    orders: ScanRig, tmp_path: Path
) -> None:
    path = tmp_path / "mistyped" / "control.db"
    storage = replace(orders.settings.storage, control=f"sqlite:{path}")
    with pytest.raises(NoControlPlaneError, match="mistyped"):
        stratalog.read("orders", settings=replace(orders.settings, storage=storage))
    assert not path.parent.exists()


async def test_an_object_that_is_missing_is_told_with_the_store_and_what_helps(
    orders: ScanRig, tmp_path: Path
) -> None:
    storage = replace(orders.settings.storage, objects=f"file:{tmp_path / 'not mounted'}")
    reader = stratalog.read("orders", settings=replace(orders.settings, storage=storage))
    with pytest.raises(SnapshotGoneError, match=r"is not in file:.*not mounted: ") as told:
        reader.read_all()
    for part in ("lease has ended", "storage.objects in the settings", "load() again", "leaseMs"):
        assert part in str(told.value)
    assert not await leased(orders.control)


async def test_rows_come_in_order_however_many_threads_decode(
    rig: ScanRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.scan.batch_groups.GROUP_RECORDS", 10)
    topic = await rig.topic(partitions=2)
    await rig.write(topic, {0: [3] * 200, 1: [3] * 200})
    expected = [(partition, offset) for partition in (0, 1) for offset in range(600)]
    for threads in (1, 2, 5):
        assert offsets(rig, threads=threads) == expected


async def test_places_are_offsets_times_and_ends(orders: ScanRig) -> None:
    def when(number: int) -> datetime:
        return datetime.fromtimestamp(NOW_MS / 1000 + number, UTC)

    assert offsets(orders) == EVERYTHING
    assert offsets(orders, start="latest") == []
    assert offsets(orders, start=95, partitions=[0]) == EVERYTHING[95:100]
    assert offsets(orders, start={0: 90, 1: 15}) == EVERYTHING[90:100] + EVERYTHING[115:]
    assert offsets(orders, end={0: 3, 1: "earliest"}) == EVERYTHING[:3]
    assert offsets(orders, start=when(98), end=when(102)) == [(0, 98), (0, 99), (1, 0), (1, 1)]


async def test_a_time_between_two_milliseconds_stands_for_the_later_one(orders: ScanRig) -> None:
    exact = datetime.fromtimestamp(NOW_MS / 1000 + 98, UTC)
    for microseconds, first in [(-1000, 98), (-999, 98), (0, 98), (1, 99), (400, 99), (501, 99)]:
        moment = exact + timedelta(microseconds=microseconds)
        assert offsets(orders, start=moment, partitions=[0])[0] == (0, first)
        assert offsets(orders, end=moment, partitions=[0])[-1] == (0, first - 1)


async def test_partitions_are_read_of_all_topics_or_of_those_of_a_pattern_that_have_them(
    orders: ScanRig,
) -> None:
    await orders.write(await orders.topic("payments", partitions=3), {1: [2], 2: [4]})

    def found(**how: Any) -> set[tuple[str, int]]:
        columns = ["topic", "partition"]
        reader = stratalog.read(**how, columns=columns, settings=orders.settings)
        return {(row["topic"], row["partition"]) for row in reader.read_all().to_pylist()}

    assert found(topics="orders", partitions=[]) == set()
    assert found(topics="payments", partitions=(2, 2)) == {("payments", 2)}
    both = {("orders", 1), ("payments", 1)}
    assert found(topics=["orders", "payments"], partitions={1}) == both
    assert found(pattern=".*", partitions={1, 2}) == both | {("payments", 2)}


async def test_several_topics_and_patterns_are_read_by_name(orders: ScanRig) -> None:
    await orders.write(await orders.topic("payments"), {0: [5]})
    for table in (
        read(orders, "payments", "orders", columns=["topic"]),
        stratalog.read(pattern=".*", columns=["topic"], settings=orders.settings).read_all(),
    ):
        assert table["topic"].to_pylist() == ["orders"] * 120 + ["payments"] * 5


async def test_a_wrong_call_is_refused_at_once(orders: ScanRig) -> None:
    await orders.topic("payments")
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ScanRefusedError, "no column 'vlaue'; did you mean 'value'", {"columns": ["vlaue"]}),
        (ScanRefusedError, "says no time zone", {"start": datetime(2026, 1, 1)}),
        (ScanRefusedError, "-3 is no position", {"end": -3}),
        (ScanRefusedError, "'newest' is no position", {"start": "newest"}),
        (ScanRefusedError, "one way", {"pattern": "x"}),
        (TopicNotFoundError, "did you mean 'orders'", {"topics": "order"}),
        (TopicNotFoundError, "did you mean 'orders'", {"topics": "order", "partitions": [0]}),
        (ScanRefusedError, "one way", {"pattern": "x", "partitions": [0]}),
        (ScanRefusedError, "one way", {"topics": (), "partitions": [0]}),
        (PartitionNotFoundError, "no partition 7: they are 0 to 1", {"partitions": [0, 7]}),
        (PartitionNotFoundError, "no partition 2: they are 0 to 1", {"partitions": [2]}),
        (PartitionNotFoundError, "no partition -1", {"partitions": [-1]}),
        (
            PartitionNotFoundError,
            "'payments' has no partition 1",
            {"topics": ["orders", "payments"], "partitions": [1]},
        ),
        (ScanRefusedError, "columns has 'offset' more than once", {"columns": ["offset"] * 2}),
        (ScanRefusedError, "threads is -1: give one or more", {"threads": -1}),
        (ScanRefusedError, "threads is 0", {"threads": 0}),
    ]
    for error, message, how in wrong:
        with pytest.raises(error, match=message):
            stratalog.read(**{"topics": "orders", "settings": orders.settings, **how})
    with pytest.raises(ScanRefusedError, match="topics by name"):
        stratalog.read(pattern="o.*", start={0: 1}, settings=orders.settings)
    assert await orders.control.scans.oldest_lease_ms() is None


async def leased(control: ControlPlane) -> bool:
    return await control.scans.oldest_lease_ms() is not None


async def test_the_lease_lasts_as_long_as_somebody_reads(orders: ScanRig) -> None:
    reader = stratalog.read("orders", settings=orders.settings)
    assert await leased(orders.control)
    reader.read_all()
    assert not await leased(orders.control)
    reader = stratalog.read("orders", settings=orders.settings)
    reader.read_next_batch()
    assert await leased(orders.control)
    del reader
    assert not await leased(orders.control)
    reader = stratalog.read("orders", settings=orders.settings)
    del reader
    assert not await leased(orders.control)


async def test_the_lease_is_renewed_while_somebody_reads(
    orders: ScanRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.scan.api._LEASE_MS", 300)
    reader = stratalog.read("orders", settings=orders.settings)
    started_ms = await orders.control.scans.oldest_lease_ms()
    async with asyncio.timeout(30):
        while True:
            # Another lease takes the expired ones away.
            other = await orders.control.scans.take_lease("clock", duration_ms=1)
            assert await orders.control.scans.oldest_lease_ms() == started_ms
            if started_ms is not None and other.started_ms > started_ms + 900:
                break
            await asyncio.sleep(0.05)
    assert reader.read_all().num_rows == 120


async def test_the_settings_file_is_found_as_by_the_command_line(
    orders: ScanRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = orders.settings.storage
    file = tmp_path / "other.toml"
    file.write_text(f'[storage]\nobjects = "{storage.objects}"\ncontrol = "{storage.control}"\n')
    assert stratalog.read("orders", config=str(file)).read_all().num_rows == 120
    monkeypatch.setenv("STRATALOG_CONFIG", str(file))
    assert stratalog.read("orders").read_all().num_rows == 120


def test_importing_stratalog_stays_light() -> None:
    script = "import sys, stratalog; print('pyarrow' in sys.modules, 'read' in dir(stratalog))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"False True\n"


def test_a_name_that_stratalog_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'raed'"):
        stratalog.__getattr__("raed")


async def test_conditions_leave_out_records_of_partitions_that_are_named(rig: ScanRig) -> None:
    topic = await rig.topic(partitions=3)
    await rig.write(topic, {0: [10], 1: [10], 2: [10]})

    def found(**how: Any) -> list[tuple[int, int]]:
        table = stratalog.read("orders", settings=rig.settings, **how).read_all()
        return [(row["partition"], row["offset"]) for row in table.to_pylist()]

    assert await asyncio.to_thread(found, where="offset >= 8", partitions=[0, 2]) == [
        (0, 8),
        (0, 9),
        (2, 8),
        (2, 9),
    ]
    both = "offset = 0 AND partition IN (1, 2)"
    assert await asyncio.to_thread(found, where=both, partitions=[0, 2]) == [(2, 0)]


async def test_batches_that_cannot_be_decoded_are_collected_by_a_function(rig: ScanRig) -> None:
    topic = await rig.topic()
    good = build_batch([Record(place, NOW_MS, None, b"v") for place in range(10)])
    bad = with_body(good, b"\xff" * 100)
    await rig.put(topic, {0: [good, bad, good, bad]})
    left_out: list[LeftOutBatch] = []
    found = read(rig, on_undecodable=left_out.append)
    assert found.column("offset").to_pylist() == [*range(10), *range(20, 30)]
    spans = sorted((one.first_offset, one.last_offset) for one in left_out)
    assert spans == [(10, 19), (30, 39)]
    with pytest.raises(ScanDamagedError, match="on_undecodable='skip'"):
        read(rig)
    with pytest.raises(ScanRefusedError, match="'error', 'skip' or a function"):
        read(rig, on_undecodable="ignore")
