"""Puts: whole objects, with their metadata."""

import asyncio
import os

import pytest

from stratalog.clock import SystemClock
from stratalog.objects import Buffer, Create, ObjectStore
from stratalog.testing.store_contract.stored_objects import keys, read

_MIB = 1024 * 1024
_CLOCK = SystemClock()


class PutContract:
    async def test_put_stores_the_concatenation_of_its_parts(self, store: ObjectStore) -> None:
        parts: list[Buffer] = [
            b"one",
            bytearray(b"two"),
            memoryview(b"xthreex")[1:-1],
            b"",
            b"four",
        ]
        etag = await store.put("a/b/c", parts)
        stored = await store.get("a/b/c")
        assert bytes(stored.data) == b"onetwothreefour"
        assert stored.info.key == "a/b/c"
        assert stored.info.size_bytes == 15
        assert stored.info.etag == etag

    @pytest.mark.parametrize("parts", [[], [b""], [b"", b""]])
    async def test_an_object_may_be_empty(self, store: ObjectStore, parts: list[bytes]) -> None:
        await store.put("empty", parts)
        assert await read(store, "empty") == b""
        assert (await store.head("empty")).size_bytes == 0

    async def test_more_parts_than_one_system_call_takes_arrive_in_order(
        self, store: ObjectStore
    ) -> None:
        parts = [index.to_bytes(4) for index in range(os.sysconf("SC_IOV_MAX") * 2 + 1)]
        await store.put("many", parts)
        assert await read(store, "many") == b"".join(parts)

    async def test_an_object_of_the_size_of_a_block_arrives_whole(self, store: ObjectStore) -> None:
        parts = [os.urandom(_MIB // 2) for _ in range(16)]
        await store.put("block", parts)
        assert await read(store, "block") == b"".join(parts)

    async def test_a_large_object_survives_being_put_in_several_requests(
        self, store: ObjectStore
    ) -> None:
        part = os.urandom(_MIB)
        await store.put("large", [part] * 65, metadata={"size": "large"})
        stored = await store.get("large")
        assert stored.info.size_bytes == 65 * _MIB
        assert bytes(stored.data[64 * _MIB :]) == part
        assert stored.info.metadata == {"size": "large"}

    async def test_the_callers_buffer_is_its_own_again_after_a_put(
        self, store: ObjectStore
    ) -> None:
        buffer = bytearray(b"before")
        await store.put("x", [buffer])
        buffer[:] = b"after!"
        assert await read(store, "x") == b"before"

    async def test_head_get_and_list_tell_the_same(self, store: ObjectStore) -> None:
        before_ms = _CLOCK.now_ms()
        etag = await store.put("x", [b"data"])
        head = await store.head("x")
        listed = [info async for info in store.list("")]
        assert head == (await store.get("x")).info == listed[0]
        assert head.etag == etag
        assert before_ms - 2000 < head.modified_ms < _CLOCK.now_ms() + 2000

    async def test_metadata_comes_back_as_it_was_given(self, store: ObjectStore) -> None:
        metadata = {"epoch": "7", "made-by": "broker 3; v=1"}
        await store.put("created", [b"1"], mode=Create(), metadata=metadata)
        await store.put("overwritten", [b"1"], metadata=metadata)
        assert (await store.head("created")).metadata == metadata
        assert (await store.get("created")).info.metadata == metadata
        assert (await store.head("overwritten")).metadata == metadata
        assert await keys(store) == ["created", "overwritten"]

    async def test_an_overwrite_replaces_data_and_metadata_together(
        self, store: ObjectStore
    ) -> None:
        first = await store.put("x", [b"old"], metadata={"version": "1"})
        second = await store.put("x", [b"new!"], metadata={"version": "2"})
        assert first != second
        stored = await store.get("x")
        assert (bytes(stored.data), stored.info.metadata) == (b"new!", {"version": "2"})
        await store.put("x", [b"newest"])
        stored = await store.get("x")
        assert (bytes(stored.data), stored.info.metadata) == (b"newest", {})

    async def test_readers_never_see_a_part_of_a_put(self, store: ObjectStore) -> None:
        versions = [bytes([value]) * _MIB for value in range(4)]
        await store.put("x", [versions[0]], metadata={"value": "0"})

        async def write() -> None:
            for value, version in enumerate(versions):
                await store.put("x", [version[: _MIB // 2]] * 2, metadata={"value": str(value)})

        writing = asyncio.create_task(write())
        while not writing.done():
            stored = await store.get("x")
            assert bytes(stored.data) == versions[int(stored.info.metadata["value"])]
        await writing

    async def test_copy_takes_data_and_metadata_along(self, store: ObjectStore) -> None:
        await store.put("source", [b"data"], metadata={"epoch": "7"})
        await store.put("old", [b"old"], metadata={"other": "1"})
        await store.copy("source", "new/target")
        await store.copy("source", "old")
        for key in ("new/target", "old"):
            stored = await store.get(key)
            assert (bytes(stored.data), stored.info.metadata) == (b"data", {"epoch": "7"})
        await store.delete(["source"])
        assert await read(store, "old") == b"data"

    async def test_delete_of_what_is_gone_is_a_success(self, store: ObjectStore) -> None:
        await store.put("a/x", [b"1"], metadata={"k": "v"})
        await store.put("a/y", [b"1"])
        await store.delete(["a/x", "a/never-there", "never/there"])
        await store.delete(["a/x"])
        await store.delete([])
        assert await keys(store) == ["a/y"]
        await store.put("a/x", [b"2"])
        assert (await store.get("a/x")).info.metadata == {}
