"""The contract of object stores on each implementation, and the promises of one kind of store."""

import asyncio
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import boto3
import pytest
from tests.contract.lossy_s3 import QUICK, lossy_s3
from tests.support.servers import S3Server

from stratalog.clock import SystemClock
from stratalog.objects import (
    Create,
    KeyConflictError,
    ObjectExistsError,
    ObjectStore,
    Range,
    RetryPolicy,
    StoreAccessError,
    StoreRefusedError,
    StoreUnavailableError,
    open_store,
)
from stratalog.testing.store_contract import StoreContract
from stratalog.testing.store_contract.stored_objects import keys, read
from stratalog.testing.store_contract.streams import Leftovers

CLOCK = SystemClock()
MIB = 1024 * 1024


class TestStoreInMemory(StoreContract):
    most_buffered_bytes = None

    @pytest.fixture
    async def store(self) -> AsyncIterator[ObjectStore]:
        store = open_store("memory:", clock=CLOCK)
        yield store
        await store.close()


class TestFolder(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[ObjectStore]:
        store = open_store(f"file://{tmp_path}", clock=CLOCK)
        yield store
        await store.close()

    @pytest.fixture
    def leftovers(self, tmp_path: Path) -> Leftovers:
        return lambda: asyncio.to_thread(os.listdir, tmp_path / ".stratalog/tmp")


class TestS3(StoreContract):
    racers = 3
    """The server of the tests is right about races but takes seconds for large ones."""

    @pytest.fixture
    async def store(self, s3_server: S3Server, s3_url: str) -> AsyncIterator[ObjectStore]:
        store = open_store(s3_url, s3_server.options, clock=CLOCK)
        yield store
        await store.close()

    @pytest.fixture
    def leftovers(self, s3_server: S3Server, s3_url: str) -> Leftovers:
        return lambda: asyncio.to_thread(pending_uploads, s3_server, s3_url)


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


async def test_s3_takes_a_block_in_one_request(s3_server: S3Server, s3_url: str) -> None:
    store = open_store(s3_url, s3_server.options, clock=CLOCK)
    etag = await store.put("block", [bytes(MIB // 2)] * 16)
    assert not etag.rstrip('"').endswith("-1"), "S3 marks multipart uploads so"
    await store.close()


async def test_a_large_range_is_one_request_and_larger_ones_are_several(
    s3_server: S3Server,
) -> None:
    data = os.urandom(24 * MIB)
    async with lossy_s3(s3_server, 0) as (store, proxy):
        await store.put("x", [data])
        for wanted, requests in [
            ([Range(1, 16 * MIB + 1)], 1),
            ([Range(0, 8 * MIB), Range(8 * MIB, 16 * MIB)], 1),
            ([Range(0, 12 * MIB), Range(12 * MIB, 24 * MIB)], 2),
            ([Range(0, 24 * MIB)], 1),
        ]:
            proxy.requests.clear()
            answers = await store.get_ranges("x", wanted)
            assert [bytes(answer) for answer in answers] == [data[r.start : r.end] for r in wanted]
            assert len(proxy.requests) == requests


@pytest.mark.parametrize("url", ["memory:", "file"])
async def test_keys_sort_by_bytes_where_one_folders_name_begins_another(
    url: str, tmp_path: Path
) -> None:
    """Not on S3: the server that the tests use sorts folder by folder."""
    store = open_store(url if url == "memory:" else f"file:{tmp_path}", clock=CLOCK)
    everything = ["a b", "a-b/1", "a.b", "a/1", "a/2/z", "a0", "ab"]
    for key in everything:
        await store.put(key, [b""])
    assert await keys(store) == everything
    for start in [*everything, "a", "a-", "a-b", "a/", "a/2"]:
        assert await keys(store, start_after=start) == [k for k in everything if k > start]
    await store.close()


async def test_a_folder_says_that_a_key_cannot_be_object_and_folder(tmp_path: Path) -> None:
    store = open_store(f"file:{tmp_path}", clock=CLOCK)
    await store.put("x", [b"1"])
    await store.put("y/z", [b"1"])
    for key in ("x/y", "x/y/z", "y"):
        with pytest.raises(KeyConflictError):
            await store.put(key, [b"2"])
        with pytest.raises(KeyConflictError):
            await store.put(key, [b"2"], mode=Create())
    assert await keys(store) == ["x", "y/z"]
    await store.close()


@pytest.mark.parametrize("losses", [1, 3])
async def test_s3_create_whose_reply_is_lost_on_the_wire_knows_its_own_object(
    s3_server: S3Server, losses: int
) -> None:
    async with lossy_s3(s3_server, losses) as (store, proxy):
        etag = await store.put("x", [b"mine"], mode=Create())
        assert proxy.losses == 0
        assert (await store.head("x")).etag == etag
        with pytest.raises(ObjectExistsError):
            await store.put("x", [b"mine"], mode=Create())


async def test_s3_that_never_answers_is_unavailable(s3_server: S3Server) -> None:
    once = RetryPolicy(attempts=1)
    async with lossy_s3(s3_server, 99, once) as (store, _):
        with pytest.raises(StoreUnavailableError):
            await store.put("x", [b"1"], mode=Create())


async def test_s3_encrypts_with_its_own_key(s3_server: S3Server) -> None:
    options = {**s3_server.options, "server_side_encryption": "AES256"}
    store = open_store(s3_server.fresh_url(), options, clock=CLOCK)
    await store.put("x", [b"secret"], mode=Create(), metadata={"k": "v"})
    await store.copy("x", "y")
    assert await read(store, "y") == b"secret"
    assert (await store.head("x")).metadata == {"k": "v"}


async def test_s3_encrypts_with_the_customers_key(s3_server: S3Server, s3_url: str) -> None:
    def with_key(key: bytes) -> ObjectStore:
        options = {
            **s3_server.options,
            "server_side_encryption": "sse-c",
            "sse_customer_key_base64": b64encode(key).decode(),
        }
        return open_store(s3_url, options, clock=CLOCK)

    store = with_key(b"k" * 32)
    await store.put("x", [b"secret"], mode=Create())
    assert [bytes(b) for b in await store.get_ranges("x", [Range(1, 3)])] == [b"ec"]
    await store.copy("x", "y")
    assert await read(store, "y") == b"secret"
    with pytest.raises(StoreAccessError):
        await with_key(b"z" * 32).get("x")
    with pytest.raises(StoreRefusedError):
        await open_store(s3_url, s3_server.options, clock=CLOCK).get("x")


@pytest.mark.parametrize("option", ["access_key_id", "secret_access_key"])
async def test_s3_refusals_name_no_secret(s3_server: S3Server, s3_url: str, option: str) -> None:
    options = {**s3_server.options, option: "something-wrong"}
    store = open_store(s3_url, options, clock=CLOCK)
    with pytest.raises(StoreAccessError, match=r"403.*credentials") as caught:
        await store.put("x", [b"1"])
    assert caught.value.__cause__ is None
    assert "something-wrong" not in str(caught.value)
    assert s3_server.secret_key not in str(caught.value)


async def test_s3_without_tls_must_be_allowed(s3_server: S3Server, s3_url: str) -> None:
    options = {**s3_server.options, "allow_http": "false"}
    with pytest.raises(StoreRefusedError, match="allow_http"):
        await open_store(s3_url, options, clock=CLOCK).head("x")


async def test_s3_that_is_not_there_is_unavailable(s3_server: S3Server, s3_url: str) -> None:
    options = {**s3_server.options, "endpoint": "http://127.0.0.1:1"}
    store = open_store(s3_url, options, clock=CLOCK, retries=QUICK)
    with pytest.raises(StoreUnavailableError):
        await store.head("x")
