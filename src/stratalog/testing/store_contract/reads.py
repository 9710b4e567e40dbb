"""Reads of ranges, and lists."""

import asyncio
import os

import pytest

from stratalog.objects import ObjectNotFoundError, ObjectStore, Range, ShortReadError
from stratalog.testing.store_contract.stored_objects import keys

_MIB = 1024 * 1024


class ReadContract:
    async def test_what_is_not_there_is_not_found(self, store: ObjectStore) -> None:
        await store.put("folder/x", [b"1"])
        for key in ("nothing", "folder", "folder/y"):
            with pytest.raises(ObjectNotFoundError, match=key):
                await store.get(key)
            with pytest.raises(ObjectNotFoundError, match=key):
                await store.head(key)
            with pytest.raises(ObjectNotFoundError, match=key):
                await store.get_ranges(key, [Range(0, 1)])
            with pytest.raises(ObjectNotFoundError):
                await store.copy(key, "target")
        assert await keys(store) == ["folder/x"]

    @pytest.mark.parametrize("mapped", [False, True], ids=["read", "mapped"])
    async def test_ranges_come_back_in_the_order_they_were_asked_for(
        self, store: ObjectStore, mapped: bool
    ) -> None:
        data = os.urandom(3 * _MIB)
        await store.put("x", [data])
        wanted = [
            Range(2 * _MIB, 3 * _MIB),
            Range(0, 1),
            Range(10, 20),
            Range(15, 30),
            Range(12, 13),
            Range(3 * _MIB - 1, 3 * _MIB),
            Range(0, 3 * _MIB),
        ]
        answers = await store.get_ranges("x", wanted, mapped=mapped)
        assert [bytes(answer) for answer in answers] == [data[r.start : r.end] for r in wanted]
        assert await store.get_ranges("x", [], mapped=mapped) == []
        with pytest.raises(ShortReadError, match="'x'"):
            await store.get_ranges("x", [Range(_MIB, 3 * _MIB + 1)], mapped=mapped)
        with pytest.raises(ObjectNotFoundError):
            await store.get_ranges("y", [Range(0, 1)], mapped=mapped)

    async def test_what_was_mapped_stays_as_it_was(self, store: ObjectStore) -> None:
        """Whatever becomes of the object: a scan may still be looking at it."""
        data = os.urandom(_MIB)
        await store.put("x", [data])
        [replaced] = await store.get_ranges("x", [Range(1, _MIB)], mapped=True)
        await store.put("x", [os.urandom(10)])
        assert bytes(replaced) == data[1:]
        await store.put("x", [data])
        [deleted] = await store.get_ranges("x", [Range(1, _MIB)], mapped=True)
        await store.delete(["x"])
        assert bytes(deleted) == data[1:]

    async def test_ranges_are_read_into_the_memory_that_is_given(self, store: ObjectStore) -> None:
        data = os.urandom(_MIB)
        await store.put("x", [data])
        wanted = [
            Range(500, 900_000),
            Range(0, 1),
            Range(10, 20),
            Range(15, 30),
            Range(900_000, _MIB),
        ]
        into = [memoryview(bytearray(r.end - r.start)) for r in wanted]
        answers = await store.get_ranges("x", wanted, into=into)
        assert [bytes(view) for view in into] == [data[r.start : r.end] for r in wanted]
        assert all(answer is view for answer, view in zip(answers, into, strict=True))
        with pytest.raises(ShortReadError, match="'x'"):
            await store.get_ranges(
                "x", [Range(_MIB - 1, _MIB + 1)], into=[memoryview(bytearray(2))]
            )
        assert await store.get_ranges("x", [], into=[]) == []

    @pytest.mark.parametrize(
        "bad", [Range(9, 11), Range(10, 11), Range(50, 60), Range(0, 3 * _MIB)]
    )
    async def test_a_range_past_the_end_is_damage(self, store: ObjectStore, bad: Range) -> None:
        await store.put("x", [b"0123456789"])
        with pytest.raises(ShortReadError, match="'x'"):
            await store.get_ranges("x", [Range(0, 1), bad])
        assert [bytes(b) for b in await store.get_ranges("x", [Range(0, 1), Range(9, 10)])] == [
            b"0",
            b"9",
        ]

    async def test_list_gives_all_keys_with_the_prefix_in_order(self, store: ObjectStore) -> None:
        everything = ["A", "a/1", "a/2/y", "a/2/z", "ab", "b/c/d#", "b/c/e", "c c/%41", "é/x"]
        for key in reversed(everything):
            await store.put(key, [b""])
        assert await keys(store) == sorted(everything)
        for prefix in ("a", "a/", "a/2", "a/2/", "a/2/z", "b", "b/c/", "é", "z", "a/3"):
            expected = sorted(key for key in everything if key.startswith(prefix))
            assert await keys(store, prefix) == expected, prefix

    async def test_list_starts_after_any_text(self, store: ObjectStore) -> None:
        everything = ["a/1", "a/10/x", "a/20/y", "a/3", "b/1", "c"]
        for key in everything:
            await store.put(key, [b""])
        for start in ("a", "a/1", "a/10", "a/10/w", "a/10/x", "a/20", "a/9", "b", "b/0", "c", "d"):
            expected = [key for key in everything if key > start]
            assert await keys(store, start_after=start) == expected, start
            within = [key for key in expected if key.startswith("a/")]
            assert await keys(store, "a/", start_after=start) == within, start

    async def test_list_goes_on_over_many_pages(self, store: ObjectStore) -> None:
        everything = [f"n/{number:04}" for number in range(1201)]
        for start in range(0, len(everything), 100):
            await asyncio.gather(*(store.put(k, [b""]) for k in everything[start : start + 100]))
        assert await keys(store, "n/") == everything
        await store.delete(everything)
        assert await keys(store) == []
