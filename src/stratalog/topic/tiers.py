"""A partition's batches, read from the tiers that hold its pieces and joined again.

Consecutive pieces of one tier are read together, and all tiers at the same time. The pieces that
were found decide which tiers are read, never the partition's migration state. A partition that
fails fails alone.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from stratalog.batch.frames import iter_batches
from stratalog.control.log.model import FoundBatches, Span
from stratalog.errors import StratalogError
from stratalog.ids import Offset
from stratalog.pieces import Part, Piece, PiecesRead, PiecesWanted, Start, Tier, TierReader
from stratalog.topic.byte_shares import Wish, fair_shares
from stratalog.topic.errors import tier_not_served

_T = TypeVar("_T")

_Wants: TypeAlias = list[tuple[Tier, PiecesWanted[Piece]]]
"""The reads for one look: runs of pieces of one tier. Each begins where the last one ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A span and its pieces. `end` is the first offset that the reader must not see."""

    span: Span
    found: FoundBatches
    end: Offset


class Tiers:
    def __init__(
        self,
        readers: Mapping[Tier, TierReader[Any]],
        *,
        refusals: Mapping[Tier, StratalogError] | None = None,
    ) -> None:
        """`refusals` give the reason for each tier that this broker must not read."""
        self._readers = readers
        self._refusals = dict(refusals or {})
        self._stale = tuple({error for one in readers.values() for error in one.stale_errors})

    def refusal(self, tier: Tier) -> StratalogError | None:
        """Return the reason why this broker does not read a tier. None if it does."""
        refusal = self._refusals.get(tier)
        if refusal is None and tier not in self._readers:
            refusal = tier_not_served(tier)
        return refusal

    def is_stale(self, error: StratalogError | None) -> bool:
        """Tell whether pieces that are looked up again may be readable where these were not."""
        return isinstance(error, self._stale)

    async def read(self, looks: Sequence[Look], max_bytes: int) -> list[PiecesRead]:
        """Read the pieces that were found, dividing the bytes fairly."""
        wants = [_runs(look) for look in looks]
        starts = await self._locate(wants)
        wishes = [_wish(*three, max_bytes) for three in zip(looks, wants, starts, strict=True)]
        shares = fair_shares(wishes, max_bytes)
        plans = [self._plan(*four) for four in zip(looks, wants, starts, shares, strict=True)]
        flat = [want for plan in plans for want in plan]
        reads = iter(await self._each_tier(flat, lambda reader, some: reader.read(some)))
        return [
            _joined(look, plan, [next(reads) for _ in plan], start)
            for look, plan, start in zip(looks, plans, starts, strict=True)
        ]

    async def _locate(self, wants: Sequence[_Wants]) -> list[Start | StratalogError | None]:
        """Find the position at which the first run of each look begins.

        All other runs begin at their first piece.
        """
        starts: list[Start | StratalogError | None] = [
            self.refusal(runs[0][0]) if runs else None for runs in wants
        ]
        places = [place for place, runs in enumerate(wants) if runs and starts[place] is None]
        found = await self._each_tier(
            [wants[place][0] for place in places], lambda reader, some: reader.locate(some)
        )
        for place, start in zip(places, found, strict=True):
            starts[place] = start
        return starts

    async def _each_tier(
        self,
        wants: Sequence[tuple[Tier, PiecesWanted[Piece]]],
        work: Callable[[TierReader[Any], Sequence[PiecesWanted[Piece]]], Awaitable[Sequence[_T]]],
    ) -> list[_T]:
        """Let every tier work on its wants, and return the results in the order of all wants."""
        places: dict[Tier, list[int]] = defaultdict(list)
        for place, (tier, _) in enumerate(wants):
            places[tier].append(place)
        works = [
            work(self._readers[tier], [wants[place][1] for place in own])
            for tier, own in places.items()
        ]
        # One tier is the usual case, and needs no task.
        answers = [await works[0]] if len(works) == 1 else await asyncio.gather(*works)
        by_place: dict[int, _T] = {}
        for own, answer in zip(places.values(), answers, strict=True):
            by_place.update(zip(own, answer, strict=True))
        return [by_place[place] for place in range(len(wants))]

    def _plan(
        self, look: Look, runs: _Wants, start: Start | StratalogError | None, share: int
    ) -> _Wants:
        """Give each run the rest of the look's share that the earlier runs leave."""
        if not share or not isinstance(start, Start):
            return []
        rest = min(share, look.span.max_bytes)
        plan: _Wants = []
        for tier, run in runs:
            if plan and (rest <= 0 or self.refusal(tier) is not None):
                break
            plan.append((tier, _wanted(run, rest, None if plan else start)))
            rest -= start.size_bytes if len(plan) == 1 else _size_bytes(run.pieces)
        return plan


