"""How long `commit_blocks` takes on PostgreSQL, beside the least and the plainest way to do it.

Run: python -m bench.commit_blocks [--batches 1600] [--partitions 320] [--rounds 60]

Three ways take turns on one server with fsync and synchronous commit on:

- `commit_blocks`, with idempotent producers, whose sequences it checks and stores
- the bare insert of the rows that it writes, which is the floor
- the same work batch by batch in a plain loop of statements, which is the cost that a set saves
"""

import argparse
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import asyncpg
import uvloop
from tests.support.servers import run_postgres

from stratalog.batch.header import TimestampType
from stratalog.control.log.model import BatchToCommit, BlockToCommit
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import BrokerId, ObjectId, PartitionIndex, ProducerId, uuid7

BATCH_BYTES = 5000
RECORDS = 10
PRODUCERS = 64
LOOP_ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    batches: int
    partitions: int
    rounds: int

    def block(self, topic: Topic, turn: int) -> BlockToCommit:
        per_partition = self.batches // self.partitions
        object_id = ObjectId(uuid7(turn, os.urandom))
        batches = [
            BatchToCommit(
                topic_id=topic.id,
                partition=PartitionIndex(index // per_partition),
                byte_offset=index * BATCH_BYTES,
                byte_size=BATCH_BYTES,
                last_offset_delta=RECORDS - 1,
                max_timestamp=turn,
                timestamp_type=TimestampType.CREATE_TIME,
                producer_id=ProducerId(index // per_partition % PRODUCERS),
                producer_epoch=0,
                base_sequence=(turn * per_partition + index % per_partition) * RECORDS,
            )
            for index in range(per_partition * self.partitions)
        ]
        return BlockToCommit(
            object_id=object_id,
            key=f"blocks/{object_id}",
            size_bytes=len(batches) * BATCH_BYTES,
            broker_id=BrokerId(0),
            batches=batches,
        )


async def measure(work: Callable[[int], Awaitable[object]], turns: range) -> list[float]:
    """Milliseconds of each turn."""
    times: list[float] = []
    for turn in turns:
        start = time.perf_counter()
        await work(turn)
        times.append((time.perf_counter() - start) * 1000)
    return times


class BareInsert:
    """The coordinates of one block, inserted and nothing else."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", load: Load) -> None:
        self._connection = connection
        self._load = load

    async def prepare(self) -> None:
        await self._connection.execute("CREATE TABLE bare (LIKE batches INCLUDING ALL)")

    async def run(self, topic: Topic, turn: int) -> None:
        n = self._load.partitions
        per_partition = self._load.batches // n
        records, size = per_partition * RECORDS, per_partition * BATCH_BYTES
        base = [turn * records] * n
        async with self._connection.transaction():
            await self._connection.execute(
                "INSERT INTO bare SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[],"
                " $4::bigint[], $5::uuid[], $6::bigint[], $7::bigint[], $8::bigint[],"
                " $9::smallint[], $10::bigint[], $11::int[], $12::bool[])",
                [topic.id] * n, range(n), base, [b + records - 1 for b in base],
                [uuid7(turn, os.urandom)] * n, [i * size for i in range(n)], [size] * n,
                [turn] * n, [0] * n, [turn] * n, [0] * n, [False] * n,
            )  # fmt: skip


class Loop:
    """Batch by batch: lock, look, insert, update."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection

    async def prepare(self) -> None:
        for table in ("batches", "heads", "producers"):
            await self._connection.execute(
                f"CREATE TABLE loop_{table} (LIKE {table} INCLUDING ALL)"
            )
        await self._connection.execute("INSERT INTO loop_heads SELECT * FROM heads")

    async def run(self, block: BlockToCommit) -> None:
        async with self._connection.transaction():
            for each in block.batches:
                await self._append(block.object_id, each)

    async def _append(self, object_id: ObjectId, each: BatchToCommit) -> None:
        run = self._connection.fetch
        key = (each.topic_id, each.partition)
        [(base,)] = await run(
            "SELECT high_watermark FROM loop_heads WHERE topic_id = $1 AND partition = $2"
            " FOR UPDATE", *key,
        )  # fmt: skip
        await run(
            "SELECT recent FROM loop_producers WHERE topic_id = $1 AND partition = $2"
            " AND producer_id = $3", *key, each.producer_id,
        )  # fmt: skip
        await run(
            "INSERT INTO loop_producers VALUES ($1, $2, $3, 0, $4, 0) ON CONFLICT"
            " (topic_id, partition, producer_id) DO UPDATE SET recent = excluded.recent",
            *key, each.producer_id, bytes(120),
        )  # fmt: skip
        await run(
            "INSERT INTO loop_batches VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 0, 0, false)",
            *key, base, base + each.last_offset_delta, object_id, each.byte_offset,
            each.byte_size, each.max_timestamp,
        )  # fmt: skip
        await run(
            "UPDATE loop_heads SET high_watermark = $3, size_bytes = size_bytes + $4"
            " WHERE topic_id = $1 AND partition = $2",
            *key, base + each.last_offset_delta + 1, each.byte_size,
        )  # fmt: skip


async def compare(plane: ControlPlane, dsn: str, load: Load) -> None:
    topic = await plane.topics.create("load", partition_count=load.partitions, configs={})
    connection = await asyncpg.connect(dsn)
    bare, loop = BareInsert(connection, load), Loop(connection)
    await bare.prepare()
    await loop.prepare()
    blocks = [load.block(topic, turn) for turn in range(load.rounds)]
    commits: list[float] = []
    inserts: list[float] = []
    for turn in range(load.rounds):
        commits += await measure(
            lambda i: plane.log.commit_blocks([blocks[i]]), range(turn, turn + 1)
        )
        inserts += await measure(lambda i: bare.run(topic, i), range(turn, turn + 1))
    loops = await measure(lambda i: loop.run(blocks[i]), range(LOOP_ROUNDS))
    await connection.close()
    report(load, commits[5:], inserts[5:], loops)


def report(load: Load, commits: list[float], inserts: list[float], loops: list[float]) -> None:
    print(f"{load.batches} batches over {load.partitions} partitions, {load.rounds} rounds, ms")
    for name, times in (("commit_blocks", commits), ("bare insert", inserts), ("loop", loops)):
        p50, p99 = statistics.median(times), sorted(times)[int(len(times) * 0.99)]
        print(f"  {name:14} p50 {p50:8.1f}   p99 {p99:8.1f}")
    commit, insert, loop = map(statistics.median, (commits, inserts, loops))
    print(f"  commit_blocks / bare insert {commit / insert:.1f}")
    print(f"  loop / commit_blocks {loop / commit:.1f}")


async def run(load: Load) -> None:
    with run_postgres() as server:
        dsn = server.create_database()
        plane = await open_control_plane(dsn)
        try:
            await compare(plane, dsn, load)
        finally:
            await plane.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--batches", type=int, default=1600)
    parser.add_argument("--partitions", type=int, default=320)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    uvloop.run(run(Load(**vars(options))))


if __name__ == "__main__":
    main()
