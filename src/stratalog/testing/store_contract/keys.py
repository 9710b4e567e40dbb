"""Keys and metadata that every store can hold, and their limits."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from stratalog.objects import BadKeyError, BadMetadataError, Buffer, ObjectStore
from stratalog.testing.store_contract.stored_objects import read


async def _nothing() -> AsyncIterator[Buffer]:
    yield b""


class KeyContract:
    @pytest.mark.parametrize(
        "key",
        [
            *("", "/x", "x/", "a//b", "..", "a/../b", "./x", "a/.", "\x00", "a\n", "\ud800"),
            *(".stratalog/tmp/x", "k" * 256, "/".join(["k" * 179] * 5) + "kk"),
        ],
    )
    async def test_a_key_that_not_every_store_could_hold_is_refused(
        self, store: ObjectStore, key: str
    ) -> None:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: store.put(key, [b""]),
            lambda: store.put_stream(key, _nothing()),
            lambda: store.get(key),
            lambda: store.head(key),
            lambda: store.get_ranges(key, []),
            lambda: store.copy(key, "ok"),
            lambda: store.copy("ok", key),
            lambda: store.delete([key]),
        ]
        for call in calls:
            with pytest.raises(BadKeyError):
                await call()

    async def test_the_longest_key_fits(self, store: ObjectStore) -> None:
        key = "/".join(["k" * 179] * 5) + "k"
        for longest in (key, "k" * 255):
            await store.put(longest, [b"1"])
            assert await read(store, longest) == b"1"

    @pytest.mark.parametrize("metadata", [{"Up": "1"}, {"a_b": "1"}, {"": "1"}, {"a": "é"}])
    async def test_metadata_that_not_every_store_could_hold_is_refused(
        self, store: ObjectStore, metadata: dict[str, str]
    ) -> None:
        with pytest.raises(BadMetadataError):
            await store.put("x", [b""], metadata=metadata)

    async def test_metadata_has_a_largest_size(self, store: ObjectStore) -> None:
        await store.put("x", [b""], metadata={"k": "v" * 1900})
        assert (await store.head("x")).metadata == {"k": "v" * 1900}
        with pytest.raises(BadMetadataError, match="longer"):
            await store.put("x", [b""], metadata={"k": "v" * 2048})
