"""Deletion in a store that refuses some of it, say because of a legal hold.

Many are deleted at once. If that is refused they are divided in halves, again and again, so that a
few that are held cost a few requests and keep none of the others alive. A store that refuses
everything, because a permission was lost, is not asked about each of them.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from stratalog.errors import RetriableError, StratalogError

HOPELESS = 100
"""So many refusals without one success are a lost permission, not a few held objects."""
_MOST_REFUSALS = 1000
"""Of one run: what is held is refused again in each of them."""
_HALVINGS = 20
"""Left to each chunk, whatever happened to those before it: enough to find the one in a million
that can be deleted."""

_Item = TypeVar("_Item")


class Deletions(Generic[_Item]):
    """Those of one run, in one store."""

    def __init__(
        self,
        delete: Callable[[Sequence[_Item]], Awaitable[None]],
        name_of: Callable[[_Item], str],
    ) -> None:
        self._delete = delete
        self._name_of = name_of
        self._refusals = 0
        self._allowed = 0
        """Refusals, for the chunk at hand."""
        self._succeeded = False
        self.failed = 0
        self.reason = ""
        """Of the first that failed."""

    async def run(self, chunk: Sequence[_Item]) -> list[_Item]:
        """Delete what can be deleted; return what was."""
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
            # The first success came after these.
            pieces = left
        return gone

    @property
    def _hopeless(self) -> bool:
        most = _MOST_REFUSALS if self._succeeded else HOPELESS
        return self._refusals >= max(most, self._allowed)

    async def _delete_or_divide(
        self, items: Sequence[_Item], left: list[Sequence[_Item]]
    ) -> list[_Item]:
        """What cannot be divided further for now comes into `left`."""
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
