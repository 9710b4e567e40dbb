"""Any batches in, the same batches out, and everything is found through the indexes."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.batch_strategies import codecs, producers, record_lists

from stratalog.batch.build import build_batch
from stratalog.batch.control import ControlType, EndTxnMarker, end_txn_record
from stratalog.batch.frames import iter_batches
from stratalog.batch.header import BatchHeader, Codec
from stratalog.batch.records import Record, decode_records, iter_records
from stratalog.ids import LeaderEpoch, Offset, ProducerId
from stratalog.segment.batch_framing import whole_batches
from stratalog.segment.build import BuiltLog, SegmentBuilder
from stratalog.segment.model import AbortedTransaction, SourceRun
from stratalog.segment.offset_index import OffsetIndex
from stratalog.segment.producer_state import PartitionTail, advance
from stratalog.segment.time_index import TimeIndex


class Source(NamedTuple):
    run: SourceRun
    data: bytes

    def __repr__(self) -> str:
        """Short: the bytes of a failing example say nothing to anybody."""
        return f"Source({self.run}, {len(self.data)} bytes)"


Sources = list[Source]

FEW = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Each example is a whole segment."""


def make_batch(
    timestamps: list[int], value_bytes: int, codec: Codec, producer: tuple[int, int, int]
) -> bytes:
    producer_id, producer_epoch, base_sequence = producer
    return build_batch(
        [Record(at, time, None, bytes(value_bytes)) for at, time in enumerate(timestamps)],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


times = st.integers(0, 50)
"""Few, so that many records have the same."""
batches = st.builds(
    make_batch, st.lists(times, min_size=1, max_size=4), st.integers(0, 2000), codecs, producers
)
varied_batches = st.builds(build_batch, record_lists(max_size=3), codec=codecs)


@st.composite
def sources(draw: st.DrawFn, kinds: st.SearchStrategy[bytes] = batches) -> Sources:
    """Runs of batches that follow each other, as the control plane would tell of them."""
    offset = draw(st.integers(0, 2**40))
    epoch = 0
    found: Sources = []
    for run_batches in draw(
        st.lists(st.lists(kinds, min_size=1, max_size=4), min_size=1, max_size=3)
    ):
        data = b"".join(run_batches)
        count = sum(header.last_offset_delta + 1 for _, header in iter_batches(data))
        epoch += draw(st.integers(0, 2))
        append_time_ms = draw(st.one_of(st.none(), st.none(), times))
        run = SourceRun(
            Offset(offset), Offset(offset + count - 1), LeaderEpoch(epoch), False, append_time_ms
        )
        found.append(Source(run, data))
        offset += count
    return found


@dataclass
class Built:
    log: BuiltLog
    data: bytes

    @property
    def batches(self) -> list[tuple[int, BatchHeader]]:
        return list(iter_batches(self.data))

    @property
    def records(self) -> list[Record]:
        return list(iter_records(self.data, with_control=True))


def build(runs: Sources, *, interval_bytes: int, piece_bytes: int) -> Built:
    builder = SegmentBuilder(runs[0][0].base_offset, index_interval_bytes=interval_bytes)
    written = b""
    for run, data in runs:
        pieces = [data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes)]
        written += b"".join(builder.add(each, run) for each in whole_batches(pieces))
    return Built(builder.finish(), written)


def stamped(runs: Sources, data: bytes) -> Sources:
    """The same runs, with the bytes that a segment has of them."""
    found: Sources = []
    position = 0
    for run, source in runs:
        part = data[position : position + len(source)]
        found.append(Source(run._replace(stamped=True, append_time_ms=None), part))
        position += len(source)
    return found


intervals = st.integers(0, 5000)
piece_sizes = st.integers(1, 5000)


@FEW
@given(st.one_of(sources(), sources(varied_batches)), intervals, piece_sizes)
def test_the_same_batches_come_out_with_their_offsets(
    runs: Sources, interval_bytes: int, piece_bytes: int
) -> None:
    built = build(runs, interval_bytes=interval_bytes, piece_bytes=piece_bytes)
    before = [
        record._replace(
            timestamp=record.timestamp if (time := run.append_time_ms) is None else time
        )
        for run, data in runs
        for record in iter_records(data)
    ]
    base = runs[0][0].base_offset
    assert built.records == [
        record._replace(offset=base + index) for index, record in enumerate(before)
    ]
    assert built.log.size_bytes == len(built.data)
    assert built.log.last_offset == runs[-1][0].last_offset
    assert built.log.max_timestamp == max(header.max_timestamp for _, header in built.batches)
    for run, _ in runs:
        assert {
            header.leader_epoch
            for _, header in built.batches
            if run.base_offset <= header.base_offset <= run.last_offset
        } == {run.leader_epoch}


@FEW
@given(sources(), intervals, piece_sizes)
def test_a_segment_built_of_a_segment_is_the_same(
    runs: Sources, interval_bytes: int, piece_bytes: int
) -> None:
    built = build(runs, interval_bytes=interval_bytes, piece_bytes=piece_bytes)
    again = build(stamped(runs, built.data), interval_bytes=interval_bytes, piece_bytes=10**9)
    assert again == built


