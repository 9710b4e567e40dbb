"""How fast record batches become Arrow, as a ratio to reading the same rows from Parquet.

Run: python -m bench.decode [--records 2000000] [--batch-kib 16] [--rounds 3]

The rows (a key of 8 bytes, a value, offset, timestamp and its type, no headers, leader epoch) lie
in memory as record batches and as a Parquet file with pyarrow's defaults, once with values of
100 bytes and once with a tenth as many of 1 KiB. A value is half text that repeats and half
digits that do not, so that codecs and dictionaries have something to find, and not all.
`decode_run` gets runs of 4 MiB. It takes turns with `read_table`, with threads and without, in one
process; the batches are kept, as a table is. Then the same without keeping them, as a scan that
hands them on does, against `iter_batches` of the file, and the offsets alone against all columns.
Ratios are of speed; in brackets, by processor time, which is fairer on a machine with other work.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from stratalog.batch.build import build_batch, recompress
from stratalog.batch.columns import BatchRun, RecordColumn, RecordFilter, decode_run
from stratalog.batch.header import CRC_POSITION, CRC_START, HEADER_BYTES, Codec
from stratalog.batch.records import Record

Bytes: TypeAlias = npt.NDArray[np.uint8]

RUN_BYTES = 4 * 1024 * 1024
KEY_BYTES = 8
FIRST_MS = 1_700_000_000_000
EVERYTHING = RecordFilter(first_offset=0, end_offset=2**63)
ROW: list[RecordColumn] = [column for column in RecordColumn if column is not RecordColumn.HEADERS]
CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
TEXT = b'{"name": "sensor", "kind": "temperature", "unit": "celsius", "value": '


@dataclass(frozen=True, slots=True)
class Run:
    data: bytes
    base_offset: int


@dataclass(frozen=True, slots=True)
class Sample:
    """The same rows in all forms."""

    name: str
    rows: int
    runs: dict[Codec, list[Run]]
    parquet: pa.Buffer


class BatchMaker:
    """Batches of one shape: made once by the builder, and then filled with other bytes."""

    def __init__(self, value_bytes: int, count: int) -> None:
        self.count, self._value_bytes = count, value_bytes
        self._batch = self._built(b"a", b"a")
        self._keys = self._batch != self._built(b"b", b"a")
        self._values = self._batch != self._built(b"a", b"b")
        # The CRC differs as well.
        self._keys[:HEADER_BYTES] = self._values[:HEADER_BYTES] = False

    def _built(self, key: bytes, value: bytes) -> Bytes:
        records = [
            Record(at, FIRST_MS + at, key * KEY_BYTES, value * self._value_bytes)
            for at in range(self.count)
        ]
        return np.frombuffer(build_batch(records), np.uint8).copy()

    def fill(self, keys: Bytes, values: Bytes) -> bytes:
        batch = self._batch
        batch[self._keys] = keys.reshape(-1)
        batch[self._values] = values.reshape(-1)
        crc = crc32c(batch.tobytes()[CRC_START:])
        batch[CRC_POSITION:CRC_START] = np.frombuffer(crc.to_bytes(4), np.uint8)
        return batch.tobytes()


def contents(rows: int, value_bytes: int) -> tuple[Bytes, Bytes]:
    """Keys and values, a row of an array each."""
    generator = np.random.default_rng(7)
    keys = generator.integers(0, 128, (rows, KEY_BYTES), np.uint8)
    values = np.empty((rows, value_bytes), np.uint8)
    half = value_bytes // 2
    values[:, :half] = np.resize(np.frombuffer(TEXT, np.uint8), half)
    digits = (rows, value_bytes - half)
    values[:, half:] = generator.integers(ord("0"), ord("9") + 1, digits, np.uint8)
    return keys, values


def make_sample(rows: int, value_bytes: int, batch_bytes: int) -> Sample:
    maker = BatchMaker(value_bytes, max(1, batch_bytes // (value_bytes + 20)))
    rows -= rows % maker.count
    keys, values = contents(rows, value_bytes)
    spans = [slice(at, at + maker.count) for at in range(0, rows, maker.count)]
    batches = [maker.fill(keys[span], values[span]) for span in spans]
    runs = {codec: make_runs(batches, maker.count, codec) for codec in CODECS}
    table = pa.Table.from_batches(list(decoded(runs[Codec.NONE], list(RecordColumn))))
    table = table.drop_columns("headers")
    assert table["value"][rows - 1].as_py() == values[rows - 1].tobytes()
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return Sample(f"{rows / 1e6:.1f} M records of {value_bytes} B", rows, runs, sink.getvalue())


def make_runs(batches: list[bytes], batch_rows: int, codec: Codec) -> list[Run]:
    """Runs of whole batches. They are not stamped, so that offsets need not be written."""
    runs: list[Run] = []
    parts: list[bytes] = []
    base_offset = 0
    for batch in batches:
        parts.append(batch if codec is Codec.NONE else recompress(batch, 0, codec))
        if len(parts[-1]) * len(parts) >= RUN_BYTES:
            runs.append(Run(b"".join(parts), base_offset))
            base_offset += batch_rows * len(parts)
            parts = []
    runs.append(Run(b"".join(parts), base_offset))
    return runs


def decoded(runs: list[Run], columns: list[RecordColumn]) -> Iterator[pa.RecordBatch]:
    for run in runs:
        where = BatchRun(run.base_offset, stamped=False)
        yield decode_run(run.data, where, columns, EVERYTHING).columns


def read_parquet(sample: Sample, *, use_threads: bool) -> int:
    table = pq.read_table(pa.BufferReader(sample.parquet), use_threads=use_threads)
    return int(table.num_rows)


def stream_parquet(sample: Sample) -> int:
    file = pq.ParquetFile(pa.BufferReader(sample.parquet))
    return sum(batch.num_rows for batch in file.iter_batches(use_threads=False))


def keep_batches(sample: Sample, codec: Codec) -> int:
    batches = list(decoded(sample.runs[codec], ROW))
    return sum(batch.num_rows for batch in batches)


def stream_batches(sample: Sample, codec: Codec, columns: list[RecordColumn]) -> int:
    return sum(batch.num_rows for batch in decoded(sample.runs[codec], columns))


def sides_of(sample: Sample) -> dict[str, Callable[[], int]]:
    sides: dict[str, Callable[[], int]] = {
        "parquet, one thread": lambda: read_parquet(sample, use_threads=False),
        "parquet, threads": lambda: read_parquet(sample, use_threads=True),
        "parquet, streamed": lambda: stream_parquet(sample),
    }
    for codec in CODECS:
        name = codec.name.lower()
        sides[f"{name}, kept"] = partial(keep_batches, sample, codec)
        sides[f"{name}, streamed"] = partial(stream_batches, sample, codec, ROW)
        sides[f"{name}, offsets"] = partial(stream_batches, sample, codec, [RecordColumn.OFFSET])
    return sides


class Seconds(NamedTuple):
    elapsed: float
    of_processor: float


def measure(sample: Sample, rounds: int) -> None:
    sides = sides_of(sample)
    turns: dict[str, list[Seconds]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, work in sides.items():
            turns[name].append(timed(work, sample.rows))
    report(sample, {name: median_of(each) for name, each in turns.items()})


def timed(work: Callable[[], int], rows: int) -> Seconds:
    start, start_processor = time.perf_counter(), time.process_time()
    assert work() == rows
    return Seconds(time.perf_counter() - start, time.process_time() - start_processor)


def median_of(turns: list[Seconds]) -> Seconds:
    return Seconds._make(map(statistics.median, zip(*turns, strict=True)))


def report(sample: Sample, medians: dict[str, Seconds]) -> None:
    print(f"{sample.name}, {sample.parquet.size / 1e6:.0f} MB as Parquet; ns a record:")
    for name, median in medians.items():
        elapsed, of_processor = (seconds / sample.rows * 1e9 for seconds in median)
        figures = f"{elapsed:7.0f} elapsed {of_processor:7.0f} of processor"
        print(f"  {name:19} {figures}{compared(name, medians)}", flush=True)


def compared(name: str, medians: dict[str, Seconds]) -> str:
    """Speed as a ratio to a library that does the same, or nearly the same."""
    codec, _, how = name.partition(", ")
    against = {
        "kept": ["parquet, one thread", "parquet, threads"],
        "streamed": ["parquet, streamed"],
        "offsets": [f"{codec}, streamed"],
    }
    others = [] if codec == "parquet" else against[how]
    return "".join(f"   {ratio(medians[each], medians[name])} of {each}" for each in others)


def ratio(other: Seconds, this: Seconds) -> str:
    of_processor = other.of_processor / this.of_processor
    return f"{other.elapsed / this.elapsed:.2f} ({of_processor:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batch-kib", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for rows, value_bytes in ((options.records, 100), (options.records // 10, 1024)):
        measure(make_sample(rows, value_bytes, options.batch_kib * 1024), options.rounds)


if __name__ == "__main__":
    main()
