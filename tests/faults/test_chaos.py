"""Everything goes wrong at random, for a while; then it heals, and every promise must be kept.

`STRATALOG_SEED` repeats a run's faults, `STRATALOG_CHAOS_SECONDS` makes it longer.
"""

import asyncio
import os
from contextlib import ExitStack
from random import SystemRandom

import pytest
from tests.faults.aftermath import standing_on
from tests.faults.chaos import Chaos
from tests.faults.workload import (
    Follower,
    Writer,
    check_acknowledged,
    check_at_least_once,
    check_exactly_once,
    read_all,
)
from tests.support.servers import S3Server

from stratalog.settings import StorageSettings

PARTITIONS = 3
MORE_ACKS = 20


@pytest.fixture
def seed() -> int:
    chosen = os.environ.get("STRATALOG_SEED") or str(SystemRandom().getrandbits(32))
    print(f"STRATALOG_SEED={chosen}")
    return int(chosen)


@pytest.mark.timeout(300)
def test_every_promise_is_kept_through_chaos(
    postgres_dsn: str, s3_server: S3Server, s3_url: str, seed: int
) -> None:
    storage = StorageSettings(
        control=postgres_dsn, objects=s3_url, object_options=s3_server.options
    )
    asyncio.run(create_topics(storage))
    with Chaos(storage, seed) as chaos, ExitStack() as stack:
        writers = [
            Writer(chaos.bootstrap, "exact-a", PARTITIONS, idempotent=True, name="a"),
            Writer(chaos.bootstrap, "exact-b", PARTITIONS, idempotent=True, name="b"),
            Writer(chaos.bootstrap, "plain", PARTITIONS, idempotent=False, name="c"),
            Writer(chaos.bootstrap, "plain", PARTITIONS, idempotent=False, name="d"),
        ]
        followers = [
            Follower(chaos.bootstrap, topic, PARTITIONS)
            for topic in ("exact-a", "exact-b", "plain")
        ]
        for client in (*writers, *followers):
            client.start()
        for writer in writers:
            stack.callback(writer.finish)
            writer.wait_for_acks(MORE_ACKS)
        chaos.rage(float(os.environ.get("STRATALOG_CHAOS_SECONDS", "12")))
        chaos.heal()
        for writer in writers:
            writer.wait_for_acks(MORE_ACKS)
        for writer in writers:
            writer.finish()
        judge(chaos.bootstrap, writers, followers)
    print(dict(chaos.troubles))
    asyncio.run(clean_up(storage))


def judge(bootstrap: str, writers: list[Writer], followers: list[Follower]) -> None:
    for follower in followers:
        log = read_all(bootstrap, follower.topic, PARTITIONS)
        follower.finish({partition: len(values) for partition, values in log.items()})
        assert follower.problems == []
        assert follower.log == log, "one offset, one value, whoever reads and when"
        for writer in writers:
            if writer.topic == follower.topic:
                judge_writer(writer, follower)


def judge_writer(writer: Writer, follower: Follower) -> None:
    assert writer.failures == []
    assert len(writer.acks) == sum(map(len, writer.sent.values()))
    check_acknowledged(writer, follower.log)
    check_at_least_once(writer, follower.log)
    if writer.idempotent:
        check_exactly_once(writer, follower.log)


async def create_topics(storage: StorageSettings) -> None:
    async with standing_on(storage) as ground:
        for name in ("exact-a", "exact-b", "plain"):
            await ground.control.topics.create(name, partition_count=PARTITIONS, configs={})


async def clean_up(storage: StorageSettings) -> None:
    async with standing_on(storage) as ground:
        await ground.clean()
        assert await ground.orphans() == set()
        await ground.check()
