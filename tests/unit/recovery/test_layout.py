"""The plan of a partition, from evidence alone."""

from collections.abc import Hashable, Sequence
from uuid import UUID

from stratalog.block.footer import EarlierAnswer
from stratalog.ids import ObjectId, Offset, PartitionIndex, TopicId, TopicPartition
from stratalog.recovery.evidence import (
    BatchSequence,
    BlockPart,
    FoundSegment,
    PartBatch,
    PartitionEvidence,
    Source,
    Stretch,
)
from stratalog.recovery.layout import PartitionPlan, plan_partition

KEY = TopicPartition(TopicId(UUID(int=1)), PartitionIndex(0))


def known(base: int, end: int) -> Stretch:
    return Stretch(base, end, Source.KNOWN, (base, end))


def lost(base: int, end: int) -> Stretch:
    return Stretch(base, end, Source.LOST, (base, end))


def split(base: int, end: int) -> Stretch:
    return Stretch(base, end, Source.SPLIT, (base, end))


def segment(base: int, end: int) -> FoundSegment:
    return FoundSegment(base, end, (base, end))


def part(
    writer: Hashable, sequence: int, *counts: int, first: BatchSequence | None = None
) -> BlockPart:
    return BlockPart(
        writer=writer,
        sequence=sequence,
        object_id=ObjectId(UUID(int=abs(hash(writer)) * 100 + sequence)),
        object_key=f"{writer}/{sequence}",
        size_bytes=1000,
        created_ms=sequence,
        batches=[
            PartBatch(
                byte_offset=100 * place,
                byte_size=100,
                record_count=count,
                max_timestamp=0,
                sequence=first if place == 0 else None,
            )
            for place, count in enumerate(counts)
        ],
    )


def run(writer: Hashable, sequence: int, base: int) -> tuple[tuple[Hashable, int], EarlierAnswer]:
    answer = EarlierAnswer(sequence=sequence, is_run=True, offsets=(Offset(base),))
    return (writer, sequence), answer


def plan(
    *,
    stretches: Sequence[Stretch] = (),
    segments: Sequence[FoundSegment] = (),
    parts: Sequence[BlockPart] = (),
    answers: Sequence[tuple[tuple[Hashable, int], EarlierAnswer]] = (),
    log_start: int = 0,
    remote_end: int = 0,
    block_start: int = 0,
    high_watermark: int = 0,
    is_new: bool = False,
) -> PartitionPlan:
    return plan_partition(
        PartitionEvidence(
            key=KEY,
            log_start=log_start,
            remote_end=remote_end,
            block_start=block_start,
            high_watermark=high_watermark,
            is_new=is_new,
            stretches=stretches,
            segments=segments,
            parts=parts,
            answers=dict(answers),
        )
    )


def ranges(rows: Sequence[Stretch]) -> list[tuple[int, int]]:
    return [(row.base, row.end) for row in rows]


def test_a_partition_without_news_stays_as_it_is() -> None:
    made = plan(stretches=[known(0, 5), known(5, 9)], high_watermark=9)
    assert (ranges(made.rows), made.segments, made.end, made.taken_end) == (
        [(0, 5), (5, 9)],
        [],
        9,
        9,
    )
    assert not made.unproven


def test_segments_are_chained_where_the_chain_ends_and_rows_follow_them() -> None:
    made = plan(
        stretches=[known(0, 5), known(5, 9), split(7, 12)],
        segments=[segment(0, 5), segment(5, 7)],
        high_watermark=9,
    )
    assert [(each.base, each.end) for each in made.segments] == [(0, 5), (5, 7)]
    assert ranges(made.rows) == [(7, 12)]
    assert (made.remote_end, made.block_start, made.end) == (7, 7, 12)


def test_a_segment_that_ends_inside_a_row_is_left_out_if_it_leads_nowhere() -> None:
    made = plan(stretches=[known(0, 5), known(5, 9)], segments=[segment(0, 7)], high_watermark=9)
    assert (made.segments, ranges(made.rows)) == ([], [(0, 5), (5, 9)])


def test_a_segment_that_leads_farther_than_the_rows_is_chained() -> None:
    made = plan(stretches=[known(0, 5)], segments=[segment(0, 20)], high_watermark=5)
    assert (len(made.segments), made.rows, made.end, made.block_start) == (1, [], 20, 20)


def test_a_row_whose_object_is_lost_is_replaced_by_another_copy() -> None:
    made = plan(stretches=[lost(0, 5), known(5, 9), split(0, 5)], high_watermark=9)
    assert [row.source for row in made.rows] == [Source.SPLIT, Source.KNOWN]
    assert made.lost == []


def test_a_row_whose_object_is_lost_is_named_if_there_is_no_other_copy() -> None:
    made = plan(stretches=[known(0, 5), lost(5, 9), known(9, 10)], high_watermark=10)
    assert made.lost == [(5, 9)]
    assert ranges(made.rows) == [(0, 5), (5, 9), (9, 10)]


def test_records_that_were_deleted_before_the_backup_stay_deleted() -> None:
    made = plan(
        stretches=[split(0, 50), split(50, 60), known(45, 50)],
        segments=[segment(0, 45)],
        log_start=47,
        remote_end=45,
        block_start=45,
        high_watermark=50,
    )
    assert (made.log_start, made.segments, ranges(made.rows)) == (47, [], [(45, 50), (50, 60)])


