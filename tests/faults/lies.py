"""Brokers that lie: each lie is planted where a fault of ours would sit, behind real sockets."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import Any

import pytest

from stratalog.block import reader as block_reader
from stratalog.control.groups.ledger import GroupsLedger
from stratalog.control.groups.model import CommittedOffset
from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.log.ledger import LogLedger
from stratalog.control.log.model import (
    BlockToCommit,
    CommitAnswer,
    CommitOutcome,
    Coordinates,
    FoundBatches,
    Span,
)
from stratalog.control.writers.model import CommitCount
from stratalog.ids import NO_PRODUCER, Offset
from stratalog.topic.model import PartitionRead
from stratalog.topic.read import TopicReader

Answers = list[list[CommitAnswer]]

HONEST_COMMITS = 10
"""A lie is believed more readily after some truth."""
WITHHELD_FROM = 20
STALE_BY = 7

_commit_blocks = LogLedger.commit_blocks
_group_offsets = GroupsLedger.offsets
_find_batches = LogLedger.find_batches
_read = TopicReader.read
_rows_within = block_reader.rows_within


def forget_commits(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge a block now and then without committing it."""
    commits = count()

    async def lie(
        ledger: LogLedger, blocks: Sequence[BlockToCommit], count: CommitCount | None = None
    ) -> Answers:
        # Not counted: the count would stop the broker at its first commit after a lie.
        if next(commits) % HONEST_COMMITS != HONEST_COMMITS - 1:
            return await _commit_blocks(ledger, blocks)
        return [await _made_up_answers(ledger, block) for block in blocks]

    patch.setattr(LogLedger, "commit_blocks", lie)


async def _made_up_answers(ledger: LogLedger, block: BlockToCommit) -> list[CommitAnswer]:
    ends = await ledger.high_watermarks([batch.topic_partition for batch in block.batches])
    answers = []
    for batch in block.batches:
        base = ends[batch.topic_partition]
        answers.append(CommitAnswer(CommitOutcome.ACCEPTED, base, log_start=Offset(0)))
        ends[batch.topic_partition] = Offset(base + batch.last_offset_delta + 1)
    return answers


def answer_stale_offsets(patch: pytest.MonkeyPatch) -> None:
    """Commit, and now and then name an offset of some time ago."""
    commits = count()

    async def lie(
        ledger: LogLedger, blocks: Sequence[BlockToCommit], count: CommitCount | None = None
    ) -> Answers:
        answers = await _commit_blocks(ledger, blocks, count)
        if next(commits) % HONEST_COMMITS != HONEST_COMMITS - 1:
            return answers
        return [[_stale(answer) for answer in block] for block in answers]

    patch.setattr(LogLedger, "commit_blocks", lie)


def _stale(answer: CommitAnswer) -> CommitAnswer:
    return answer._replace(base_offset=Offset(max(0, answer.base_offset - STALE_BY)))


def commit_twice(patch: pytest.MonkeyPatch) -> None:
    """Store every batch twice, without looking at its sequence."""

    async def lie(
        ledger: LogLedger, blocks: Sequence[BlockToCommit], count: CommitCount | None = None
    ) -> Answers:
        answers = await _commit_blocks(ledger, [_doubled(block) for block in blocks], count)
        return [block[::2] for block in answers]

    patch.setattr(LogLedger, "commit_blocks", lie)


def _doubled(block: BlockToCommit) -> BlockToCommit:
    anonymous = [batch._replace(producer_id=NO_PRODUCER) for batch in block.batches]
    return replace(block, batches=[batch for batch in anonymous for _ in range(2)])


def withhold_the_end(patch: pytest.MonkeyPatch) -> None:
    """Let readers believe that a partition ends early."""

    async def lie(
        ledger: LogLedger, spans: Sequence[Span], *, max_bytes: int | None = None
    ) -> list[FoundBatches]:
        return [
            _truncated(found) for found in await _find_batches(ledger, spans, max_bytes=max_bytes)
        ]

    patch.setattr(LogLedger, "find_batches", lie)


