"""The bars of a run, as a terminal shows them."""

import io
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from rich.console import Console

from stratalog.cli import pipeline_bars
from stratalog.cli.pipeline_bars import Bars
from stratalog.pipeline.hosting.job_progress import TaskCounts
from stratalog.pipeline.jobs import Begin, Bin, BinOutcome, unnoticed
from stratalog.pipeline.kinds.merge_model import MergeTask

_BAR = re.compile(r"(\w+) [^\w\n]*(\d+/\d+) tasks")


def work(name: str, tasks: int) -> Bin:
    return Bin(name=name, tasks=[MergeTask(parts=())] * tasks)


class Terminal:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._printed = io.StringIO()
        console = Console(file=self._printed, force_terminal=True, width=80, color_system=None)
        patch.setattr(pipeline_bars, "stderr", console)
        self.bars = Bars()

    def lines(self) -> list[str]:
        """Return the stages on the screen, with their finished and planned tasks."""
        return [f"{stage} {count}" for stage, count in dict(_BAR.findall(self.shown())).items()]

    def shown(self) -> str:
        self._printed.seek(0)
        self._printed.truncate()
        self.bars.refresh()
        return self._printed.getvalue()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)


def test_every_stage_has_a_bar_that_counts_its_tasks(terminal: Terminal) -> None:
    bars = terminal.bars
    merges, split = [work("merge 1 of 2", 4), work("merge 2 of 2", 1)], work("split 1 of 1", 2)
    with bars.shown():
        bars.plan([*merges, split])
        assert terminal.lines() == ["merge 0/5", "split 0/2"]
        for each in (*merges, split):
            bars.bin_started(each)
        bars.bin_moved(merges[0], TaskCounts(done=1, running=2))
        bars.bin_moved(merges[0], TaskCounts(done=3))
        bars.bin_moved(split, TaskCounts(done=2))
        assert terminal.lines() == ["merge 3/5", "split 2/2"]


def test_what_is_planned_later_is_added_to_the_bar_of_its_stage(terminal: Terminal) -> None:
    bars, first, again = terminal.bars, work("merge 1 of 1", 2), work("merge 1 of 1, again", 1)
    with bars.shown():
        bars.plan([first])
        bars.bin_started(first)
        bars.bin_ended(first, failed=True)
        bars.plan([again])
        assert terminal.lines() == ["merge 2/3"]
        bars.bin_started(again)
        bars.bin_moved(again, TaskCounts(done=1))
        bars.bin_ended(again, failed=False)
        assert terminal.lines() == ["merge 3/3"]


class _Jobs:
    async def run(self, bins: Sequence[Bin], begin: Begin) -> AsyncGenerator[BinOutcome, None]:
        for _ in ():
            yield _

    def distrust(self) -> None:
        raise AssertionError("nothing has failed")


async def test_spark_is_seen_to_start_and_its_jobs_are_announced(terminal: Terminal) -> None:
    @asynccontextmanager
    async def open_jobs() -> AsyncIterator[_Jobs]:
        assert terminal.lines() == []
        assert "starting Spark" in terminal.shown()
        yield _Jobs()

    with terminal.bars.shown():
        async with terminal.bars.announced(open_jobs) as jobs:
            outcomes = jobs.run([work("split 1 of 1", 3)], unnoticed)
            assert [outcome async for outcome in outcomes] == []
            assert terminal.lines() == ["split 0/3"]
