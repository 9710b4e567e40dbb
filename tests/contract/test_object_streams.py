"""What every object store promises of a put that comes as a stream."""

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import boto3
import pytest
from tests.contract.lossy_s3 import QUICK, lossy_s3
from tests.support.servers import S3Server

from stratalog.clock import SystemClock
from stratalog.objects import (
    Buffer,
    KeyConflictError,
    ObjectNotFoundError,
    ObjectStore,
    StoreAccessError,
    StoreUnavailableError,
    open_store,
)
from stratalog.objects.folder import STREAM_RUN_BYTES, THREADS
from stratalog.objects.upload import PART_BYTES, PARTS_UNDER_WAY, PIECE_BYTES

CLOCK = SystemClock()
MIB = 1024 * 1024


@dataclass(frozen=True)
class Rig:
    store: ObjectStore
    traces: Callable[[], list[str]]
    """What unfinished puts have left behind."""

    async def left(self) -> list[str]:
        return await asyncio.to_thread(self.traces)


@pytest.fixture(params=["memory", "folder", "s3"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    match request.param:
        case "memory":
            made = Rig(open_store("memory:", clock=CLOCK), list)
        case "folder":
            temporaries = tmp_path / ".stratalog/tmp"
            opened = open_store(f"file://{tmp_path}", clock=CLOCK)
            made = Rig(opened, lambda: os.listdir(temporaries))
        case _:
            server: S3Server = request.getfixturevalue("s3_server")
            url = server.fresh_url()
            opened = open_store(url, server.options, clock=CLOCK)
            made = Rig(opened, lambda: pending_uploads(server, url))
    yield made
    await made.store.close()


@pytest.fixture
def store(rig: Rig) -> ObjectStore:
    return rig.store


def pending_uploads(server: S3Server, url: str) -> list[str]:
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name="us-east-1",
    )
    prefix = url.rpartition("/")[2]
    answer = client.list_multipart_uploads(Bucket=server.bucket)
    uploads = [upload["Key"] for upload in answer.get("Uploads", [])]
    return [key for key in uploads if key.startswith(prefix)]


async def stream(parts: Iterable[Buffer]) -> AsyncIterator[Buffer]:
    for part in parts:
        await asyncio.sleep(0)
        yield part


async def filled(size_bytes: int) -> AsyncIterator[Buffer]:
    for start in range(0, size_bytes, MIB):
        yield bytes(min(MIB, size_bytes - start))


async def read(store: ObjectStore, key: str) -> bytes:
    return bytes((await store.get(key)).data)


async def keys(store: ObjectStore) -> list[str]:
    return [info.key async for info in store.list("")]


def cut(data: bytes, chance: Random, largest: int) -> Iterable[Buffer]:
    start = 0
    while start < len(data):
        end = start + chance.randint(0, largest)
        yield memoryview(data)[start:end]
        start = end


def sizes() -> list[int]:
    borders = [256 * 1024, PIECE_BYTES, STREAM_RUN_BYTES, PART_BYTES]
    around = [border + by for border in borders for by in (-1, 0, 1)]
    return [0, 1, 4095, 4096, *around, 2 * PART_BYTES, 2 * PART_BYTES + 17]


@pytest.mark.parametrize("size_bytes", sizes())
async def test_a_stream_of_any_size_arrives_whole(rig: Rig, size_bytes: int) -> None:
    data = os.urandom(size_bytes)
    parts = cut(data, Random(size_bytes), max(1, size_bytes // 5))
    assert await rig.store.put_stream("a/b", stream(parts)) == size_bytes
    assert await read(rig.store, "a/b") == data
    assert (await rig.store.head("a/b")).size_bytes == size_bytes
    assert await rig.left() == []


@pytest.mark.parametrize("largest", [100, MIB, 3 * PART_BYTES])
async def test_parts_may_be_small_or_large(store: ObjectStore, largest: int) -> None:
    data = os.urandom(min(2 * PART_BYTES, largest * 1000))
    await store.put_stream("x", stream(cut(data, Random(1), largest)))
    assert await read(store, "x") == data


async def test_parts_may_be_any_buffers_or_none(store: ObjectStore) -> None:
    parts: list[Buffer] = [b"one", bytearray(b"two"), memoryview(b"xthreex")[1:-1], b"", b"four"]
    assert await store.put_stream("x", stream(parts)) == 15
    assert await read(store, "x") == b"onetwothreefour"
    assert await store.put_stream("x", stream([])) == 0
    assert await read(store, "x") == b""


async def test_the_callers_buffer_is_its_own_again_after_a_stream(store: ObjectStore) -> None:
    for size in (6, PART_BYTES):
        buffer = bytearray(size)
        await store.put_stream("x", stream([buffer]))
        buffer[:] = b"\xff" * size
        assert await read(store, "x") == bytes(size)


async def test_a_stream_overwrites_data_and_metadata(store: ObjectStore) -> None:
    first = await store.put("x", [b"old"], metadata={"version": "1"})
    for data in (b"new", bytes(PART_BYTES + 1)):
        await store.put_stream("x", stream([data]))
        stored = await store.get("x")
        assert (bytes(stored.data), stored.info.metadata) == (data, {})
        assert stored.info.etag != first
    await store.put("x", [b"newest"])
    assert await read(store, "x") == b"newest"


class Tracked(bytearray):
    """A buffer that can be watched."""


async def test_a_large_object_passes_through_little_memory(store: ObjectStore) -> None:
    alive: set[int] = set()
    most_alive = 0
    total, chunk = 72 * MIB, 2 * MIB

    async def parts() -> AsyncIterator[Buffer]:
        nonlocal most_alive
        for number in range(total // chunk):
            part = Tracked(number.to_bytes(4) * (chunk // 4))
            alive.add(number)
            weakref.finalize(part, alive.discard, number)
            most_alive = max(most_alive, len(alive))
            yield part
            del part

    assert await store.put_stream("large", parts()) == total
    whole = memoryview((await store.get("large")).data)
    for number in range(total // chunk):
        expected = number.to_bytes(4) * (chunk // 4)
        assert whole[number * chunk : (number + 1) * chunk] == expected
    if not store.url.startswith("memory:"):
        assert most_alive * chunk <= (PARTS_UNDER_WAY + 2) * PART_BYTES


class MakerError(Exception):
    pass


@pytest.mark.parametrize("error", [MakerError("why"), OSError("why"), ValueError("why")])
@pytest.mark.parametrize("after_bytes", [0, 1, 3 * MIB, 2 * PART_BYTES + 1])
async def test_a_stream_that_fails_changes_nothing(
    rig: Rig, error: Exception, after_bytes: int
) -> None:
    async def failing() -> AsyncIterator[Buffer]:
        async for part in filled(after_bytes):
            yield part
        raise error

    await rig.store.put("old", [b"old"], metadata={"k": "v"})
    for key in ("old", "folder/new"):
        with pytest.raises(type(error)) as caught:
            await rig.store.put_stream(key, failing())
        assert caught.value is error
    stored = await rig.store.get("old")
    assert (bytes(stored.data), stored.info.metadata) == (b"old", {"k": "v"})
    assert await keys(rig.store) == ["old"]
    assert await rig.left() == []


@pytest.mark.parametrize("after_bytes", [0, 1, 3 * MIB, 4 * PART_BYTES + 1])
async def test_a_stream_that_is_cancelled_changes_nothing(rig: Rig, after_bytes: int) -> None:
    waiting = asyncio.Event()

    async def stalling() -> AsyncIterator[Buffer]:
        async for part in filled(after_bytes):
            yield part
        waiting.set()
        await asyncio.Event().wait()

    await rig.store.put("old", [b"old"])
    for key in ("old", "new"):
        waiting.clear()
        put = asyncio.create_task(rig.store.put_stream(key, stalling()))
        await waiting.wait()
        assert await read(rig.store, "old") == b"old"
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
    assert await keys(rig.store) == ["old"]
    assert await read(rig.store, "old") == b"old"
    assert await rig.left() == []


@pytest.mark.parametrize("size_bytes", [3, 3 * PART_BYTES])
async def test_a_stream_that_is_cancelled_at_any_step_is_there_whole_or_not_at_all(
    rig: Rig, size_bytes: int
) -> None:
    """Cancelled after one, two, four turns of the loop and so on, until the put is done first."""
    for power in range(30):
        key = f"{power}"
        put = asyncio.create_task(rig.store.put_stream(key, filled(size_bytes)))
        for _ in range(2**power):
            await asyncio.sleep(0)
            if put.done():
                break
        too_late = put.done()
        put.cancel()
        with suppress(asyncio.CancelledError):
            await put
        with suppress(ObjectNotFoundError):
            assert await read(rig.store, key) == bytes(size_bytes)
        assert await rig.left() == []
        if too_late:
            break
    assert too_late


async def test_streams_run_beside_one_another(store: ObjectStore) -> None:
    await asyncio.gather(
        *(store.put_stream(f"{number}", stream([b"%d" % number] * 3)) for number in range(20))
    )
    for number in range(20):
        assert await read(store, f"{number}") == b"%d" % number * 3


async def test_streams_may_be_made_from_the_store_that_takes_them(store: ObjectStore) -> None:
    """More of them at once than a folder has threads: none may wait for its maker in one."""
    await store.put("source", [b"data"])

    async def copied() -> AsyncIterator[Buffer]:
        for _ in range(3):
            yield (await store.get("source")).data

    count = 2 * THREADS
    async with asyncio.timeout(60):
        await asyncio.gather(*(store.put_stream(f"{n}", copied()) for n in range(count)))
    assert await read(store, f"{count - 1}") == b"data" * 3


# What follows concerns one kind of store only.


async def test_a_folder_refuses_a_stream_where_other_objects_are_in_the_way(tmp_path: Path) -> None:
    store = open_store(f"file:{tmp_path}", clock=CLOCK)
    await store.put("x", [b"1"])
    await store.put("y/z", [b"1"])
    for key in ("x/y", "y"):
        with pytest.raises(KeyConflictError):
            await store.put_stream(key, stream([b"2"]))
    assert await keys(store) == ["x", "y/z"]
    assert os.listdir(tmp_path / ".stratalog/tmp") == []
    await store.close()


async def test_s3_takes_a_small_stream_in_one_request(s3_server: S3Server) -> None:
    async with lossy_s3(s3_server, 0) as (store, proxy):
        await store.put_stream("x", filled(PART_BYTES - 1))
        assert len(proxy.requests) == 1
        await store.put_stream("x", filled(PART_BYTES + 1))
        assert len(proxy.requests) == 1 + 4, "start, two parts, end"


async def test_s3_takes_several_parts_at_once(s3_server: S3Server) -> None:
    async with lossy_s3(s3_server, 0) as (store, proxy):
        await store.put_stream("x", filled(8 * PART_BYTES))
        assert 1 < proxy.most_puts_at_once <= PARTS_UNDER_WAY


@pytest.mark.parametrize("size_bytes", [3, 3 * PART_BYTES])
async def test_s3_streams_survive_lost_replies(s3_server: S3Server, size_bytes: int) -> None:
    """Three at most, because all may befall the same request."""
    async with lossy_s3(s3_server, QUICK.attempts - 1) as (store, proxy):
        await store.put_stream("x", filled(size_bytes))
        assert proxy.losses == 0
        assert await read(store, "x") == bytes(size_bytes)


@pytest.mark.parametrize("size_bytes", [3, 3 * PART_BYTES])
async def test_s3_streams_on_a_dead_line_fail_and_change_nothing(
    s3_server: S3Server, size_bytes: int
) -> None:
    async with lossy_s3(s3_server, 0) as (store, proxy):
        await store.put("x", [b"old"])
        proxy.losses = 99
        with pytest.raises(StoreUnavailableError, match="'x'"):
            await store.put_stream("x", filled(size_bytes))
        if size_bytes >= PART_BYTES:
            assert await read(store, "x") == b"old"
            assert any(request.startswith(b"DELETE ") for request in proxy.requests)


@pytest.mark.parametrize("size_bytes", [3, 3 * PART_BYTES])
async def test_s3_refusals_of_streams_name_no_secret(
    s3_server: S3Server, s3_url: str, size_bytes: int
) -> None:
    options = {**s3_server.options, "secret_access_key": "something-wrong"}
    store = open_store(s3_url, options, clock=CLOCK)
    with pytest.raises(StoreAccessError, match=r"403.*credentials") as caught:
        await store.put_stream("x", filled(size_bytes))
    assert caught.value.__cause__ is None
    assert "something-wrong" not in str(caught.value)
