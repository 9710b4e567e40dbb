"""Readers run through the boundary between the tiers while it moves under them.

Every reader sees every offset once, in order, with the value that was written there.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from time import monotonic

from confluent_kafka import TopicPartition as Place
from tests.faults.moving_boundary import (
    CLOCK,
    GRACE_MS,
    LIMIT_SECONDS,
    Scene,
    convert,
    delete,
    read_everything,
    readers,
    together,
    value_at,
    write,
)
from tests.faults.shipped_pipeline import shipped_pipeline
from tests.support.clients.confluent_client import confluent_consumer, confluent_producer
from tests.support.clusters import BASE, create, folder_storage, one_broker
from tests.support.tiering import Step

from stratalog.checks.fsck import run_fsck
from stratalog.checks.remote_tier import RemoteTier
from stratalog.janitor.segment_deletion import clear_unfinished, delete_doomed
from stratalog.opening.claim import claim_store
from stratalog.segment.key_ring import KeyRing
from stratalog.settings import JanitorSettings

SEED = int(os.environ.get("STRATALOG_SEED", "4"))
CROSSINGS = 2000
KILLS = 12
CONSUMED = 2000
ROOT = Path(__file__).parents[2]


def all_happened(scene: Scene, crossings: int) -> bool:
    """Tell if readers have met every kind of obstacle. Until then, it goes on."""
    deleted = ("segments deleted", "blocks deleted", "objects gone")
    seen = scene.seen
    if seen["looks across the boundary"] <= crossings // 4 or seen["crossings"] < crossings:
        return False
    return all(seen[each] for each in deleted)


def check_outcome(scene: Scene, crossings: int) -> None:
    seen = scene.seen
    assert all_happened(scene, crossings), seen
    assert seen["failed reads"] <= max(1, seen["objects gone"] // 40), seen


async def test_readers_cross_a_moving_boundary_thousands_of_times(scene: Scene) -> None:
    def enough() -> bool:
        died = all(scene.seen[f"crashes after {step}"] for step in Step)
        return died and all_happened(scene, CROSSINGS)

    async with scene.topic_reader(caches=True) as cached, scene.topic_reader(caches=False) as bare:
        scene.enough = enough
        await together(
            write(scene, Random(SEED + 1)),
            convert(scene, Random(SEED + 2), crash_chance=0.3),
            delete(scene),
            *readers(scene, SEED, cached, bare),
        )
    async with scene.topic_reader(caches=False) as fresh:
        await read_everything(scene, fresh)
    check_outcome(scene, CROSSINGS)
    assert all(scene.seen[f"crashes after {step}"] for step in Step), scene.seen


async def kill_pipelines(scene: Scene, random: Random) -> None:
    """Let one convert for a moment, kill it, start the next."""
    while scene.seen["kills"] < KILLS or not all_happened(scene, CROSSINGS):
        before = (await scene.state(0)).remote_end
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.faults.doomed_pipeline",
            str(scene.folder),
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stdout is not None
        assert (await process.stdout.readline()).strip() == b"ready"
        while (await scene.state(0)).remote_end == before:
            assert process.returncode is None, "the pipeline ended by itself"
            await asyncio.sleep(0.01)
        await asyncio.sleep(random.random() / 2)
        process.send_signal(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
        scene.seen["kills"] += 1
    scene.over.set()


async def test_readers_see_every_offset_once_while_pipelines_are_killed(scene: Scene) -> None:
    async with scene.topic_reader(caches=True) as cached, scene.topic_reader(caches=False) as bare:
        await together(
            kill_pipelines(scene, Random(SEED)),
            write(scene, Random(SEED + 1)),
            delete(scene),
            *readers(scene, SEED, cached, bare),
        )
    async with scene.topic_reader(caches=False) as fresh:
        await read_everything(scene, fresh)
    check_outcome(scene, CROSSINGS)
    await check_promises(scene)


async def check_promises(scene: Scene) -> None:
    """Nothing is damaged, and the janitor can remove all known remains of the dead."""
    await clear_unfinished(scene.control, older_than_ms=0, chunk_rows=1000)
    await delete_doomed(scene.control.segments, scene.stores, grace_ms=0, chunk_rows=1000)
    await claim_store(scene.control, scene.store)
    tier = RemoteTier(stores=scene.stores, keys=KeyRing())
    report = await run_fsck(scene.control, scene.store, deep=True, clock=CLOCK, tier=tier)
    assert report.ok, report.findings


# The same with a broker and a client of Kafka's.


def test_a_kafka_client_reads_through_the_moving_boundary(quick_folder: Path) -> None:
    janitor = JanitorSettings(interval_ms=50, grace_ms=GRACE_MS, backup_window_ms=0)
    settings = replace(BASE, storage=folder_storage(quick_folder), janitor=janitor)
    over = threading.Event()
    with one_broker(quick_folder, base=settings) as cluster, ThreadPoolExecutor() as threads:
        create(cluster, "moving")
        try:
            converting = threads.submit(convert_until, quick_folder, over)
            writing = threads.submit(produce, cluster.bootstrap)
            consumed = [
                threads.submit(consume, cluster.bootstrap, fetch_bytes)
                for fetch_bytes in (1, 20_000)
            ]
            for each in consumed:
                assert each.result(LIMIT_SECONDS) == CONSUMED
            writing.result(LIMIT_SECONDS)
        finally:
            over.set()
        assert converting.result(LIMIT_SECONDS) > 10


def produce(bootstrap: str) -> None:
    producer = confluent_producer(bootstrap)
    for offset in range(CONSUMED):
        producer.produce("moving", value_at(0, offset), partition=0)
        if offset % 10 == 9:
            producer.flush(LIMIT_SECONDS)


def consume(bootstrap: str, fetch_bytes: int) -> int:
    """Read all of it, and after each step some of it again."""
    consumer = confluent_consumer(bootstrap, **{"fetch.message.max.bytes": fetch_bytes})
    consumer.assign([Place("moving", 0, 0)])
    position, steps = 0, 0
    deadline = monotonic() + LIMIT_SECONDS
    while position < CONSUMED:
        assert monotonic() < deadline, f"only {position} records came"
        message = consumer.poll(0.2)
        if message is None:
            continue
        assert message.error() is None, message.error()
        assert (message.offset(), message.value()) == (position, value_at(0, position))
        position += 1
        if position % 100 == 0 and steps < position // 100:
            steps += 1
            position = max(0, position - 60)
            consumer.seek(Place("moving", 0, position))
    consumer.close()
    return position


def convert_until(folder: Path, over: threading.Event) -> int:
    async def work() -> int:
        made = 0
        async with shipped_pipeline(folder) as driver:
            while not over.is_set():
                made += (await driver.run()).segments
                await asyncio.sleep(0.01)
        return made

    return asyncio.run(work())
