"""The offsets of blocks that the control plane does not know. Pure.

A footer tells the offsets of earlier blocks of its writer. No footer tells of a writer's last
blocks. Their order within one writer is known, because a writer commits in the order of its
sequences; the order between writers is not. So their offsets are inferred only where just one order
fits:

- A hole between proven offsets is filled with blocks of one or more writers, each from the front of
  its queue, if exactly one filling has the size of the hole.
- Behind the last proven offset the rest of the queue follows, if one writer alone has a rest.

A block before one that a footer tells of got no offsets, if no footer tells of it: it was given up,
or all its batches of the partition were refused. A batch that a producer has sent twice, and of
which the other copy has its offset already, was answered as a duplicate: it takes no offsets.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from stratalog.block.footer import EarlierAnswer
from stratalog.ids import NO_OFFSET
from stratalog.recovery.evidence import (
    BatchSequence,
    BlockPart,
    PartBatch,
    PartitionEvidence,
    Source,
    Stretch,
)

_MOST_STEPS = 10_000
"""Tries of a search for the one filling. A search that takes more counts as ambiguous."""

Queues: TypeAlias = dict[Hashable, list[BlockPart]]


class BlockBatch(NamedTuple):
    """A batch of a block, as the item of a stretch."""

    part: BlockPart
    batch: PartBatch


class Told(NamedTuple):
    """The batches with proven offsets, and the blocks that no footer tells of, by writer."""

    stretches: list[Stretch]
    untold: Queues
    last_told: dict[Hashable, int]
    """The end of the newest offsets that are proven of a writer."""


def told_offsets(evidence: PartitionEvidence) -> Told:
    stretches: list[Stretch] = []
    untold: Queues = defaultdict(list)
    last_told: dict[Hashable, int] = {}
    answered = _answered(evidence)
    for part in sorted(evidence.parts, key=_order):
        answer = evidence.answers.get((part.writer, part.sequence))
        if answer is None or not _fits(part, answer):
            if part.sequence >= answered[part.writer]:
                untold[part.writer].append(part)
            continue
        for stretch in _placed(part, answer, evidence):
            stretches.append(stretch)
            last_told[part.writer] = max(last_told.get(part.writer, 0), stretch.end)
    return Told(stretches, untold, last_told)


def _order(part: BlockPart) -> tuple[str, int]:
    return (str(part.writer), part.sequence)


def _answered(evidence: PartitionEvidence) -> dict[Hashable, int]:
    """Return the sequence, by writer, from which on blocks may have offsets that no footer tells.

    A writer tells its answers in order, except of blocks that got no offset. It commits in order,
    too, one block or several at once. So a block that was sealed after some commits tells of the
    offsets of at least as many blocks, unless an earlier one did.
    """
    answered: dict[Hashable, int] = defaultdict(int)
    for writer, sequence in evidence.answers:
        answered[writer] = max(answered[writer], sequence + 1)
    for part in evidence.parts:
        answered[part.writer] = max(answered[part.writer], part.commits)
    return answered


def _fits(part: BlockPart, answer: EarlierAnswer) -> bool:
    return answer.is_run or len(answer.offsets) == len(part.batches)


def _placed(
    part: BlockPart, answer: EarlierAnswer, evidence: PartitionEvidence
) -> Iterator[Stretch]:
    if not answer.is_run:
        for batch, base in zip(part.batches, answer.offsets, strict=True):
            is_assumed = (part.object_id, batch.byte_offset) in evidence.assumed
            if base != NO_OFFSET:
                source = Source.INFERRED if is_assumed else Source.BLOCK
                yield _stretch(part, batch, base, source)
        return
    base = answer.offsets[0]
    yield from _run(part, part.batches, base, Source.BLOCK)


def _run(
    part: BlockPart, batches: Iterable[PartBatch], base: int, source: Source
) -> Iterator[Stretch]:
    for batch in batches:
        yield _stretch(part, batch, base, source)
        base += batch.record_count


def _stretch(part: BlockPart, batch: PartBatch, base: int, source: Source) -> Stretch:
    return Stretch(base, base + batch.record_count, source, BlockBatch(part, batch))


class Inferred(NamedTuple):
    stretches: list[Stretch]
    rest: list[BlockPart]
    """Blocks whose offsets, if they have any, are not known."""
    rest_end: int
    """The first offset that none of them can have got."""


def infer_offsets(told: Told, covered: Sequence[tuple[int, int]], end: int) -> Inferred:
    """Give offsets to blocks that no footer tells of. `covered` are the proven ranges, in order."""
    seen = {
        stretch.item.batch.sequence
        for stretch in told.stretches
        if isinstance(stretch.item, BlockBatch) and stretch.item.batch.sequence is not None
    }
    queues = {writer: list(parts) for writer, parts in told.untold.items()}
    found: list[Stretch] = []
    open_hole = -1
    for start, hole_end in _holes(covered):
        filling = _only_filling(queues, told.last_told, seen, start, hole_end)
        if filling is None:
            # Blocks that belong here could fill a later hole as well, so that one stays open, too.
            open_hole = start
            break
        found += _take(queues, filling, seen, start)
    left = {writer: parts for writer, parts in queues.items() if parts}
    tail = max([end, *(high for _, high in covered)])
    if len(left) == 1:
        [(writer, parts)] = left.items()
        if told.last_told.get(writer, 0) > open_hole:
            found += _take(queues, [(writer, len(parts))], seen, tail)
            left = {}
    rest = [part for parts in left.values() for part in parts]
    top = max([tail, *(stretch.end for stretch in found)])
    return Inferred(found, rest, top + sum(part.record_count for part in rest))


def _holes(covered: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    reached: int | None = None
    for start, end in covered:
        if reached is not None and start > reached:
            yield reached, start
        reached = end if reached is None else max(reached, end)


_Filling: TypeAlias = list[tuple[Hashable, int]]
"""Writers in order, with the number of blocks that each gives from the front of its queue."""


def _only_filling(
    queues: Queues, last_told: dict[Hashable, int], seen: set[BatchSequence], start: int, end: int
) -> _Filling | None:
    """Return the one order of blocks that fills the hole, or None if there is none, or a second."""
    usable = {w: parts for w, parts in queues.items() if last_told.get(w, 0) <= start}
    found: list[list[Hashable]] = []
    steps = 0
    # Each entry: the writers so far, how many records are still missing, and the batches seen.
    open_orders = [(list[Hashable](), end - start, frozenset(seen))]
    while open_orders and len(found) < 2:
        order, missing, seen_so_far = open_orders.pop()
        steps += 1
        if steps > _MOST_STEPS:
            return None
        if not missing:
            found.append(order)
            continue
        for writer, parts in usable.items():
            taken = order.count(writer)
            if taken == len(parts):
                continue
            seen_then = set(seen_so_far)
            batches = [each for each in parts[taken].batches if _is_first(each, seen_then)]
            size = sum(batch.record_count for batch in batches)
            # Blocks that take no offsets come along with the block behind them.
            if size <= missing:
                open_orders.append(([*order, writer], missing - size, frozenset(seen_then)))
    if len(found) != 1:
        return None
    return [(writer, 1) for writer in found[0]]


def _take(queues: Queues, filling: _Filling, seen: set[BatchSequence], start: int) -> list[Stretch]:
    placed: list[Stretch] = []
    for writer, count in filling:
        for part in [queues[writer].pop(0) for _ in range(count)]:
            batches = [each for each in part.batches if _is_first(each, seen)]
            placed += _run(part, batches, start, Source.INFERRED)
            start = placed[-1].end if placed else start
    return placed


def _is_first(batch: PartBatch, seen: set[BatchSequence]) -> bool:
    if batch.sequence is None:
        return True
    first = batch.sequence not in seen
    seen.add(batch.sequence)
    return first
