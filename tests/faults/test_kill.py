"""A broker is killed at every point of its work. Nothing that was acknowledged may be lost.

Alone on SQLite and a folder, the broker is started again. On PostgreSQL and S3 a second broker
serves on, and the clients turn to it.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from tests.faults.aftermath import Ground, standing_on
from tests.faults.doomed_broker import Doomed, Point
from tests.faults.workload import (
    CLIENT,
    PATIENCE_S,
    Writer,
    check_acknowledged,
    check_at_least_once,
    check_exactly_once,
    read_all,
)
from tests.support.ledgers import FakeControlPlane
from tests.support.servers import S3Server

from stratalog.cluster.membership import Membership
from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import BrokerId, PartitionIndex, TopicPartition
from stratalog.settings import StorageSettings
from stratalog.testing import Broker, ManualClock

ROOT = Path(__file__).parents[2]
PARTITIONS = 2
DEATH_AT = 2
"""The broker dies at its second block after it was doomed: the one before makes traffic."""
ACKS = 20
"""So many messages are acknowledged to each writer before the broker is doomed, and after it was
killed. Without the former, the death of a broker would cost no client anything."""

ANSWERED = "somebody was answered"

WRITE_POINTS = [
    Point.COLLECTING,
    Point.SEALED,
    Point.UPLOADED,
    Point.COMMITTING,
    Point.COMMITTED,
]
FOLDER_POINTS = [Point.HALF_WRITTEN, Point.WRITTEN, Point.PLACED]
ORPHANING = {Point.PLACED, Point.UPLOADED, Point.COMMITTING}
"""Points that leave an object without a row, whatever else happens at the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    doomed: Doomed
    survivor: Doomed | None
    """The broker that serves meanwhile. None if the doomed one is started again."""
    folder: Path | None

    @property
    def storage(self) -> StorageSettings:
        return self.doomed.settings.storage

    @property
    def bootstrap(self) -> str:
        ports = [self.doomed.port] + ([self.survivor.port] if self.survivor else [])
        return ",".join(f"127.0.0.1:{port}" for port in ports)

    def in_the_end(self) -> Doomed:
        """The broker that serves in the end."""
        return self.survivor or self.doomed.harmless


@pytest.fixture
def alone(tmp_path: Path) -> Scene:
    doomed = Doomed(
        control=f"sqlite:{tmp_path / 'control.db'}",
        objects=f"file:{tmp_path / 'objects'}",
        port=free_port(),
        at=DEATH_AT,
    )
    return Scene(doomed=doomed, survivor=None, folder=tmp_path / "objects")


