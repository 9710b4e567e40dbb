"""Puts that come as a stream."""

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from random import Random
from typing import ClassVar, TypeAlias

import pytest

from stratalog.objects import Buffer, ObjectNotFoundError, ObjectStore
from stratalog.objects.folder import STREAM_RUN_BYTES
from stratalog.objects.upload import PART_BYTES, PARTS_UNDER_WAY, PIECE_BYTES
from stratalog.testing.store_contract.stored_objects import keys, read

Leftovers: TypeAlias = Callable[[], Awaitable[list[str]]]

_MIB = 1024 * 1024
_STREAMS_AT_ONCE = 32
"""More than a folder has threads."""


class _Tracked(bytearray):
    """A buffer that can be watched."""


class _MakerError(Exception):
    """A failure of the stream, not of the store."""


async def _stream(parts: Iterable[Buffer]) -> AsyncIterator[Buffer]:
    for part in parts:
        await asyncio.sleep(0)
        yield part


async def _filled(size_bytes: int) -> AsyncIterator[Buffer]:
    for start in range(0, size_bytes, _MIB):
        yield bytes(min(_MIB, size_bytes - start))


def _cut(data: bytes, chance: Random, largest: int) -> Iterable[Buffer]:
    start = 0
    while start < len(data):
        end = start + chance.randint(0, largest)
        yield memoryview(data)[start:end]
        start = end


def _sizes() -> list[int]:
    borders = [256 * 1024, PIECE_BYTES, STREAM_RUN_BYTES, PART_BYTES]
    around = [border + by for border in borders for by in (-1, 0, 1)]
    return [0, 1, 4095, 4096, *around, 2 * PART_BYTES, 2 * PART_BYTES + 17]