def _runs(look: Look) -> _Wants:
    """Group the pieces that the reader may see into runs of one tier.

    The runs end where a piece is missing. The reader then asks for the missing offset and gets the
    damage as an error, instead of being led across it.
    """
    runs: list[tuple[Tier, Offset, list[Piece]]] = []
    end: Offset | None = None
    for piece in look.found.pieces:
        base = piece.base_offset
        if base >= look.end or (end is not None and base != end):
            break
        if end is not None and runs[-1][0] is piece.tier:
            runs[-1][2].append(piece)
        else:
            runs.append((piece.tier, look.span.offset if end is None else base, [piece]))
        end = piece.end_offset
    return [
        (tier, PiecesWanted(offset=offset, max_bytes=0, pieces=pieces, end=look.end))
        for tier, offset, pieces in runs
    ]


def _wanted(run: PiecesWanted[Piece], max_bytes: int, start: Start | None) -> PiecesWanted[Piece]:
    return PiecesWanted(
        offset=run.offset, max_bytes=max_bytes, pieces=run.pieces, end=run.end, start=start
    )


def _wish(look: Look, runs: _Wants, start: Start | StratalogError | None, max_bytes: int) -> Wish:
    if not isinstance(start, Start):
        return Wish(0, 0)
    there = start.size_bytes + sum(_size_bytes(run.pieces) for _, run in runs[1:])
    first = start.first_bytes
    if start.is_estimate:
        # A guess must not ask for more than there is to give.
        first = max(1, min(first, look.span.max_bytes, max_bytes))
    return Wish(first, max(first, min(there, look.span.max_bytes)))


def _size_bytes(pieces: Sequence[Piece]) -> int:
    return sum(piece.size_bytes for piece in pieces)


def _joined(
    look: Look,
    plan: _Wants,
    reads: Sequence[PiecesRead],
    start: Start | StratalogError | None,
) -> PiecesRead:
    """Join the answers of all runs. An answer counts only if it continues the one before it."""
    if not reads:
        error = start if isinstance(start, StratalogError) else None
        return PiecesRead(next_offset=look.span.offset, error=error)
    answer = reads[0]
    for (_, want), read in zip(plan[1:], reads[1:], strict=True):
        if not answer.ended or answer.next_offset != want.offset:
            break
        if answer.parts and answer.size_bytes + read.size_bytes > plan[0][1].max_bytes:
            break
        answer.parts += read.parts
        answer.size_bytes += read.size_bytes
        answer.next_offset, answer.ended, answer.error = read.next_offset, read.ended, read.error
    answer.parts = _below(look, answer.parts)
    if answer.parts:
        answer.error = None
    return answer


def _below(look: Look, parts: list[Part]) -> list[Part]:
    """Cut off the batches that the reader must not see. Most answers stay as they are."""
    state = look.found.state
    if state is None or look.end >= state.high_watermark:
        return parts
    data = b"".join(parts)
    for position, header in iter_batches(data):
        if header.base_offset >= look.end:
            return [data[:position]] if position else []
    return [data] if data else []
