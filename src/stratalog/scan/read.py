"""What a task does: reads the bytes of its split and gives its records as Arrow batches."""

from collections.abc import Generator, Iterator

import pyarrow as pa

from stratalog.scan.decoding import Decoder, sized
from stratalog.scan.fetching import fetched
from stratalog.scan.framing import Chunk, Frames
from stratalog.scan.model import ScanPlace, ScanSplit
from stratalog.scan.opened_place import OpenPlace, open_place


def read_split(split: ScanSplit, place: ScanPlace) -> Iterator[pa.RecordBatch]:
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
