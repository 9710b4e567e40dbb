from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest
from tests.unit.checks.snapshots import batch

from stratalog.batch.errors import BatchDamagedError
from stratalog.checks.object_batches import read_batches
from stratalog.clock import SystemClock
from stratalog.objects.open import open_store
from stratalog.objects.store import Buffer, ObjectStore, Range

BATCHES = [batch(count) for count in (1, 40, 3, 2, 100, 1)]
DATA = b"".join(BATCHES)


@pytest.fixture
async def store() -> AsyncIterator[ObjectStore]:
    store = open_store("memory:", clock=SystemClock())
    await store.put("k", [b"before", DATA, b"after"])
    yield store
    await store.close()


async def walked(store: ObjectStore, end: int, window_bytes: int) -> list[tuple[int, bytes]]:
    walk = read_batches(store, "k", 6, end, window_bytes=window_bytes)
    return [(position, bytes(data)) async for position, _, data in walk]


@pytest.mark.parametrize("window_bytes", [1, 60, 61, 100, 1000, 2000, len(DATA), 10_000])
async def test_windows_of_any_size_yield_every_batch(store: ObjectStore, window_bytes: int) -> None:
    batches = await walked(store, 6 + len(DATA), window_bytes)
    assert [data for _, data in batches] == BATCHES
    positions = [6 + sum(map(len, BATCHES[:place])) for place in range(len(BATCHES))]
    assert [position for position, _ in batches] == positions


@pytest.mark.parametrize("window_bytes", [1, 100, 10_000])
@pytest.mark.parametrize("surplus", [-1, 1, 5])
async def test_an_end_inside_a_batch_is_damage(
    store: ObjectStore, window_bytes: int, surplus: int
) -> None:
    with pytest.raises(BatchDamagedError):
        await walked(store, 6 + len(DATA) + surplus, window_bytes)


@pytest.mark.parametrize("window_bytes", [1, 100, 10_000])
@pytest.mark.parametrize("length", [-(2**31), -13, 0, 48, 2**31 - 1])
async def test_an_impossible_length_is_damage_at_its_place(
    store: ObjectStore, window_bytes: int, length: int
) -> None:
    second = len(BATCHES[0])
    damaged = bytearray(DATA)
    damaged[second + 8 : second + 12] = length.to_bytes(4, signed=True)
    await store.put("k", [b"before", damaged])
    with pytest.raises(BatchDamagedError) as raised:
        await walked(store, 6 + len(DATA), window_bytes)
    assert raised.value.position in (6 + second + 8, 6 + len(DATA))


class Recording:
    """A store that records the sizes of reads."""

    def __init__(self, target: ObjectStore) -> None:
        self._target = target
        self.sizes: list[int] = []

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[Range],
        *,
        into: Sequence[memoryview] | None = None,
        mapped: bool = False,
    ) -> list[Buffer]:
        self.sizes += [each.end - each.start for each in ranges]
        return await self._target.get_ranges(key, ranges, into=into, mapped=mapped)


async def test_a_long_batch_widens_the_window_for_itself_alone(store: ObjectStore) -> None:
    recording = Recording(store)
    await walked(cast(ObjectStore, recording), 6 + len(DATA), 200)
    assert [size for size in recording.sizes if size > 200] == [len(BATCHES[1]), len(BATCHES[4])]
