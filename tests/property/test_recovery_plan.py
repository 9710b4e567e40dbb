"""The planner of recoveries: random histories, cut at random. Recovered offsets are the true ones.

A history writes blocks by two writers, of which some are refused, splits and merges ranges of the
log. Then the control plane is set back to a moment in between, or forgets everything.
The plan may leave offsets out and say so. It may never give an offset another record than before.
"""

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.block.footer import EarlierAnswer
from stratalog.ids import ObjectId, Offset, PartitionIndex, TopicId, TopicPartition
from stratalog.recovery.block_offsets import BlockBatch
from stratalog.recovery.evidence import (
    BlockPart,
    FoundSegment,
    PartBatch,
    PartitionEvidence,
    Source,
    Stretch,
)
from stratalog.recovery.layout import PartitionPlan, plan_partition

KEY = TopicPartition(TopicId(UUID(int=1)), PartitionIndex(0))


@dataclass
class Writer:
    name: str
    sealed: int = 0
    commits: int = 0
    last_fate: str = "done"
    untold: list[EarlierAnswer] = field(default_factory=list)


@dataclass
class Row:
    base: int
    end: int


class History:
    """One partition. `truth` is the identity of the batch at each offset."""

    def __init__(self) -> None:
        self.writers = [Writer("a"), Writer("b")]
        self.truth: list[tuple[str, int, int]] = []
        self.parts: list[BlockPart] = []
        self.answers: dict[tuple[str, int], EarlierAnswer] = {}
        self.rows: list[Row] = []
        self.splits: list[Row] = []
        self.segments: list[Row] = []
        self.remote_end = 0

    def write(self, writer: Writer, counts: list[int], fate: str) -> None:
        sequence, writer.sealed = writer.sealed, writer.sealed + 1
        told, writer.untold = writer.untold, []
        for answer in told:
            self.answers[writer.name, answer.sequence] = answer
        self.parts.append(self._part(writer, sequence, counts))
        writer.commits += 1
        writer.last_fate = fate
        offsets: list[Offset] = []
        for place, count in enumerate(counts):
            if fate == "refused" or (fate == "mixed" and place % 2):
                offsets.append(Offset(-1))
                continue
            offsets.append(Offset(len(self.truth)))
            self.rows.append(Row(len(self.truth), len(self.truth) + count))
            self.truth += [(writer.name, sequence, place)] * count
        if max(offsets) >= 0:
            writer.untold.append(
                EarlierAnswer(sequence=sequence, is_run=False, offsets=tuple(offsets))
            )

    def _part(self, writer: Writer, sequence: int, counts: list[int]) -> BlockPart:
        return BlockPart(
            writer=writer.name,
            sequence=sequence,
            object_id=ObjectId(UUID(int=sequence + 1)),
            object_key=f"{writer.name}/{sequence}",
            size_bytes=1,
            created_ms=sequence,
            batches=[
                PartBatch(byte_offset=place, byte_size=1, record_count=count, max_timestamp=0)
                for place, count in enumerate(counts)
            ],
            commits=writer.commits,
        )

    @property
    def ends_well(self) -> bool:
        return all(writer.last_fate == "done" for writer in self.writers)

    def split(self, rows: int) -> None:
        taken = self.rows[:rows]
        if taken:
            joined = Row(taken[0].base, taken[-1].end)
            self.splits.append(joined)
            self.rows[:rows] = [joined]

    def merge(self, rows: int) -> None:
        taken = self.rows[:rows]
        if taken:
            self.segments.append(Row(self.remote_end, taken[-1].end))
            self.remote_end = taken[-1].end
            self.rows[:rows] = []

    def snapshot(self) -> "Snapshot":
        return Snapshot(
            parts=len(self.parts),
            rows=[Row(row.base, row.end) for row in self.rows],
            splits=len(self.splits),
            segments=len(self.segments),
            remote_end=self.remote_end,
            high_watermark=len(self.truth),
        )

    def evidence(self, at: "Snapshot | None") -> PartitionEvidence:
        """The evidence, with the answers that a match of copies by their content would add."""
        known = Snapshot(0, [], 0, 0, 0, 0) if at is None else at
        answers = dict(self.answers)
        for writer in self.writers:
            for answer in writer.untold:
                if self._was_copied(answer, known):
                    answers[writer.name, answer.sequence] = answer
        stretches = [Stretch(row.base, row.end, Source.KNOWN, row) for row in known.rows]
        stretches += [
            Stretch(row.base, row.end, Source.SPLIT, row) for row in self.splits[known.splits :]
        ]
        return PartitionEvidence(
            key=KEY,
            log_start=0,
            remote_end=known.remote_end,
            block_start=known.rows[0].base if known.rows else known.high_watermark,
            high_watermark=known.high_watermark,
            is_new=at is None,
            stretches=stretches,
            segments=[FoundSegment(s.base, s.end, s) for s in self.segments[known.segments :]],
            parts=self._unknown_parts(known),
            answers=answers,  # type: ignore[arg-type]
        )

    def _unknown_parts(self, known: "Snapshot") -> list[BlockPart]:
        return self.parts[known.parts :]

    def _was_copied(self, answer: EarlierAnswer, known: "Snapshot") -> bool:
        copies = [*self.splits[known.splits :], *self.segments[known.segments :]]
        return any(copy.base <= offset < copy.end for copy in copies for offset in answer.offsets)


