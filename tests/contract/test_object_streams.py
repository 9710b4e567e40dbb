"""The promises of a folder and of S3 about puts that come as a stream.

The promises of every store are in `stratalog.testing.store_contract`.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.lossy_s3 import QUICK, lossy_s3
from tests.support.servers import S3Server

from stratalog.clock import SystemClock
from stratalog.objects import (
    Buffer,
    KeyConflictError,
    StoreAccessError,
    StoreUnavailableError,
    open_store,
)
from stratalog.objects.upload import PART_BYTES, PARTS_UNDER_WAY
from stratalog.testing.store_contract.stored_objects import keys, read

CLOCK = SystemClock()
MIB = 1024 * 1024


async def filled(size_bytes: int) -> AsyncIterator[Buffer]:
    for start in range(0, size_bytes, MIB):
        yield bytes(min(MIB, size_bytes - start))


async def test_a_folder_refuses_a_stream_where_other_objects_are_in_the_way(tmp_path: Path) -> None:
    store = open_store(f"file:{tmp_path}", clock=CLOCK)
    await store.put("x", [b"1"])
    await store.put("y/z", [b"1"])
    for key in ("x/y", "y"):
        with pytest.raises(KeyConflictError):
            await store.put_stream(key, filled(1))
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
