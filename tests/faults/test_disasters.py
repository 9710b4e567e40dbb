"""The disasters of the checker: planned in turns, held against other faults, and noticed."""

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random

import asyncpg
import pytest

from stratalog.control.open import open_control_plane
from stratalog.control.settings.model import ClusterSettingsNow
from stratalog.opening.cluster_settings import ClusterSettings, settings_in_force
from stratalog.settings import Settings, StorageSettings
from stratalog.settings_source import load_settings
from stratalog.testing.checker.control_copy import copy_of
from stratalog.testing.checker.disasters import Disasters
from stratalog.testing.checker.faults import DISASTERS, Fault, Kind, Target, plan
from stratalog.testing.checker.processes import BrokerProcess, Links
from stratalog.testing.checker.proxy import Proxy, Weather

STORAGE = StorageSettings(objects="file:/nowhere", control="sqlite:/nowhere/control.db")
BRIEFLY_S = 0.01


class ObligingBroker(BrokerProcess):
    """A broker without a process, which starts with any settings, and never ends by itself."""

    async def ended(self, seconds: float) -> bool:
        return False

    async def starts(self) -> bool:
        self.starts_so_far.append(list(self.meanwhile))
        return True

    def kill(self) -> None:
        self.starts_so_far: list[list[str]] = getattr(self, "starts_so_far", [])


def broker(
    folder: Path, objects: Proxy | None = None, kind: type[ObligingBroker] = ObligingBroker
) -> ObligingBroker:
    links = Links(clients=Proxy("127.0.0.1", 1), objects=objects)
    made = kind(0, 1, STORAGE, links, folder)
    made.kill()
    return made


@pytest.fixture(params=["sqlite", "postgresql"])
def control_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'control.db'}"
    dsn: str = request.getfixturevalue("postgres_dsn")
    return dsn


def disasters_of(
    *brokers: BrokerProcess, storage: StorageSettings = STORAGE, folder: Path = Path()
) -> Disasters:
    return Disasters(
        brokers,
        storage=storage,
        folder=folder,
        topic="t",
        random=Random(1),
        note=lambda event: print(event),
    )


def fault(kind: Kind) -> Fault:
    return Fault(at_s=0, seconds=BRIEFLY_S, kind=kind, target=DISASTERS[kind][0], brokers=(0,))


def test_disasters_come_one_after_the_other_and_each_as_often_as_the_others() -> None:
    kinds = [*DISASTERS]
    faults = plan(7, 600, brokers=2, targets=[Target.PROCESS], disasters=kinds)
    made = [one for one in faults if one.kind in DISASTERS]

    counts = Counter(one.kind for one in made)
    assert set(counts) == set(kinds)
    assert max(counts.values()) - min(counts.values()) <= 1
    for before, after in pairwise(made):
        assert after.at_s >= before.at_s + before.seconds


def test_disasters_change_nothing_about_the_other_faults_of_a_seed() -> None:
    without = plan(7, 60, brokers=2, targets=[Target.PROCESS, Target.CLIENTS])
    with_all = plan(
        7, 60, brokers=2, targets=[Target.PROCESS, Target.CLIENTS], disasters=[*DISASTERS]
    )

    assert [one for one in with_all if one.kind not in DISASTERS] == without


async def test_a_broker_that_starts_on_an_empty_store_is_blamed(tmp_path: Path) -> None:
    one = broker(tmp_path)
    disasters = disasters_of(one)

    await disasters.make(fault(Kind.EMPTIED))

    assert disasters.mistakes == ["broker 0 started on an empty store"]
    assert one.starts_so_far == [["storage.objects=file:/nowhere-elsewhere"], []]


