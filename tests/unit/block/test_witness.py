"""Witnesses: which commits they tell, when, and for how long they are evidence."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.block.rig import GatedStore, TellingClock, soon

from stratalog.block.announced_writer import AnnouncedWriter
from stratalog.block.newest_footers import check_not_behind
from stratalog.block.witness import (
    WITNESS_AGE_MS,
    CommitWitness,
    Witness,
    delete_old_witnesses,
    encode_witness,
    read_witnesses,
    witness_key,
)
from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.writers.model import WriterKind
from stratalog.ids import WriterTag
from stratalog.objects.errors import StoreUnavailableError
from stratalog.objects.faulty import ScriptedFaults
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening.errors import ControlPlaneBehindError

TAG = WriterTag(0xABC)
KEY = "witness/0000000abc"
INTERVAL_S = 5


class Desk:
    def __init__(self) -> None:
        self.clock = TellingClock()
        self.store = GatedStore(open_store("memory:", clock=SystemClock()), ScriptedFaults([]))
        self.announced = AnnouncedWriter(TAG)
        self.witness = CommitWitness(
            self.announced, self.store, interval_ms=INTERVAL_S * 1000, clock=self.clock
        )
        self.witness.start()

    def commit(self) -> None:
        self.announced.committed()
        self.witness.committed()

    async def told(self) -> int | None:
        keys = [info.key async for info in self.store.list("")]
        assert keys in ([], [KEY])
        return json.loads(bytes((await self.store.get(KEY)).data))["commits"] if keys else None


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    yield desk
    desk.store.gated = False
    await soon(desk.witness.stop())


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    control = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    yield control
    await control.close()


async def test_commits_that_no_footer_tells_are_witnessed_after_the_interval(desk: Desk) -> None:
    desk.commit()
    desk.commit()
    assert await desk.clock.next_nap() == INTERVAL_S
    assert await desk.told() is None
    await desk.clock.advance(INTERVAL_S)
    await desk.store.until_put(1)
    assert await desk.told() == 2
    assert desk.clock.naps.empty()


async def test_a_commit_that_a_footer_tells_takes_no_witness(desk: Desk) -> None:
    desk.commit()
    await desk.clock.next_nap()
    await desk.clock.advance(3)
    desk.announced.in_footers = 1
    desk.commit()
    await desk.clock.advance(2)
    # The second commit was made 3 s later.
    assert await desk.clock.next_nap() == 3
    desk.announced.in_footers = 2
    await desk.clock.advance(3)
    await desk.witness.stop()
    assert await desk.told() is None


async def test_a_put_that_fails_is_repeated_after_the_interval(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.store.failure = StoreUnavailableError("away")
    desk.commit()
    await desk.clock.pass_nap()
    assert await desk.clock.next_nap() == INTERVAL_S
    assert await desk.told() is None
    assert "The witness of 1 commits was not written" in caplog.text
    await desk.clock.advance(INTERVAL_S)
    await desk.store.until_put(1)
    assert await desk.told() == 1


async def test_a_clean_stop_witnesses_the_last_commits(desk: Desk) -> None:
    desk.commit()
    await desk.clock.next_nap()
    await soon(desk.witness.stop())
    assert await desk.told() == 1


async def test_a_stop_waits_for_the_put_under_way(desk: Desk) -> None:
    desk.store.gated = True
    desk.commit()
    await desk.clock.pass_nap()
    gate = await desk.store.next_put()
    desk.commit()
    stopping = asyncio.ensure_future(desk.witness.stop())
    await asyncio.sleep(0)
    desk.store.gated = False
    gate.set()
    await soon(stopping)
    assert await desk.told() == 2


async def put(store: ObjectStore, commits: int, committed_ms: int, tag: WriterTag = TAG) -> None:
    witness = Witness(tag=tag, commits=commits, committed_ms=committed_ms)
    await store.put(witness_key(tag), [encode_witness(witness)])


@pytest.fixture
def store() -> ObjectStore:
    return open_store("memory:", clock=SystemClock())


async def test_witnesses_of_accepted_commits_and_old_ones_are_no_evidence(
    store: ObjectStore,
) -> None:
    now_ms = SystemClock().now_ms()
    await put(store, 1, now_ms)
    await store.put("witness/damaged", [b"{"])
    await store.put(
        "witness/0000000abd", [encode_witness(Witness(tag=TAG, commits=1, committed_ms=now_ms))]
    )
    assert [each.commits for each in await read_witnesses(store, now_ms, 0)] == [1]
    assert await read_witnesses(store, now_ms, since_ms=now_ms) == []
    assert await read_witnesses(store, now_ms + WITNESS_AGE_MS, 0) == []
    assert await delete_old_witnesses(store, now_ms) == 0
    assert await delete_old_witnesses(store, SystemClock().now_ms() + WITNESS_AGE_MS) == 3
    assert [info.key async for info in store.list("")] == []


async def test_a_witness_of_forgotten_commits_halts_the_cluster(
    store: ObjectStore, control: ControlPlane
) -> None:
    now_ms = SystemClock().now_ms()
    await control.writers.announce(TAG, WriterKind.BROKER)
    await check_not_behind(control, store, now_ms)
    await put(store, 1, now_ms)
    with pytest.raises(ControlPlaneBehindError, match="it knows 0 commits of writer 0000000abc"):
        await check_not_behind(control, store, now_ms)
    assert (await control.identity.cluster()).halted_reason is not None


async def test_a_witness_of_an_unknown_writer_counts_until_it_is_accepted(
    store: ObjectStore, control: ControlPlane
) -> None:
    now_ms = SystemClock().now_ms()
    await put(store, 1, now_ms)
    with pytest.raises(ControlPlaneBehindError, match="it does not know writer 0000000abc"):
        await check_not_behind(control, store, now_ms)
    await control.identity.accept()
    await check_not_behind(control, store, now_ms)