def _truncated(found: FoundBatches) -> FoundBatches:
    rows = [row for row in found.rows if row.last_offset < WITHHELD_FROM]
    if found.state is None or len(rows) == len(found.rows):
        return found
    end = Offset(rows[-1].last_offset + 1) if rows else Offset(-1)
    return replace(found, pieces=rows, state=replace(found.state, high_watermark=end))


def swap_rows(patch: pytest.MonkeyPatch) -> None:
    """Answer neighbouring rows of the same number of records with each other's bytes."""

    async def lie(
        ledger: LogLedger, spans: Sequence[Span], *, max_bytes: int | None = None
    ) -> list[FoundBatches]:
        found = await _find_batches(ledger, spans, max_bytes=max_bytes)
        return [replace(one, pieces=_swapped(one.rows)) for one in found]

    patch.setattr(LogLedger, "find_batches", lie)


def _swapped(rows: list[Coordinates]) -> list[Coordinates]:
    for place, (one, other) in enumerate(pairwise(rows)):
        if one.last_offset - one.base_offset == other.last_offset - other.base_offset:
            offsets = [(row.base_offset, row.last_offset) for row in (one, other)]
            rows[place : place + 2] = [
                row._replace(base_offset=base, last_offset=last)
                for row, (base, last) in zip((other, one), offsets, strict=True)
            ]
            break
    return rows


def forget_group_commits(patch: pytest.MonkeyPatch) -> None:
    """Answer a group with an older committed offset than before."""

    async def lie(ledger: GroupsLedger, *wanted: Any) -> list[CommittedOffset]:
        told = await _group_offsets(ledger, *wanted)
        return [replace(one, offset=Offset(max(0, one.offset - STALE_BY))) for one in told]

    patch.setattr(GroupsLedger, "offsets", lie)


def skip_between_fetches(patch: pytest.MonkeyPatch) -> None:
    """Answer every other fetch from a little further on, as if rows had been lost."""
    reads = count()

    async def lie(reader: TopicReader, spans: Sequence[Span], **limits: Any) -> list[PartitionRead]:
        if next(reads) % 2:
            spans = [await _further_on(reader, span) for span in spans]
        return await _read(reader, spans, **limits)

    patch.setattr(TopicReader, "read", lie)


async def _further_on(reader: TopicReader, span: Span) -> Span:
    ends = await reader._control.log.high_watermarks([span.topic_partition])
    further = span.offset + 3
    return replace(span, offset=Offset(further)) if further < ends[span.topic_partition] else span


def skip_within_a_fetch(patch: pytest.MonkeyPatch) -> None:
    """Leave a row out of the middle of an answer."""

    def lie(rows: Sequence[Coordinates], share: int, end: Offset | None) -> list[Coordinates]:
        chosen = _rows_within(rows, share, end)
        return [chosen[0], *chosen[2:]] if len(chosen) > 2 else chosen

    patch.setattr(block_reader, "rows_within", lie)


def answer_backwards(patch: pytest.MonkeyPatch) -> None:
    """Give out the rows of an answer in reverse."""

    def lie(rows: Sequence[Coordinates], share: int, end: Offset | None) -> list[Coordinates]:
        return _rows_within(rows, share, end)[::-1]

    patch.setattr(block_reader, "rows_within", lie)


def deny_offsets(patch: pytest.MonkeyPatch) -> None:
    """Now and then tell readers in the middle of a partition that there is no such offset."""
    reads = count()

    async def lie(reader: TopicReader, spans: Sequence[Span], **limits: Any) -> list[PartitionRead]:
        answers = await _read(reader, spans, **limits)
        if next(reads) % HONEST_COMMITS:
            return answers
        denied = PartitionRead(error=OffsetOutOfRangeError("a lie"))
        return [
            denied if span.offset > 0 else answer
            for span, answer in zip(spans, answers, strict=True)
        ]

    patch.setattr(TopicReader, "read", lie)
