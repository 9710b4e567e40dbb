"""The object store as one process reaches it, over a network."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from stratalog.objects.errors import StoreUnavailableError
from stratalog.objects.store import Buffer, ObjectInfo, ObjectStore, Overwrite, PutMode, Range
from stratalog.objects.wrapped import WrappedStore
from stratalog.testing.simulation.network import Network
from stratalog.testing.simulation.process import Process

T = TypeVar("T")


class SimulatedStore(WrappedStore):
    def __init__(self, inner: ObjectStore, process: Process, network: Network) -> None:
        super().__init__(inner)
        self._process = process
        self._network = network

    async def put(
        self,
        key: str,
        parts: Sequence[Buffer],
        *,
        mode: PutMode = Overwrite(),  # noqa: B008 - immutable
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        # A copy: the process may stamp its buffers while the request is still on its way.
        data = [b"".join(parts)]
        return await super().put(key, data, mode=mode, metadata=metadata)

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> int:
        """Collect the parts here: they are made by the process, and only then travel."""
        data = [bytes(part) async for part in parts]
        await self._around("put_stream", key, lambda: self._inner.put(key, data))
        return sum(map(len, data))

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[Range],
        *,
        into: Sequence[memoryview] | None = None,
        mapped: bool = False,
    ) -> list[Buffer]:
        buffers = await super().get_ranges(key, ranges, into=into, mapped=mapped)
        if not self._network.is_damaged():
            return buffers
        place = self._network.random.randrange(len(buffers))
        data = memoryview(buffers[place] if into is not None else bytearray(buffers[place]))
        data[self._network.random.randrange(len(data))] ^= 1 << self._network.random.randrange(8)
        return [*buffers[:place], data, *buffers[place + 1 :]]

    async def list(
        self, prefix: str, *, start_after: str | None = None
    ) -> AsyncIterator[ObjectInfo]:
        async def everything() -> list[ObjectInfo]:
            return [info async for info in self._inner.list(prefix, start_after=start_after)]

        for info in await self._around("list", prefix, everything):
            yield info

    async def close(self) -> None:
        """Leave the store itself open: other processes use it."""

    async def _around(self, operation: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        return await self._network.call(
            self._process,
            "store",
            f"{operation} {key}",
            call,
            refused=StoreUnavailableError,
            unknown=StoreUnavailableError,
        )
