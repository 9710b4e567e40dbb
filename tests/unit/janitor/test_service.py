import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

import pytest
from tests.unit.janitor.fakes import FakeControl, FakeStore, object_row, segment

from stratalog.control.errors import ControlUnavailableError
from stratalog.control.segments.model import SegmentState
from stratalog.errors import StratalogError
from stratalog.janitor.errors import SegmentPrefixError
from stratalog.janitor.retention import Retention
from stratalog.janitor.service import Janitor
from stratalog.metrics import Metrics
from stratalog.objects.store import ObjectStore
from stratalog.opening.errors import CLAIM_LOST
from stratalog.opening.marker import StoreMarker
from stratalog.segment.stores import SegmentStores
from stratalog.settings import JanitorSettings

STEPS = [
    "retention",
    "topic purge",
    "deletion",
    "unfinished segments",
    "segment deletion",
    "sweep",
    "segment sweep",
    "answer expiry",
    "writer expiry",
    "deletion note expiry",
    "producer expiry",
    "offset expiry",
]


class HeldClock:
    """Time that moves when a test says so."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.asleep = asyncio.Event()
        self.wake = asyncio.Event()

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.asleep.set()
        await self.wake.wait()
        self.wake.clear()


def janitor_of(
    control: FakeControl,
    store: FakeStore,
    clock: HeldClock | None = None,
    *,
    interval_ms: int = 1000,
    entropy: Callable[[int], bytes] = lambda size: b"\x80" * size,
    metrics: Metrics | None = None,
    segments: SegmentStores | None = None,
    segment_prefix: str = "segments/",
    on_claim_lost: Callable[[StratalogError], None] | None = None,
) -> Janitor:
    return Janitor(
        control=control,
        store=store.store,
        retention_of=lambda topic: Retention(ms=1, bytes=None),
        settings=JanitorSettings(interval_ms=interval_ms, chunk_rows=3),
        offsets_retention_ms=1000,
        clock=clock or HeldClock(),
        entropy=entropy,
        metrics=metrics,
        segments=segments,
        segment_prefix=segment_prefix,
        on_claim_lost=on_claim_lost,
    )


def busy() -> tuple[FakeControl, FakeStore]:
    control = FakeControl(
        purgeable=2,
        marked=[object_row(1)],
        doomed=[segment(1)],
        unchained=[segment(2, state=SegmentState.COPY_STARTED)],
        old_answers=4,
        idle_producers=7,
        old_offsets=4,
    )
    return control, FakeStore({"k1"})


async def test_one_failing_step_leaves_the_others_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    control, store = busy()
    control.failing["objects.marked"] = ControlUnavailableError("the database is away")
    metrics = Metrics()
    with caplog.at_level(logging.WARNING):
        outcomes = await janitor_of(control, store, metrics=metrics).run_once()
    assert [outcome.name for outcome in outcomes] == STEPS
    done = {outcome.name: outcome.done for outcome in outcomes if outcome.error is None}
    assert done == {
        "retention": 0,
        "topic purge": 2,
        "unfinished segments": 1,
        "segment deletion": 1,
        "answer expiry": 4,
        "writer expiry": 0,
        "deletion note expiry": 0,
        "producer expiry": 7,
        "offset expiry": 4,
    }
    assert (
        "could not finish deletion, and will try again: the database is away. "
        "Until then unreferenced objects keep their space." in caplog.text
    )
    count = metrics.registry.get_sample_value
    assert count("stratalog_janitor_failures_total", {"step": "deletion"}) == 1
    assert count("stratalog_janitor_removed_total", {"step": "topic purge"}) == 2


@pytest.mark.parametrize("marker", [None, StoreMarker(cluster_id=UUID(int=1), generation=1)])
async def test_nothing_is_deleted_from_a_store_that_is_not_the_clusters(
    marker: StoreMarker | None,
) -> None:
    control, store = busy()
    store.marker = marker
    lost: list[StratalogError] = []
    outcomes = await janitor_of(control, store, on_claim_lost=lost.append).run_once()
    failed = {outcome.name for outcome in outcomes if isinstance(outcome.error, CLAIM_LOST)}
    assert failed >= {"deletion", "segment deletion"}
    assert (store.keys, store.asked) == ({"k1"}, [])
    assert lost


async def test_an_error_of_our_own_is_logged_with_its_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    control, store = busy()
    control.failing["topics.all"] = ZeroDivisionError()
    with caplog.at_level(logging.WARNING):
        outcomes = await janitor_of(control, store).run_once()
    assert isinstance(outcomes[0].error, ZeroDivisionError)
    assert "Traceback" in caplog.text


async def test_it_runs_after_every_pause_until_it_is_stopped() -> None:
    control, store = busy()
    clock = HeldClock()
    janitor = janitor_of(control, store, clock)
    janitor.start()
    janitor.start()
    await clock.asleep.wait()
    assert control.calls == []
    for runs in (1, 2):
        clock.asleep.clear()
        clock.wake.set()
        await clock.asleep.wait()
        assert control.calls.count("topics.all") == runs
    await janitor.stop()
    await janitor.stop()
    clock.wake.set()
    await asyncio.sleep(0)
    assert control.calls.count("topics.all") == 2


async def test_without_brokers_only_what_they_ask_for_is_left_to_them() -> None:
    control, store = busy()
    assert await janitor_of(control, store).free_store() == 2
    assert (control.old_answers, control.idle_producers, control.old_offsets) == (0, 7, 4)


@pytest.mark.parametrize(("drawn", "pause"), [(b"\0\0", 0.8), (b"\xff\xff", 1.2)])
async def test_pauses_are_spread_around_the_interval(drawn: bytes, pause: float) -> None:
    clock = HeldClock()
    janitor = janitor_of(*busy(), clock, entropy=lambda size: drawn)
    janitor.start()
    await clock.asleep.wait()
    await janitor.stop()
    assert clock.pauses == [pytest.approx(pause)]


async def test_an_interval_of_zero_switches_it_off() -> None:
    clock = HeldClock()
    janitor = janitor_of(*busy(), clock, interval_ms=0)
    janitor.start()
    await asyncio.sleep(0)
    await janitor.stop()
    assert clock.pauses == []


def never(url: str) -> ObjectStore:
    raise AssertionError(f"nobody asked for {url}")


@pytest.mark.parametrize("prefix", ["", "b", "blocks", "blocks/", "blocks/segments/"])
async def test_segments_and_blocks_of_one_store_keep_apart(prefix: str) -> None:
    control, store = busy()
    with pytest.raises(SegmentPrefixError, match="give segments a store of their own"):
        janitor_of(control, store, segment_prefix=prefix)
    elsewhere = SegmentStores(FakeStore(url="elsewhere:").store, never)
    janitor_of(control, store, segments=elsewhere, segment_prefix=prefix)


@pytest.mark.parametrize("prefix", ["blocks-", "segments", "a/blocks/", "block/"])
async def test_a_prefix_that_only_looks_like_the_one_of_blocks_is_taken(prefix: str) -> None:
    janitor_of(*busy(), segment_prefix=prefix)
