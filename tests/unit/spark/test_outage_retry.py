"""Calls are repeated for a while if that can help, and only then."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructType
from tests.support.failing_calls import Failing, HastyClock

from stratalog.control.errors import CommitInDoubtError, ControlUnavailableError
from stratalog.control.open import open_control_plane
from stratalog.control.scans.ledger import ScansLedger
from stratalog.errors import CallError, StratalogError
from stratalog.opening.cluster import open_control
from stratalog.settings import Settings
from stratalog.spark import sink
from stratalog.spark.options import batch_options
from stratalog.spark.outage_retry import retry_for
from stratalog.spark.scan_calls import plan, scan_request
from stratalog.spark.sink import open_stream_writer, open_writer


async def test_a_call_is_repeated_until_it_succeeds() -> None:
    assert await retry_for(Failing(5), 60, clock=HastyClock()) == 6


async def test_patience_ends() -> None:
    failing, clock = Failing(10**6), HastyClock()
    before_s = clock.monotonic()
    with pytest.raises(ControlUnavailableError):
        await retry_for(failing, 10, clock=clock)
    assert 8 <= clock.monotonic() - before_s <= 10
    assert failing.calls > 5


async def test_without_patience_and_for_mistakes_there_is_one_call() -> None:
    for failing, retry_s in ((Failing(9), 0), (Failing(9, CallError("wrong")), 60)):
        with pytest.raises((ControlUnavailableError, CallError)):
            await retry_for(failing, retry_s, clock=HastyClock())
        assert failing.calls == 1


OUTAGES = [ControlUnavailableError("away"), CommitInDoubtError("away while committing the lease")]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a topic, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stratalog.toml").write_text("")

    async def prepare() -> None:
        control = await open_control_plane("sqlite:stratalog-data/control.db")
        await control.topics.create("a", partition_count=1, configs={})
        await control.close()

    asyncio.run(prepare())


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("outage", OUTAGES)
def test_a_plan_outlives_a_control_plane_that_is_away_for_a_moment(
    outage: StratalogError, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Failing(3, outage)
    take_once = ScansLedger.take_snapshot

    async def take(*given: Any, **how: Any) -> object:
        taken = await take_once(*given, **how)
        await away()
        return taken

    monkeypatch.setattr(ScansLedger, "take_snapshot", take)
    options = batch_options({"topic": "a"})
    request = scan_request(options, options.columns)
    with pytest.raises(type(outage)):
        plan(options, request)
    assert plan(options, request, retry_s=60).splits == []
    assert away.calls == 4


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("outage", OUTAGES)
def test_a_streams_sink_outlives_a_control_plane_that_is_away_for_a_moment(
    outage: StratalogError, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Failing(3, outage)
    take_once = ScansLedger.take_lease

    async def take(*given: Any, **how: Any) -> object:
        taken = await take_once(*given, **how)
        await away()
        return taken

    monkeypatch.setattr(ScansLedger, "take_lease", take)
    schema = StructType().add("value", BinaryType())
    with pytest.raises(type(outage)):
        open_writer({"topic": "a"}, schema, overwrite=False)
    open_stream_writer({"topic": "a", "leaseMs": "1h"}, schema, overwrite=False)
    assert away.calls == 4


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("outage", OUTAGES)
def test_a_commit_waits_for_a_control_plane_that_cannot_be_opened(
    outage: StratalogError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be in doubt whether an older schema was brought up to date."""
    writer = open_stream_writer(
        {"topic": "a", "sinkId": "s"}, StructType().add("value", BinaryType()), overwrite=False
    )
    away = Failing(2, outage)

    async def opened(settings: Settings) -> object:
        await away()
        return await open_control(settings)

    monkeypatch.setattr(sink, "open_control", opened)
    writer.commit([], 0)
    assert away.calls == 3
