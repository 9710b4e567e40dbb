"""A broker that lies is found out by real clients and the checker, whatever the lie."""

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.faults import lies

from stratalog.settings import BlockSettings, FetchSettings, GroupsSettings
from stratalog.testing import Broker
from stratalog.testing.broker import FAST
from stratalog.testing.checker import History, Report, check
from stratalog.testing.checker.client_load import Load
from stratalog.testing.checker.history import Commit, Stage
from stratalog.testing.checker.workload import Workload, create_topic, new_topic_name

ENOUGH_ACKS = 400
DRAIN_SECONDS = 2.0

SETTINGS = replace(
    FAST,
    block=BlockSettings(window_ms=5, cache_bytes=0),
    fetch=FetchSettings(poll_ms=50),
    groups=GroupsSettings(initial_rebalance_delay_ms=50),
)
"""Without the cache of fresh blocks, every read goes the way that the lies are planted in."""

LIES: list[tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = [
    (lies.forget_commits, {"lost-write", "inconsistent-offsets"}),
    (lies.answer_stale_offsets, {"inconsistent-offsets", "nonmonotonic-send"}),
    (lies.commit_twice, {"duplicate"}),
    (lies.withhold_the_end, {"unseen"}),
    (lies.swap_rows, {"inconsistent-offsets"}),
    (lies.skip_between_fetches, {"poll-skip"}),
    (lies.skip_within_a_fetch, {"int-poll-skip"}),
    (lies.answer_backwards, {"int-nonmonotonic-poll"}),
    (lies.deny_offsets, {"out-of-range", "nonmonotonic-poll"}),
]


@pytest.fixture(autouse=True)
def quiet_clients() -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


async def judged(*, groups: bool = False) -> Report:
    """A short life of a broker with many clients."""
    with Broker(SETTINGS) as broker:
        load = Load(
            bootstrap=broker.bootstrap,
            topic=new_topic_name(),
            partitions=2,
            seed=1,
            sends_per_second=100,
            patience_s=5,
        )
        await create_topic(load)
        workload = Workload(load, groups=groups)
        workload.start()
        recorder = workload.recorder
        assert await workload.until(lambda: recorder.acked >= ENOUGH_ACKS, 30)
        if groups:
            assert await workload.until(lambda: has_committed(recorder.history), 30)
        await workload.finish(seconds=DRAIN_SECONDS)
    return check(recorder.history)


def has_committed(history: History) -> bool:
    return any(isinstance(event, Commit) and event.stage is Stage.OK for event in history)


async def test_an_honest_broker_is_found_to_be_honest() -> None:
    report = await judged()
    assert report.findings == []
    assert report.counts["records read"] > report.counts["sent ok"] >= ENOUGH_ACKS


@pytest.mark.parametrize(("lie", "expected"), LIES, ids=lambda each: getattr(each, "__name__", ""))
async def test_a_lie_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
    lie: Callable[[pytest.MonkeyPatch], None],
    expected: set[str],
) -> None:
    lie(monkeypatch)
    report = await judged()
    assert expected <= set(report.found)


async def test_a_group_that_is_told_less_than_it_committed_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lies.forget_group_commits(monkeypatch)
    report = await judged(groups=True)
    assert "committed-back" in report.found
