"""The place of a request's batches in a block, and the answers to come.

The requests of a block share one future, so that a commit wakes their connections once and not each
request.
"""

import asyncio
from collections.abc import Generator, Sequence
from typing import NamedTuple

from stratalog.control.log.model import CommitAnswer


class Placed(NamedTuple):
    committed: "asyncio.Future[Sequence[CommitAnswer]]"
    """The answers to all batches of the block, in the order of their arrival, once they are
    durable. It belongs to all requests of the block, so that none of them may cancel it."""
    places: range
    """The places of this request's batches in that order."""

    def answers(self) -> Sequence[CommitAnswer]:
        """Return one answer for each batch of the request, once the block is committed. Raises the
        error of a block that was given up."""
        return self.committed.result()[self.places.start : self.places.stop]

    def __await__(self) -> Generator[object, None, Sequence[CommitAnswer]]:
        yield from asyncio.shield(self.committed)
        return self.answers()
