"""Calls are repeated for a while if that can help, and only then."""

import asyncio
from pathlib import Path

import pytest

from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlUnavailableError
from stratalog.errors import CallError
from stratalog.spark import planning
from stratalog.spark.options import batch_options
from stratalog.spark.patience import patiently
from stratalog.spark.planning import plan, scan_request
from stratalog.testing import ManualClock


class HastyClock(ManualClock):
    """On which every sleep is over at once."""

    async def sleep(self, seconds: float) -> None:
        await self.advance(seconds)


class Failing:
    def __init__(self, times: int, error: Exception | None = None) -> None:
        self.calls = 0
        self._times = times
        self._error = error or ControlUnavailableError("away")

    async def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self._times:
            raise self._error
        return self.calls


async def test_a_call_is_repeated_until_it_succeeds() -> None:
    assert await patiently(Failing(5), 60, clock=HastyClock()) == 6


async def test_patience_ends() -> None:
    failing, clock = Failing(10**6), HastyClock()
    before_s = clock.monotonic()
    with pytest.raises(ControlUnavailableError):
        await patiently(failing, 10, clock=clock)
    assert 8 <= clock.monotonic() - before_s <= 10
    assert failing.calls > 5


async def test_without_patience_and_for_mistakes_there_is_one_call() -> None:
    for failing, patience_s in ((Failing(9), 0), (Failing(9, CallError("wrong")), 60)):
        with pytest.raises((ControlUnavailableError, CallError)):
            await patiently(failing, patience_s, clock=HastyClock())
        assert failing.calls == 1


def test_a_plan_outlives_a_control_plane_that_is_away_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stratalog.toml").write_text("")

    async def prepare() -> None:
        control = await open_control_plane("sqlite:stratalog-data/control.db")
        await control.create_topic("a", partition_count=1, configs={})
        await control.close()

    asyncio.run(prepare())
    away = Failing(2)
    plan_once = planning._plan

    async def planned(*given: object) -> object:
        await away()
        return await plan_once(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(planning, "_plan", planned)
    options = batch_options({"topic": "a"})
    request = scan_request(options, options.columns)
    with pytest.raises(ControlUnavailableError):
        plan(options, request)
    assert plan(options, request, patience_s=60).splits == []