def test_a_segment_that_repeats_deleted_offsets_continues_the_chain() -> None:
    made = plan(
        segments=[segment(0, 80)],
        stretches=[known(45, 50)],
        log_start=45,
        remote_end=45,
        block_start=45,
        high_watermark=50,
    )
    assert [(each.base, each.end) for each in made.segments] == [(0, 80)]
    assert (made.remote_end, made.end) == (80, 80)


def test_blocks_that_later_footers_tell_of_are_proven() -> None:
    made = plan(
        stretches=[known(0, 5)],
        parts=[part("w", 3, 2, 3), part("w", 4, 1)],
        answers=[run("w", 3, 5), run("w", 4, 10)],
        high_watermark=5,
    )
    assert ranges(made.rows) == [(0, 5), (5, 7), (7, 10), (10, 11)]
    assert made.inferred == []


def test_a_rejected_batch_gets_no_offset() -> None:
    answer = EarlierAnswer(sequence=3, is_run=False, offsets=(Offset(5), Offset(-1), Offset(7)))
    made = plan(
        stretches=[known(0, 5)],
        parts=[part("w", 3, 2, 9, 1)],
        answers=[(("w", 3), answer)],
        high_watermark=5,
    )
    assert ranges(made.rows) == [(0, 5), (5, 7), (7, 8)]


def test_the_last_blocks_of_the_only_writer_are_inferred_in_their_order() -> None:
    made = plan(
        stretches=[known(0, 5)],
        parts=[part("w", 9, 1), part("w", 7, 2), part("w", 6, 4)],
        answers=[run("w", 6, 5)],
        high_watermark=5,
    )
    assert ranges(made.rows) == [(0, 5), (5, 9), (9, 11), (11, 12)]
    assert made.inferred == [(9, 12)]
    assert made.taken_end == 12


def test_a_batch_that_was_sent_twice_is_inferred_once() -> None:
    sequence = BatchSequence(7, 0, 0)
    made = plan(
        parts=[part("w", 1, 2, first=sequence), part("w", 2, 2, 3, first=sequence)],
        high_watermark=0,
    )
    assert ranges(made.rows) == [(0, 2), (2, 5)]


def test_the_last_blocks_of_two_writers_are_not_given_an_order() -> None:
    made = plan(stretches=[known(0, 5)], parts=[part("a", 1, 2), part("b", 1, 1)], high_watermark=5)
    assert ranges(made.rows) == [(0, 5)]
    assert made.unproven == [(5, 8)]
    assert (made.end, made.taken_end) == (5, 8)
    assert len(made.rest) == 2


def test_a_hole_before_proven_offsets_is_filled_if_one_filling_fits() -> None:
    made = plan(
        stretches=[known(0, 5)],
        parts=[part("dead", 1, 2), part("dead", 2, 1), part("next", 1, 4), part("next", 2, 1)],
        answers=[run("next", 1, 8)],
        high_watermark=5,
    )
    assert ranges(made.rows) == [(0, 5), (5, 7), (7, 8), (8, 12), (12, 13)]
    assert made.inferred == [(5, 8), (12, 13)]


def test_a_hole_is_filled_once_with_a_batch_that_was_sent_twice() -> None:
    """Both copies in the hole would take the place of the block behind them, which would get
    offsets that it never had."""
    twice = BatchSequence(1, 0, 5)
    made = plan(
        stretches=[known(0, 5)],
        parts=[
            part("a", 1, 2, first=twice),
            part("a", 2, 2, first=twice),
            part("a", 3, 2),
            part("b", 1, 4),
        ],
        answers=[run("b", 1, 9)],
        high_watermark=5,
    )
    assert ranges(made.rows) == [(0, 5), (5, 7), (7, 9), (9, 13)]
    assert made.inferred == [(5, 9)]
    assert made.unproven == []


def test_a_hole_that_two_fillings_fit_stays_open() -> None:
    made = plan(
        stretches=[known(0, 5)],
        parts=[part("a", 1, 2), part("b", 1, 2), part("c", 1, 4)],
        answers=[run("c", 1, 7)],
        high_watermark=5,
    )
    assert ranges(made.rows) == [(0, 5), (7, 11)]
    # One of the two may have got the offsets behind the last.
    assert made.unproven == [(5, 7), (11, 15)]


def test_a_hole_that_no_block_fills_does_not_keep_later_blocks_back() -> None:
    made = plan(
        stretches=[known(0, 5)],
        parts=[part("w", 1, 4), part("w", 2, 1)],
        answers=[run("w", 1, 7)],
        high_watermark=5,
    )
    assert ranges(made.rows) == [(0, 5), (7, 11), (11, 12)]
    assert made.unproven == [(5, 7)]


def test_a_new_partition_begins_at_the_first_offset_from_which_a_way_leads_to_its_end() -> None:
    made = plan(
        segments=[segment(20, 40)], stretches=[split(0, 10), split(20, 30), split(40, 45)],
        is_new=True,
    )  # fmt: skip
    assert (made.log_start, made.remote_end, made.block_start, made.end) == (20, 40, 40, 45)
    assert [(each.base, each.end) for each in made.segments] == [(20, 40)]
    assert ranges(made.rows) == [(40, 45)]


def test_a_block_before_one_that_is_told_of_got_no_offsets() -> None:
    made = plan(
        stretches=[known(0, 5)],
        parts=[part("w", 1, 9), part("w", 2, 2), part("w", 3, 1)],
        answers=[run("w", 2, 5)],
        high_watermark=5,
    )
    assert ranges(made.rows) == [(0, 5), (5, 7), (7, 8)]
    assert made.rest == []
