"""Several streams that are sorted by object id, read side by side."""

from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from stratalog.ids import ObjectId

T_co = TypeVar("T_co", covariant=True)


class SortedStream(Generic[T_co]):
    """A stream of values in ascending order of their ids, with a look at the next id."""

    def __init__(self, stream: AsyncIterator[tuple[ObjectId, T_co]]) -> None:
        self._stream = stream
        self._head: tuple[ObjectId, T_co] | None = None
        self._started = False

    async def next_id(self) -> ObjectId | None:
        if not self._started:
            self._started = True
            await self._advance()
        return self._head[0] if self._head is not None else None

    async def take(self, object_id: ObjectId) -> T_co | None:
        """Return the value of this id if it is the next one, else None."""
        if await self.next_id() != object_id or self._head is None:
            return None
        value = self._head[1]
        await self._advance()
        return value

    async def _advance(self) -> None:
        previous = self._head
        self._head = await anext(self._stream, None)
        assert previous is None or self._head is None or previous[0] < self._head[0], (
            f"{previous[0]} must come before {self._head[0]}"
        )


async def lowest_id(*streams: SortedStream[object]) -> ObjectId | None:
    """Return the next id of all streams, or None when all have ended."""
    ids = [object_id for stream in streams if (object_id := await stream.next_id()) is not None]
    return min(ids, default=None)
