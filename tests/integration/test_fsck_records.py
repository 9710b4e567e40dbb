"""`fsck --deep` decodes records: a right checksum does not make them readable."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.small_cluster import SmallCluster
from tests.unit.batch.edits import edit, sample, with_body

from stratalog.batch.codec import compress
from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import HEADER_BYTES, Codec, TimestampType, parse_header
from stratalog.block.block import OpenBlock, seal
from stratalog.checks.fsck import run_fsck
from stratalog.checks.report import Promise
from stratalog.clock import SystemClock
from stratalog.ids import BrokerId, ObjectId, PartitionIndex, uuid7
from stratalog.opening.claim import claim_store

BODY = sample()[HEADER_BYTES:]

UNDECODABLE = {
    "bad compression": (with_body(sample(Codec.GZIP), b"\x07" * 16), "not decompressible"),
    "too many records": (
        edit(sample(Codec.GZIP), records_count=1000, last_offset_delta=999),
        "1000 records in",
    ),
    "too few records": (edit(sample(), records_count=2, last_offset_delta=1), "follow the last"),
    "wrong lengths": (with_body(sample(), b"\xff" * 21), "a varint"),
    "bytes at the end": (
        with_body(sample(Codec.ZSTD), compress(Codec.ZSTD, BODY + b"\0\0")),
        "2 bytes follow the last record",
    ),
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    cluster = await SmallCluster.open(tmp_path)
    await claim_store(cluster.control, cluster.store)
    yield cluster
    await cluster.close()


async def write(cluster: SmallCluster, *batches: bytes) -> None:
    topic = await cluster.topic()
    now_ms = SystemClock().now_ms()
    block = OpenBlock()
    block.add(
        [
            EntryBatch(
                topic_id=topic.id,
                topic_name=topic.name,
                partition=PartitionIndex(1),
                timestamp_type=TimestampType.CREATE_TIME,
                header=parse_header(data),
                data=memoryview(bytearray(data)),
            )
            for data in batches
        ]
    )
    sealed = seal(
        block, object_id=ObjectId(uuid7(now_ms)), broker_id=BrokerId(1), created_ms=now_ms
    )
    await cluster.store.put(sealed.commit.key, sealed.parts)
    await cluster.commit(sealed)


@pytest.mark.parametrize("name", UNDECODABLE)
async def test_a_batch_that_cannot_be_decoded_is_named_with_partition_and_offset(
    cluster: SmallCluster, name: str
) -> None:
    data, reason = UNDECODABLE[name]
    await write(cluster, sample(), data, sample())
    report = await run_fsck(cluster.control, cluster.store, deep=True, clock=cluster.later)
    [finding] = report.findings
    assert finding.where == "orders-1"
    assert finding.problem.promise is Promise.READABLE
    assert "batch at offset 3: its records cannot be decoded" in finding.problem.text
    assert reason in finding.problem.text
    assert report.damaged
