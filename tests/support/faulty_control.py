"""Control planes that go wrong on purpose, wrapped around a real one."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from random import Random

from tests.support.ledgers import ControlWrapper

from stratalog.control.errors import CommitInDoubtError, ControlUnavailableError
from stratalog.control.log.model import BlockToCommit, CommitAnswer, FoundBatches, Span
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.plane import ControlPlane
from stratalog.control.writers.model import CommitCount

Answers = list[list[CommitAnswer]]
Commit = Callable[[Sequence[BlockToCommit]], Awaitable[Answers]]
Trouble = Callable[[Commit, Sequence[BlockToCommit]], Awaitable[Answers]]
"""Something that happens instead of a commit, which it may do or leave."""


class TroubledControl(ControlWrapper):
    """Commits and resolutions meet the next trouble of their queue, and none when it is empty."""

    def __init__(self, inner: ControlPlane) -> None:
        super().__init__(inner)
        self.commits: list[Sequence[BlockToCommit]] = []
        """The blocks of every call, whatever became of it."""
        self.commit_troubles: deque[Trouble] = deque()
        self.resolve_troubles: deque[Exception] = deque()

    async def log_commit_blocks(
        self, blocks: Sequence[BlockToCommit], count: CommitCount | None = None
    ) -> Answers:
        commit = partial(self.inner.log.commit_blocks, count=count)
        self.commits.append(blocks)
        if self.commit_troubles:
            return await self.commit_troubles.popleft()(commit, blocks)
        return await commit(blocks)

    async def log_resolve_commit(
        self, blocks: Sequence[BlockToCommit], count: CommitCount | None = None
    ) -> Answers | None:
        if self.resolve_troubles:
            raise self.resolve_troubles.popleft()
        return await self.inner.log.resolve_commit(blocks, count)


def refuses(error: Exception) -> Trouble:
    """Nothing is done."""

    async def trouble(commit: Commit, blocks: Sequence[BlockToCommit]) -> Answers:
        raise error

    return trouble


async def loses_the_reply(commit: Commit, blocks: Sequence[BlockToCommit]) -> Answers:
    """Do the call, and lose its reply."""
    await commit(blocks)
    raise CommitInDoubtError("made to lose its reply")


async def loses_the_request(commit: Commit, blocks: Sequence[BlockToCommit]) -> Answers:
    """Lose the call, and report an unknown outcome."""
    raise CommitInDoubtError("made to lose its request")


class LossyControl(ControlWrapper):
    """Loses requests and replies by chance, while it is switched on."""

    def __init__(self, inner: ControlPlane, seed: int) -> None:
        super().__init__(inner)
        self.active = False
        self.troubles: Counter[str] = Counter()
        self._random = Random(seed)
        self._late: set[asyncio.Task[None]] = set()

    async def log_commit_blocks(
        self, blocks: Sequence[BlockToCommit], count: CommitCount | None = None
    ) -> Answers:
        commit = partial(self.inner.log.commit_blocks, count=count)
        match self._draw({"unavailable": 0.05, "lost": 0.05, "late": 0.05, "unheard": 0.1}):
            case "unavailable":
                raise ControlUnavailableError("made to be unavailable")
            case "lost":
                raise CommitInDoubtError("made to lose its request")
            case "late":
                # The worst: it is still on its way when its outcome is asked for.
                task = asyncio.create_task(
                    self._commit_late(commit, blocks, self._random.random() / 20)
                )
                self._late.add(task)
                task.add_done_callback(self._late.discard)
                raise CommitInDoubtError("made to arrive late")
            case "unheard":
                await commit(blocks)
                raise CommitInDoubtError("made to lose its reply")
            case _:
                return await commit(blocks)

    async def log_resolve_commit(
        self, blocks: Sequence[BlockToCommit], count: CommitCount | None = None
    ) -> Answers | None:
        trouble = self._draw({"resolve unavailable": 0.2, "resolve unheard": 0.2})
        if trouble == "resolve unavailable":
            raise ControlUnavailableError("made to be unavailable")
        answers = await self.inner.log.resolve_commit(blocks, count)
        if trouble == "resolve unheard":
            raise CommitInDoubtError("made to lose its reply")
        return answers

    async def log_find_batches(
        self, spans: Sequence[Span], *, max_bytes: int | None = None
    ) -> list[FoundBatches]:
        if self._draw({"look unavailable": 0.05}):
            raise ControlUnavailableError("made to be unavailable")
        return await self.inner.log.find_batches(spans, max_bytes=max_bytes)

    async def close(self) -> None:
        await asyncio.gather(*self._late)
        await self.inner.close()

    async def _commit_late(
        self, commit: Commit, blocks: Sequence[BlockToCommit], delay_s: float
    ) -> None:
        await asyncio.sleep(delay_s)
        try:
            await commit(blocks)
            self.troubles["late and committed"] += 1
        except BarredObjectError:
            self.troubles["late and barred"] += 1

    def _draw(self, chances: Mapping[str, float]) -> str | None:
        drawn = self._random.random()
        for trouble, chance in chances.items():
            if self.active and drawn < chance:
                self.troubles[trouble] += 1
                return trouble
            drawn -= chance
        return None