@FEW
@given(sources(), intervals)
def test_every_offset_is_found_through_the_offset_index(runs: Sources, interval_bytes: int) -> None:
    built = build(runs, interval_bytes=interval_bytes, piece_bytes=10**9)
    index = OffsetIndex(built.log.offset_index, built.log.base_offset)
    index.check(len(built.data))
    starts = {position for position, _ in built.batches}
    for position, header in built.batches:
        end = position + header.size_bytes
        for offset in range(header.base_offset, header.last_offset + 1):
            start, sure_end = index.span(Offset(offset))
            assert start == index.lookup(Offset(offset))
            assert start in starts
            assert start <= position
            assert sure_end is None or sure_end >= end


@FEW
@given(sources(), intervals, st.data())
def test_a_lookup_by_time_never_skips_the_first_match(
    runs: Sources, interval_bytes: int, data: st.DataObject
) -> None:
    built = build(runs, interval_bytes=interval_bytes, piece_bytes=10**9)
    index = TimeIndex(built.log.time_index, built.log.base_offset)
    index.check(built.log.last_offset)
    records = built.records
    near = st.sampled_from([record.timestamp for record in records])
    asked = data.draw(near) + data.draw(st.integers(-1, 1))
    first = next((record.offset for record in records if record.timestamp >= asked), None)
    if first is not None:
        assert index.lookup(asked) <= first
    assert all(
        record.timestamp < asked for record in records if record.offset < index.lookup(asked)
    )


Step = tuple[int, str]
steps = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["data", "txn", "commit", "abort", "bump"])),
    min_size=1,
    max_size=30,
)


class Oracle:
    """Kafka's rules, batch by batch, as they are written down and not as we fold them."""

    def __init__(self) -> None:
        self.epoch: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.open: dict[int, int] = {}
        self.aborted: list[AbortedTransaction] = []

    def apply(self, producer: int, kind: str, offset: int) -> bytes:
        epoch = self.epoch.setdefault(producer, 0)
        if kind == "bump":
            # A coordinator that fences a producer aborts with the next epoch.
            self.epoch[producer] = epoch = epoch + 1
            self.last.pop(producer, None)
        if kind in ("data", "txn"):
            # A producer does not leave a transaction but by its end.
            transactional = kind == "txn" or producer in self.open
            if transactional:
                self.open.setdefault(producer, offset)
            self.last[producer] = offset
            return self._data(producer, epoch, transactional)
        first = self.open.pop(producer, None)
        if first is not None and kind != "commit":
            stable = min(self.open.values(), default=offset + 1)
            self.aborted.append(
                AbortedTransaction(
                    ProducerId(producer), Offset(first), Offset(offset), Offset(stable)
                )
            )
        return self._marker(producer, epoch, kind)

    @staticmethod
    def _data(producer: int, epoch: int, transactional: bool) -> bytes:
        return build_batch(
            [Record(0, 5, None, b"x")],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=transactional,
        )

    @staticmethod
    def _marker(producer: int, epoch: int, kind: str) -> bytes:
        control = ControlType.COMMIT if kind == "commit" else ControlType.ABORT
        record = end_txn_record(EndTxnMarker(control, 0), offset=0, timestamp_ms=5)
        return build_batch(
            [record], producer_id=producer, producer_epoch=epoch, transactional=True, control=True
        )


@FEW
@given(steps, st.sets(st.integers(1, 29)))
def test_transactions_are_the_same_wherever_segments_are_cut(
    taken: list[Step], cuts: set[int]
) -> None:
    oracle = Oracle()
    made = [oracle.apply(producer, kind, offset) for offset, (producer, kind) in enumerate(taken)]
    bounds = sorted({0, len(made)} | {cut for cut in cuts if cut < len(made)})
    tail, aborted = PartitionTail(), list[AbortedTransaction]()
    for start, end in pairwise(bounds):
        run = SourceRun(Offset(start), Offset(end - 1), LeaderEpoch(0), False)
        built = build(
            [Source(run, b"".join(made[start:end]))], interval_bytes=4096, piece_bytes=10**9
        )
        tail, more = advance(PartitionTail.from_snapshot(tail.to_snapshot()), built.log)
        aborted += more
    assert aborted == oracle.aborted
    entries = tail.producers.values()
    assert {e.producer_id: e.producer_epoch for e in entries} == oracle.epoch
    assert {e.producer_id: e.last_offset for e in entries if e.last_offset >= 0} == oracle.last
    assert {
        e.producer_id: e.txn_first_offset for e in entries if e.txn_first_offset >= 0
    } == oracle.open


@FEW
@given(sources())
def test_decoding_a_batch_at_its_indexed_position_gives_the_indexed_offset(runs: Sources) -> None:
    built = build(runs, interval_bytes=0, piece_bytes=10**9)
    index = OffsetIndex(built.log.offset_index, built.log.base_offset)
    for position, header in built.batches[1:]:
        assert index.lookup(Offset(header.last_offset)) == position
        assert decode_records(built.data, position)[0].offset == header.base_offset