class StreamContract:
    most_buffered_bytes: ClassVar[int | None] = (PARTS_UNDER_WAY + 2) * PART_BYTES
    """The most bytes of a stream that the store keeps in memory. None for a store in memory."""

    @pytest.fixture
    def leftovers(self) -> Leftovers:
        """List the remains of unfinished puts, if the store has a way to tell."""

        async def none() -> list[str]:
            return []

        return none

    @pytest.mark.parametrize("size_bytes", _sizes())
    async def test_a_stream_of_any_size_arrives_whole(
        self, store: ObjectStore, leftovers: Leftovers, size_bytes: int
    ) -> None:
        data = os.urandom(size_bytes)
        parts = _cut(data, Random(size_bytes), max(1, size_bytes // 5))
        assert await store.put_stream("a/b", _stream(parts)) == size_bytes
        assert await read(store, "a/b") == data
        assert (await store.head("a/b")).size_bytes == size_bytes
        assert await leftovers() == []

    @pytest.mark.parametrize("largest", [100, _MIB, 3 * PART_BYTES])
    async def test_parts_may_be_small_or_large(self, store: ObjectStore, largest: int) -> None:
        data = os.urandom(min(2 * PART_BYTES, largest * 1000))
        await store.put_stream("x", _stream(_cut(data, Random(1), largest)))
        assert await read(store, "x") == data

    async def test_parts_may_be_any_buffers_or_none(self, store: ObjectStore) -> None:
        parts: list[Buffer] = [
            b"one",
            bytearray(b"two"),
            memoryview(b"xthreex")[1:-1],
            b"",
            b"four",
        ]
        assert await store.put_stream("x", _stream(parts)) == 15
        assert await read(store, "x") == b"onetwothreefour"
        assert await store.put_stream("x", _stream([])) == 0
        assert await read(store, "x") == b""

    async def test_the_callers_buffer_is_its_own_again_after_a_stream(
        self, store: ObjectStore
    ) -> None:
        for size in (6, PART_BYTES):
            buffer = bytearray(size)
            await store.put_stream("x", _stream([buffer]))
            buffer[:] = b"\xff" * size
            assert await read(store, "x") == bytes(size)

    async def test_a_stream_overwrites_data_and_metadata(self, store: ObjectStore) -> None:
        first = await store.put("x", [b"old"], metadata={"version": "1"})
        for data in (b"new", bytes(PART_BYTES + 1)):
            await store.put_stream("x", _stream([data]))
            stored = await store.get("x")
            assert (bytes(stored.data), stored.info.metadata) == (data, {})
            assert stored.info.etag != first
        await store.put("x", [b"newest"])
        assert await read(store, "x") == b"newest"

    async def test_a_large_object_passes_through_little_memory(self, store: ObjectStore) -> None:
        alive: set[int] = set()
        most_alive = 0
        total, chunk = 72 * _MIB, 2 * _MIB

        async def parts() -> AsyncIterator[Buffer]:
            nonlocal most_alive
            for number in range(total // chunk):
                part = _Tracked(number.to_bytes(4) * (chunk // 4))
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
        if self.most_buffered_bytes is not None:
            assert most_alive * chunk <= self.most_buffered_bytes

    @pytest.mark.parametrize("error", [_MakerError("why"), OSError("why"), ValueError("why")])
    @pytest.mark.parametrize("after_bytes", [0, 1, 3 * _MIB, 2 * PART_BYTES + 1])
    async def test_a_stream_that_fails_changes_nothing(
        self, store: ObjectStore, leftovers: Leftovers, error: Exception, after_bytes: int
    ) -> None:
        async def failing() -> AsyncIterator[Buffer]:
            async for part in _filled(after_bytes):
                yield part
            raise error

        await store.put("old", [b"old"], metadata={"k": "v"})
        for key in ("old", "folder/new"):
            with pytest.raises(type(error)) as caught:
                await store.put_stream(key, failing())
            assert caught.value is error
        stored = await store.get("old")
        assert (bytes(stored.data), stored.info.metadata) == (b"old", {"k": "v"})
        assert await keys(store) == ["old"]
        assert await leftovers() == []

    @pytest.mark.parametrize("after_bytes", [0, 1, 3 * _MIB, 4 * PART_BYTES + 1])
    async def test_a_stream_that_is_cancelled_changes_nothing(
        self, store: ObjectStore, leftovers: Leftovers, after_bytes: int
    ) -> None:
        waiting = asyncio.Event()

        async def stalling() -> AsyncIterator[Buffer]:
            async for part in _filled(after_bytes):
                yield part
            waiting.set()
            await asyncio.Event().wait()

        await store.put("old", [b"old"])
        for key in ("old", "new"):
            waiting.clear()
            put = asyncio.create_task(store.put_stream(key, stalling()))
            await waiting.wait()
            assert await read(store, "old") == b"old"
            put.cancel()
            with pytest.raises(asyncio.CancelledError):
                await put
        assert await keys(store) == ["old"]
        assert await read(store, "old") == b"old"
        assert await leftovers() == []

    @pytest.mark.parametrize("size_bytes", [3, 3 * PART_BYTES])
    async def test_a_stream_that_is_cancelled_at_any_step_is_there_whole_or_not_at_all(
        self, store: ObjectStore, leftovers: Leftovers, size_bytes: int
    ) -> None:
        """Cancel the put after 1, 2, 4 turns of the loop and so on, until it is done first."""
        for power in range(30):
            key = f"{power}"
            put = asyncio.create_task(store.put_stream(key, _filled(size_bytes)))
            for _ in range(2**power):
                await asyncio.sleep(0)
                if put.done():
                    break
            too_late = put.done()
            put.cancel()
            with suppress(asyncio.CancelledError):
                await put
            with suppress(ObjectNotFoundError):
                assert await read(store, key) == bytes(size_bytes)
            assert await leftovers() == []
            if too_late:
                break
        assert too_late

    async def test_streams_run_beside_one_another(self, store: ObjectStore) -> None:
        await asyncio.gather(
            *(store.put_stream(f"{number}", _stream([b"%d" % number] * 3)) for number in range(20))
        )
        for number in range(20):
            assert await read(store, f"{number}") == b"%d" % number * 3

    async def test_streams_may_be_made_from_the_store_that_takes_them(
        self, store: ObjectStore
    ) -> None:
        """There are more streams at once than threads. None may wait in a thread for its maker."""
        await store.put("source", [b"data"])

        async def copied() -> AsyncIterator[Buffer]:
            for _ in range(3):
                yield (await store.get("source")).data

        count = _STREAMS_AT_ONCE
        async with asyncio.timeout(60):
            await asyncio.gather(*(store.put_stream(f"{n}", copied()) for n in range(count)))
        assert await read(store, f"{count - 1}") == b"data" * 3
