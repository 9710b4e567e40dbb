"""Commits of several tasks at the same time."""

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.pipeline.lab import EAGER, Lab

from stratalog.control.segments.model import ChainOutcome
from stratalog.pipeline.kinds.merge_model import LogMade, SegmentPlan
from stratalog.pipeline.kinds.segment_finisher import SegmentFinisher


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with Lab.open(tmp_path) as lab:
        tiering = replace(EAGER, task_bytes=1, max_segment_bytes=1)
        lab.settings = replace(lab.settings, tiering=tiering)
        yield lab


async def test_segments_of_a_partition_are_finished_one_after_the_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here each part has a task of its own, and all come at once."""
    topic = await lab.topic(2)
    await lab.fill(topic)
    under_way: set[int] = set()
    order: dict[int, list[int]] = defaultdict(list)
    most_under_way = 0
    real = SegmentFinisher.finish

    async def watched(self: SegmentFinisher, made: LogMade, plan: SegmentPlan) -> ChainOutcome:
        nonlocal most_under_way
        assert plan.partition not in under_way, "the one before it is not finished"
        under_way.add(plan.partition)
        most_under_way = max(most_under_way, len(under_way))
        order[plan.partition].append(plan.base_offset)
        try:
            return await real(self, made, plan)
        finally:
            under_way.remove(plan.partition)

    monkeypatch.setattr(SegmentFinisher, "finish", watched)
    report = await lab.run()
    assert not report.failed
    assert report.segments == 12
    assert order == {partition: sorted(offsets) for partition, offsets in order.items()}
    assert most_under_way == 2, "partitions do not wait for each other"
    await lab.check(topic)


async def test_what_breaks_a_commit_comes_out_as_itself(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await lab.topic(2)
    await lab.fill(topic)

    async def fail(*_args: object, **_kwargs: object) -> None:
        raise KeyError("a mistake of ours")

    monkeypatch.setattr(lab.control.pipeline, "release_claims", fail)
    with pytest.raises(KeyError, match="a mistake of ours"):
        await lab.run()
