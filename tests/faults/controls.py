"""Control planes that go wrong on purpose, wrapped around a real one."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from stratalog.control.model import BlockToCommit, CommitAnswer
from stratalog.control.plane import CommitInDoubtError, ControlPlane

Answers = list[list[CommitAnswer]]
Commit = Callable[[Sequence[BlockToCommit]], Awaitable[Answers]]
Trouble = Callable[[Commit, Sequence[BlockToCommit]], Awaitable[Answers]]
"""Something that happens instead of a commit, which it may do or leave."""


class ControlWrapper:
    """Passes everything on. What a subclass defines itself, it decides itself."""

    def __init__(self, inner: ControlPlane) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def plane(self) -> ControlPlane:
        return cast(ControlPlane, self)


class TroubledControl(ControlWrapper):
    """Commits and resolutions meet the next trouble of their queue, and none when it is empty."""

    def __init__(self, inner: ControlPlane) -> None:
        super().__init__(inner)
        self.commits: list[Sequence[BlockToCommit]] = []
        """The blocks of every call, whatever became of it."""
        self.commit_troubles: deque[Trouble] = deque()
        self.resolve_troubles: deque[Exception] = deque()

    async def commit_blocks(self, blocks: Sequence[BlockToCommit]) -> Answers:
        self.commits.append(blocks)
        if self.commit_troubles:
            return await self.commit_troubles.popleft()(self.inner.commit_blocks, blocks)
        return await self.inner.commit_blocks(blocks)

    async def resolve_commit(self, blocks: Sequence[BlockToCommit]) -> Answers | None:
        if self.resolve_troubles:
            raise self.resolve_troubles.popleft()
        return await self.inner.resolve_commit(blocks)


def refuses(error: Exception) -> Trouble:
    """Nothing is done."""

    async def trouble(commit: Commit, blocks: Sequence[BlockToCommit]) -> Answers:
        raise error

    return trouble


async def loses_the_reply(commit: Commit, blocks: Sequence[BlockToCommit]) -> Answers:
    """It is done, and nobody hears of it."""
    await commit(blocks)
    raise CommitInDoubtError("made to lose its reply")


async def loses_the_request(commit: Commit, blocks: Sequence[BlockToCommit]) -> Answers:
    """It is not done, and nobody knows."""
    raise CommitInDoubtError("made to lose its request")