@dataclass
class Snapshot:
    parts: int
    rows: list[Row]
    splits: int
    segments: int
    remote_end: int
    high_watermark: int


COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"),
            st.integers(0, 1),
            COUNTS,
            st.sampled_from(["done", "done", "done", "mixed", "refused"]),
        ),
        st.tuples(st.sampled_from(["split", "merge"]), st.integers(1, 6)),
    ),
    max_size=25,
)


def run(steps: list[tuple[object, ...]], cut: int) -> tuple[History, Snapshot]:
    history = History()
    at = history.snapshot()
    for number, step in enumerate(steps):
        if number == cut:
            at = history.snapshot()
        match step:
            case ("write", int(writer), list(counts), str(fate)):
                history.write(history.writers[writer], counts, fate)
            case ("split", int(rows)):
                history.split(rows)
            case ("merge", int(rows)):
                history.merge(rows)
    return history, at


def check_plan(history: History, plan: PartitionPlan) -> None:
    truth = history.truth
    unproven = {offset for each in plan.unproven for offset in range(each.start, each.end)}
    for row in plan.rows:
        if isinstance(row.item, BlockBatch):
            part, batch = row.item
            told = (part.writer, part.sequence, part.batches.index(batch))
            known = truth[row.base : row.end]
            # No footer tells whether the last block of a writer was refused, or parts of it.
            if row.source is not Source.INFERRED or history.ends_well:
                assert known
                assert all(each == told for each in known)
    held = {offset for row in plan.rows for offset in range(row.base, row.end)}
    held |= set(range(plan.log_start, plan.block_start))
    missing = set(range(plan.log_start, len(truth))) - held - unproven
    assert not missing, "an offset that was given out is neither there nor named"
    assert plan.taken_end >= len(truth)


@settings(deadline=None, max_examples=300)
@given(steps=STEPS, cut=st.integers(0, 25))
def test_recovered_offsets_are_the_true_ones_or_are_named(
    steps: list[tuple[object, ...]], cut: int
) -> None:
    history, at = run(steps, cut)
    check_plan(history, plan_partition(history.evidence(at)))


@settings(deadline=None, max_examples=300)
@given(steps=STEPS)
def test_offsets_of_the_store_alone_are_the_true_ones_or_are_named(
    steps: list[tuple[object, ...]],
) -> None:
    history, _ = run(steps, 0)
    check_plan(history, plan_partition(history.evidence(None)))
