"""The writer of blocks as the control plane knows it: its tag, its commits, and its answers.

The count of commits is the writer's own memory, which no restore of the control plane can set back.
It is given with every commit (`control/writers/counting.py`), and is in every footer.

A block is sealed before its offsets are assigned. They are kept here, until a later block of the
same partition tells them in its footer. If that block is not committed, or the partition got no row
from it, the next one tells them again.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from stratalog.batch.entry import EntryBatch, PartitionKey
from stratalog.block.block import SealedBlock, Told, runs
from stratalog.block.footer import EarlierAnswer, FooterWriter
from stratalog.control.log.model import CommitAnswer, CommitOutcome
from stratalog.control.writers.model import CommitCount
from stratalog.ids import (
    NO_OFFSET,
    Entropy,
    ObjectId,
    Offset,
    WriterTag,
    tagged_uuid7,
)

# Bound once: to look up an enum's member costs more than the rest of a batch.
_ACCEPTED = CommitOutcome.ACCEPTED


class AnnouncedWriter:
    def __init__(self, tag: WriterTag) -> None:
        self.tag = tag
        self.commits = 0
        """The commits that are known to have succeeded."""
        self.in_footers = 0
        """The commits that the footer of a committed block names."""
        self._unsettled = 0
        """Commits of which it was never learned whether they succeeded."""
        self._sealed = 0
        self._untold: dict[PartitionKey, Sequence[EarlierAnswer]] = {}

    @property
    def count(self) -> CommitCount:
        return CommitCount(tag=self.tag, least=self.commits, most=self.commits + self._unsettled)

    def committed(self) -> None:
        self.commits += 1

    def unsettled(self) -> None:
        self._unsettled += 1

    def new_id(self, now_ms: int, entropy: Entropy) -> ObjectId:
        return ObjectId(tagged_uuid7(now_ms, self.tag, entropy))

    def next_block(self, partitions: Iterable[PartitionKey]) -> tuple[FooterWriter, Told]:
        """Return the writer and the answers for the footer of the next block, which has these
        partitions."""
        writer = FooterWriter(tag=self.tag, sequence=self._sealed, commits=self.commits)
        self._sealed += 1
        told = {key: self._untold.pop(key) for key in set(partitions) & self._untold.keys()}
        return writer, told

    def answered(self, block: SealedBlock, answers: Sequence[CommitAnswer]) -> None:
        """Note the answers to a block, for a later one to tell."""
        assert block.writer is not None, "sealed with what `next_block` returned"
        self.in_footers = max(self.in_footers, block.writer.commits)
        given = iter(answers)
        for key, run in runs(block.batches):
            offsets = [
                answer.base_offset if answer.outcome is _ACCEPTED else NO_OFFSET
                for answer in islice(given, len(run))
            ]
            if max(offsets) == NO_OFFSET:
                # No row of this partition keeps the block, so that another one must tell.
                self._keep(key, block.told.get(key, ()))
            else:
                self._keep(key, (_answer(block.writer.sequence, offsets, run),))

    def failed(self, block: SealedBlock) -> None:
        """Note that the block was given up: another one tells its answers."""
        for key, answers in block.told.items():
            self._keep(key, answers)

    def _keep(self, key: PartitionKey, answers: Sequence[EarlierAnswer]) -> None:
        before = self._untold.get(key)
        if before:
            answers = sorted([*before, *answers], key=lambda answer: answer.sequence)
        if answers:
            self._untold[key] = answers


def _answer(
    sequence: int, offsets: Sequence[Offset], batches: Sequence[EntryBatch]
) -> EarlierAnswer:
    expected = offsets[0]
    is_run = expected != NO_OFFSET
    for offset, batch in zip(offsets, batches, strict=True):
        is_run = is_run and offset == expected
        expected = Offset(expected + batch.header.last_offset_delta + 1)
    return EarlierAnswer(sequence, is_run, tuple(offsets[:1] if is_run else offsets))