@pytest.fixture
def in_company(postgres_dsn: str, s3_server: S3Server, s3_url: str) -> Scene:
    doomed = Doomed(
        control=postgres_dsn,
        objects=s3_url,
        object_options=s3_server.options,
        port=free_port(),
        lease_ms=1000,
        at=DEATH_AT,
    )
    survivor = replace(doomed.harmless, broker_id=1, port=free_port())
    return Scene(doomed=doomed, survivor=survivor, folder=None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# The cases.


@pytest.mark.parametrize("point", [*WRITE_POINTS, *FOLDER_POINTS, ANSWERED])
def test_a_broker_that_is_killed_and_started_again_keeps_its_word(
    alone: Scene, point: str, tmp_path: Path
) -> None:
    left = play(alone, point, tmp_path)
    if point in (Point.HALF_WRITTEN, Point.WRITTEN):
        assert left.temporary_files, "the put was cut short"


@pytest.mark.parametrize("point", [*WRITE_POINTS, Point.UPLOADING, ANSWERED])
def test_a_second_broker_serves_on_when_the_first_is_killed(
    in_company: Scene, point: str, tmp_path: Path
) -> None:
    play(in_company, point, tmp_path)


@pytest.mark.parametrize("scene_name", ["alone", "in_company"])
def test_a_sweep_that_is_killed_before_it_deletes_is_finished_by_the_next(
    scene_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    scene: Scene = request.getfixturevalue(scene_name)
    doomed = replace(scene.doomed, janitor_ms=100, orphan_age_ms=500, at=1)
    # Brokers share the age. A broker that alone has another one sweeps nothing.
    survivor = scene.survivor and replace(scene.survivor, orphan_age_ms=500)

    async def orphan(ground: Ground) -> str:
        [topic, *_] = await ground.control.topics.all()
        return (await ground.upload(topic)).commit.key

    scene = replace(scene, doomed=doomed, survivor=survivor)
    left = play(scene, Point.BARRED, tmp_path, prepare=orphan)
    assert left.prepared in left.blocks
    assert left.prepared not in left.known


@pytest.mark.parametrize("scene_name", ["alone", "in_company"])
def test_a_deletion_that_is_killed_before_it_forgets_is_finished_by_the_next(
    scene_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    scene: Scene = request.getfixturevalue(scene_name)
    doomed = replace(scene.doomed, janitor_ms=100, at=1)

    async def deleted(ground: Ground) -> str:
        other = await ground.control.topics.create("other", partition_count=1, configs={})
        block = await ground.upload(other)
        await ground.control.log.commit_blocks([block.commit])
        await ground.control.topics.delete(other.id)
        return block.commit.key

    left = play(replace(scene, doomed=doomed), Point.DELETED, tmp_path, prepare=deleted)
    assert left.prepared in left.known
    assert left.prepared not in left.blocks


# How a case is played.


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The remains of the killed broker."""

    blocks: set[str]
    known: set[str]
    """Keys that the control plane has a row of."""
    temporary_files: list[str]
    prepared: str


Prepare = Callable[[Ground], Awaitable[str]]
"""Gives the janitor something to do, and answers the key of the object that it is about."""


def play(scene: Scene, point: str, tmp_path: Path, *, prepare: Prepare | None = None) -> Left:
    exact, plain = asyncio.run(set_up(scene))
    with ExitStack() as stack:
        if scene.survivor is not None:
            stack.enter_context(Broker(scene.survivor.settings))
        victim = stack.enter_context(running(scene.doomed, point, tmp_path / "log"))
        if scene.survivor is not None:
            wait_for_brokers(scene.bootstrap, 2)
        writers = [
            Writer(scene.bootstrap, exact, PARTITIONS, idempotent=True, name="exact"),
            Writer(scene.bootstrap, plain, PARTITIONS, idempotent=False, name="plain"),
        ]
        for writer in writers:
            writer.start()
            stack.callback(writer.finish)
        wait_for_acks(writers)
        os.kill(victim.pid, signal.SIGKILL if point == ANSWERED else signal.SIGUSR1)
        prepared = asyncio.run(interfere(scene, prepare)) if prepare else ""
        assert victim.wait(PATIENCE_S) == -signal.SIGKILL, (tmp_path / "log").read_text()
        left = asyncio.run(look(scene, prepared))
        if scene.survivor is None:
            stack.enter_context(Broker(scene.in_the_end().settings))
        wait_for_acks(writers)
        for writer in writers:
            writer.finish()
        judge(scene, writers)
    asyncio.run(clean_up(scene, orphaned=point in ORPHANING))
    return left


async def set_up(scene: Scene) -> tuple[str, str]:
    async with standing_on(scene.storage) as ground:
        exact = await create_topic(ground.control, "exact", scene)
        plain = await create_topic(ground.control, "plain", scene)
        return exact.name, plain.name


async def interfere(scene: Scene, prepare: Prepare) -> str:
    async with standing_on(scene.storage) as ground:
        return await prepare(ground)


def wait_for_acks(writers: list[Writer]) -> None:
    """Also of each partition, because they have different leaders."""
    for writer in writers:
        writer.wait_for_acks(ACKS, partitions=PARTITIONS)


async def create_topic(control: ControlPlane, name: str, scene: Scene) -> Topic:
    """A topic of which each broker leads a part, so that the doomed one has work to do."""
    for attempt in range(100):
        topic = await control.topics.create(
            f"{name}-{attempt}", partition_count=PARTITIONS, configs={}
        )
        if scene.survivor is None or await is_shared(topic):
            return topic
    raise AssertionError("one broker leads everything")


async def is_shared(topic: Topic) -> bool:
    class TwoBrokers(FakeControlPlane):
        async def brokers_all(self) -> list[BrokerInfo]:
            return [broker_info(0), broker_info(1)]

    membership = Membership(
        control=TwoBrokers(),
        clock=ManualClock(),
        cluster_id=uuid4(),
        incarnation=uuid4(),
        lease_ms=1,
        registration=broker_info(0),
    )
    await membership.refresh()
    leaders = {
        membership.leader_of(TopicPartition(topic.id, PartitionIndex(index))).broker_id
        for index in range(PARTITIONS)
    }
    return len(leaders) == 2


def broker_info(number: int) -> BrokerInfo:
    return BrokerInfo(
        broker_id=BrokerId(number), host="h", port=1, rack=None, incarnation=uuid4(), alive=True
    )


@contextmanager
def running(doomed: Doomed, point: str, log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    if point != ANSWERED:
        doomed = replace(doomed, point=point)
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.doomed_broker"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(doomed.encode())
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n", log.read_text()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def wait_for_brokers(bootstrap: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    for address in bootstrap.split(","):
        admin = AdminClient({"bootstrap.servers": address, **CLIENT})
        while len(admin.list_topics(timeout=10).brokers) < count:
            assert time.monotonic() < deadline, "the brokers do not see each other"
            time.sleep(0.02)


async def look(scene: Scene, prepared: str) -> Left:
    async with standing_on(scene.storage) as ground:
        known = {row.key for row in await ground.control.objects.all(limit=1_000_000)}
        blocks = await ground.blocks()
    temporary = scene.folder / ".stratalog" / "tmp" if scene.folder else None
    return Left(
        blocks=blocks,
        known=known,
        temporary_files=os.listdir(temporary) if temporary else [],
        prepared=prepared,
    )


def judge(scene: Scene, writers: list[Writer]) -> None:
    bootstrap = f"127.0.0.1:{scene.in_the_end().port}"
    for writer in writers:
        assert writer.failures == []
        log = read_all(bootstrap, writer.topic, PARTITIONS)
        check_acknowledged(writer, log)
        check_at_least_once(writer, log)
        if writer.idempotent:
            check_exactly_once(writer, log)
        assert len(writer.acks) == sum(map(len, writer.sent.values()))


async def clean_up(scene: Scene, *, orphaned: bool) -> None:
    """No broker runs any more, so whatever has no row by now will never have one."""
    async with standing_on(scene.storage) as ground:
        assert await ground.orphans() or not orphaned
        await ground.clean()
        assert await ground.orphans() == set()
        await ground.check()