async def test_all_brokers_get_an_aggressive_janitor_and_lose_it_again(
    control_url: str, tmp_path: Path
) -> None:
    """The cluster goes with them: a janitor leaves out the steps for which it has other values."""
    in_force: list[ClusterSettingsNow] = []

    class Watched(ObligingBroker):
        async def starts(self) -> bool:
            in_force.append(await control.settings.now())
            return await super().starts()

    control = await open_control_plane(control_url)
    try:
        await ClusterSettings(control, Settings()).found(by="broker 0")
        before = _values(await control.settings.now())
        one = broker(tmp_path, kind=Watched)
        storage = StorageSettings(objects="file:/nowhere", control=control_url)
        await disasters_of(one, storage=storage).make(fault(Kind.EAGER))
        after = _values(await control.settings.now())
    finally:
        await control.close()

    [eager, healed] = one.starts_so_far
    assert "janitor.backup_window_ms=0" in eager
    given = load_settings(overrides=eager, environment={}, directory=tmp_path)
    assert settings_in_force(given, in_force[0]).differing == frozenset()
    assert healed == []
    assert _values(in_force[1]) == after == before


async def test_one_broker_gets_other_settings_and_the_cluster_keeps_its_own(
    control_url: str, tmp_path: Path
) -> None:
    control = await open_control_plane(control_url)
    try:
        await ClusterSettings(control, Settings()).found(by="broker 0")
        now = await control.settings.now()
        brokers = [broker(tmp_path), broker(tmp_path)]
        storage = StorageSettings(objects="file:/nowhere", control=control_url)
        await disasters_of(*brokers, storage=storage).make(fault(Kind.ODD))
        assert _values(await control.settings.now()) == _values(now)
    finally:
        await control.close()

    [odd, healed] = [one for each in brokers for one in each.starts_so_far]
    assert healed == []
    given = load_settings(overrides=odd, environment={}, directory=tmp_path)
    assert settings_in_force(given, now).differing > {
        "topic.retention.bytes",
        "janitor.orphan_age_ms",
        "groups.offsets_retention_ms",
    }


def _values(now: ClusterSettingsNow) -> dict[str, str]:
    return {name: one.value for name, one in now.settings.items()}


async def test_no_other_fault_ends_a_hang() -> None:
    proxy = Proxy("127.0.0.1", 1)
    proxy.hold(Weather.STALLED)

    proxy.turn(Weather.FAIR)
    assert not proxy.is_passable

    proxy.release()
    assert proxy.is_passable


async def test_a_broker_that_does_not_notice_an_older_control_plane_is_blamed(
    tmp_path: Path,
) -> None:
    database = tmp_path / "control.db"
    with closing(sqlite3.connect(database)) as live:
        live.execute("CREATE TABLE heads (high_watermark bigint)")
    storage = StorageSettings(objects="file:/nowhere", control=f"sqlite:{database}")
    one = broker(tmp_path)
    disasters = disasters_of(one, storage=storage, folder=tmp_path)

    await disasters.make(fault(Kind.BACK))

    assert disasters.mistakes == ["broker 0 went on with an older control plane"]


async def test_a_control_plane_goes_back_and_returns_to_its_newest_state(
    control_url: str, tmp_path: Path
) -> None:
    async def names() -> list[str]:
        return [topic.name for topic in await control.topics.all()]

    control = await open_control_plane(control_url)
    try:
        copy = copy_of(control_url, tmp_path)
        await control.topics.create("early", partition_count=1, configs={})
        await copy.take()
        await control.topics.create("late", partition_count=1, configs={})

        await copy.go_back()
        assert await names() == ["early"]
        await copy.restore()
        assert await names() == ["early", "late"]
    finally:
        await control.close()


async def test_no_table_is_held_while_another_one_is_waited_for(
    postgres_dsn: str, tmp_path: Path
) -> None:
    """Brokers would be in a deadlock with it, again and again."""
    control = await open_control_plane(postgres_dsn)
    await control.close()
    copy = copy_of(postgres_dsn, tmp_path)
    await copy.take()
    broker = await asyncpg.connect(postgres_dsn)
    watcher = await asyncpg.connect(postgres_dsn)
    try:
        async with broker.transaction():
            await broker.execute("LOCK TABLE topics IN ROW EXCLUSIVE MODE")
            going_back = asyncio.create_task(copy.go_back())
            for _ in range(20):
                await asyncio.sleep(0.01)
                waiting = await watcher.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
                assert (waiting, going_back.done()) == (0, False)
        await going_back
    finally:
        await broker.close()
        await watcher.close()
