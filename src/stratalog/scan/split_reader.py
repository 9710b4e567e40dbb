"""What a task does: reads the bytes of its split and gives its records as Arrow batches."""

from collections.abc import Generator, Iterator

import pyarrow as pa

from stratalog.opening.workers import WorkerAccess
from stratalog.scan.chunks import Chunk, Frames
from stratalog.scan.decode import Decoder, sized
from stratalog.scan.fetch import fetched
from stratalog.scan.model import ScanSplit
from stratalog.scan.opened_place import OpenPlace, open_place


def read_split(split: ScanSplit, place: WorkerAccess) -> Iterator[pa.RecordBatch]:
    """The wanted records in order, with exactly the wanted columns.

    Bytes are fetched ahead by the process's background thread; decoding is done by the caller's.
    """
    decoder = Decoder.of(split)
    chunks = chunks_of(split, open_place(place))
    try:
        yield from sized(batch for chunk in chunks for batch in decoder.decode(chunk))
    finally:
        chunks.close()


def chunks_of(split: ScanSplit, place: OpenPlace) -> Generator[Chunk]:
    frames = Frames()
    parts = fetched(split, place)
    try:
        for part, data in parts:
            yield from frames.feed(part, data)
    finally:
        parts.close()
