"""How many offset commits a broker takes, beside bare upserts into the same database.

Run: python -m bench.offsets [--connections 20] [--seconds 5] [--postgres [--writers 20]]

Every connection commits one offset of a group of its own, again and again, each time when the last
one was answered. The yardstick is the upsert of one such row per transaction, as durable as ours:
into SQLite, which has one writer at a time, by one connection; into PostgreSQL by --writers. They
take turns; the ratio is that of the medians. The broker's processor time per commit is printed
beside it, because the clients share the machine with it.
"""

import argparse
import asyncio
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import uvloop
from bench.connection import Connection, framed, parsed
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v8.response import OffsetCommitResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64
from tests.support.servers import run_postgres

from stratalog.cli.bench import TemporaryBroker, temporary_broker

TOPIC = "committed"
TABLE = (
    "CREATE TABLE bare (group_id text NOT NULL, topic_id uuid NOT NULL, partition integer NOT NULL,"
    " committed_offset bigint NOT NULL, leader_epoch integer NOT NULL, metadata bytea NOT NULL,"
    " committed_ms bigint NOT NULL, PRIMARY KEY (group_id, topic_id, partition))"
)
UPSERT = (
    "INSERT INTO bare VALUES ($1, '00000000-0000-0000-0000-000000000000', 0, $2, 0, '', 0)"
    " ON CONFLICT (group_id, topic_id, partition) DO UPDATE SET"
    " committed_offset = excluded.committed_offset"
)
STOP_SECONDS = 60.0

Step = Callable[[int], Awaitable[None]]
"""One commit or one upsert: the number of the turn comes in."""


async def per_second(steps: list[Step], seconds: float) -> float:
    """How often all steps together are done, each one after its own last."""
    end = time.perf_counter() + seconds

    async def repeat(step: Step) -> int:
        turn = 0
        while time.perf_counter() < end:
            await step(turn)
            turn += 1
        return turn

    return sum(await asyncio.gather(*map(repeat, steps))) / seconds


def commit_of(group: str, offset: int) -> Any:
    place = OffsetCommitRequestPartition(
        partition_index=i32(0), committed_offset=i64(offset), committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name=TopicName(TOPIC), partitions=(place,))
    return OffsetCommitRequest(group_id=GroupId(group), member_id="", topics=(topic,))


def commit_step(connection: Connection, group: str) -> Step:
    # Making requests and reading answers in full would make the client the slower side.
    requests = [framed(commit_of(group, offset)) for offset in range(100)]
    good: bytes | None = None

    async def step(turn: int) -> None:
        nonlocal good
        connection.send(requests[turn % len(requests)])
        answer = await connection.receive()
        if answer != good:
            response = parsed(answer, OffsetCommitResponse)
            error = response.topics[0].partitions[0].error_code
            assert error is ErrorCode.none, error
            good = answer

    return step


async def commits_per_second(address: str, connections: int, seconds: float) -> float:
    opened = [await Connection.open(address) for _ in range(connections)]
    steps = [commit_step(each, f"group-{number}") for number, each in enumerate(opened)]
    await asyncio.gather(*(step(0) for step in steps))
    rate = await per_second(steps, seconds)
    for connection in opened:
        await connection.close()
    return rate


async def sqlite_upserts_per_second(groups: int, seconds: float) -> float:
    with tempfile.TemporaryDirectory(prefix="stratalog-bench-") as folder:
        database = sqlite3.connect(Path(folder, "bare.db"), isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute(TABLE)

        async def step(turn: int) -> None:
            database.execute(UPSERT, (f"group-{turn % groups}", turn))

        rate = await per_second([step], seconds)
        database.close()
        return rate


async def postgres_upserts_per_second(dsn: str, groups: int, seconds: float) -> float:
    connections = [await asyncpg.connect(dsn) for _ in range(groups)]
    await connections[0].execute("DROP TABLE IF EXISTS bare")
    await connections[0].execute(TABLE)
    rate = await per_second(
        [upsert_step(each, f"group-{number}") for number, each in enumerate(connections)], seconds
    )
    for connection in connections:
        await connection.close()
    return rate


def upsert_step(connection: "asyncpg.Connection[asyncpg.Record]", group: str) -> Step:
    async def step(turn: int) -> None:
        await connection.execute(UPSERT, group, turn)

    return step


@contextmanager
def broker_on(dsn: str) -> Iterator[TemporaryBroker]:
    """A temporary broker whose control plane is not in its folder."""
    with tempfile.TemporaryDirectory(prefix="stratalog-bench-") as folder:
        command = [sys.executable, "-m", "stratalog.cli.main", "up", "--listen", "127.0.0.1:0"]
        command += ["--data", folder, "--control", dsn]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if " is up on " in line)
            address = line.partition(" is up on ")[2].partition(",")[0]
            yield TemporaryBroker(address, process.pid)
        finally:
            process.terminate()
            process.communicate(timeout=STOP_SECONDS)


def compare(
    broker: TemporaryBroker,
    upserts_per_second: Callable[[], Awaitable[float]],
    options: argparse.Namespace,
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    for created in admin.create_topics([NewTopic(TOPIC, 1)]).values():
        created.result()
    uvloop.run(_take_turns(broker, upserts_per_second, options))


async def _take_turns(
    broker: TemporaryBroker,
    upserts_per_second: Callable[[], Awaitable[float]],
    options: argparse.Namespace,
) -> None:
    commits, upserts = [], []
    cpu_before = broker.cpu_seconds()
    for number in range(options.rounds):
        upserts.append(await upserts_per_second())
        commits.append(
            await commits_per_second(broker.address, options.connections, options.seconds)
        )
        print(
            f"round {number + 1}: commits {commits[-1]:6.0f}/s   upserts {upserts[-1]:6.0f}/s",
            flush=True,
        )
    cost_us = (broker.cpu_seconds() - cpu_before) / sum(commits) / options.seconds * 1e6
    ratio = statistics.median(commits) / statistics.median(upserts)
    print(f"ratio {ratio:.2f}, {cost_us:.0f} us of the broker's processor time per commit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--postgres", action="store_true", help="PostgreSQL in place of SQLite")
    parser.add_argument("--writers", type=int, default=20, help="of bare rows to PostgreSQL")
    options = parser.parse_args()
    seconds = options.seconds
    if options.postgres:
        with run_postgres() as server:
            dsn = server.create_database()
            with broker_on(dsn) as broker:
                bare = partial(postgres_upserts_per_second, dsn, options.writers, seconds)
                compare(broker, bare, options)
    else:
        with temporary_broker() as broker:
            bare = partial(sqlite_upserts_per_second, options.connections, seconds)
            compare(broker, bare, options)


if __name__ == "__main__":
    main()
