"""The watch of an idle broker on the count of its commits."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.block.rig import TellingClock, soon

from stratalog.block.announced_writer import AnnouncedWriter
from stratalog.block.count_watch import CountWatch
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.writers.errors import ControlPlaneHaltedError, WriterRefusedError
from stratalog.control.writers.model import CommitCount, WriterKind

INTERVAL_S = 3.0


class Watched:
    def __init__(self, control: ControlPlane) -> None:
        self.control = control
        self.announced = AnnouncedWriter(control.writers.new_tag())
        self.asked = 0
        self.failure: Exception | None = None
        self.refused: asyncio.Future[WriterRefusedError] = asyncio.Future()
        self.clock = TellingClock()
        self.watch = CountWatch(
            control,
            self.announced,
            interval_s=INTERVAL_S,
            clock=self.clock,
            on_refused=self._refused,
        )
        self._check = control.writers.check

    async def check(self, count: CommitCount) -> None:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        await self._check(count)

    async def _refused(self, refusal: WriterRefusedError) -> None:
        self.refused.set_result(refusal)

    async def pass_interval(self) -> None:
        """Let an interval pass, until the next one begins."""
        await self.clock.advance(INTERVAL_S)
        assert await self.clock.next_nap() == INTERVAL_S


@pytest.fixture
async def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    control = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    watched = Watched(control)
    monkeypatch.setattr(control.writers, "check", watched.check)
    await control.writers.announce(watched.announced.tag, WriterKind.BROKER)
    watched.watch.start()
    await watched.clock.next_nap()
    yield watched
    await watched.watch.stop()
    await control.close()


async def test_an_idle_broker_asks_and_a_busy_one_does_not(watched: Watched) -> None:
    await watched.pass_interval()
    assert watched.asked == 1
    watched.announced.committed()
    await watched.pass_interval()
    assert watched.asked == 1
    assert not watched.refused.done()


async def test_an_idle_broker_of_a_halted_cluster_is_refused(watched: Watched) -> None:
    await watched.control.identity.halt("a test.")
    await watched.clock.advance(INTERVAL_S)
    assert isinstance(await soon(watched.refused), ControlPlaneHaltedError)


@pytest.mark.parametrize("failure", [ControlUnavailableError("away"), ZeroDivisionError()])
async def test_a_question_that_fails_refuses_nobody(watched: Watched, failure: Exception) -> None:
    watched.failure = failure
    await watched.pass_interval()
    await watched.pass_interval()
    assert watched.asked == 2
    assert not watched.refused.done()
