"""Deletion in a store that refuses to delete some objects, for example because of a legal hold.

A request deletes many items at once. If the store refuses, the items are divided in halves, again
and again. So a few items under a hold cost a few requests, and keep none of the others alive. A
store that refuses everything, because a permission was lost, is not asked about each item.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from stratalog.errors import RetriableError, StratalogError

HOPELESS = 100
"""This many refusals without one success mean a lost permission, not a few objects under a hold."""
_MOST_REFUSALS = 1000
"""Refusals in one run. The bound matters because objects under a hold are refused in every run."""
_HALVINGS = 20
"""Refusals that each chunk may have, however many the chunks before it had: enough to find the one
item in a million that can be deleted."""

_Item = TypeVar("_Item")


class PartialDeletion(Generic[_Item]):
    """The deletion of many items from one store, in one run."""

    def __init__(
        self,
        delete: Callable[[Sequence[_Item]], Awaitable[None]],
        name_of: Callable[[_Item], str],
    ) -> None:
        self._delete = delete
        self._name_of = name_of
        self._refusals = 0
        self._allowed = 0
        """The count of refusals at which the present chunk is given up."""
        self._succeeded = False
        self.failed = 0
        self.reason = ""
        """The name of the first item that failed, and the store's answer."""

    async def run(self, chunk: Sequence[_Item]) -> list[_Item]:
        """Delete as many items of the chunk as the store allows; return these."""
        self._allowed = self._refusals + _HALVINGS
        gone: list[_Item] = []
        pieces = [chunk]
        while pieces:
            left: list[Sequence[_Item]] = []
            for piece in pieces:
                gone += await self._delete_or_divide(piece, left)
            if self._hopeless:
                self.failed += sum(map(len, left))
                break
            # Pieces were left while no deletion had succeeded yet. Now one has, which allows more
            # refusals, so that the pieces get another chance.
            pieces = left
        return gone

    @property
    def _hopeless(self) -> bool:
        most = _MOST_REFUSALS if self._succeeded else HOPELESS
        return self._refusals >= max(most, self._allowed)

    async def _delete_or_divide(
        self, items: Sequence[_Item], left: list[Sequence[_Item]]
    ) -> list[_Item]:
        """Return the items that were deleted, and add pieces that were not divided to `left`."""
        try:
            await self._delete(items)
        except RetriableError:
            raise
        except StratalogError as error:
            self._refusals += 1
            if len(items) > 1 and not self._hopeless:
                middle = len(items) // 2
                first = await self._delete_or_divide(items[:middle], left)
                return first + await self._delete_or_divide(items[middle:], left)
            self.reason = self.reason or f"{self._name_of(items[0])}: {error}"
            self._give_up(items, left)
            return []
        self._succeeded = True
        return list(items)

    def _give_up(self, items: Sequence[_Item], left: list[Sequence[_Item]]) -> None:
        if len(items) > 1:
            left.append(items)
        else:
            self.failed += 1
