"""Records through Arrow's columns: compiled loops make the bytes that the plain builder makes."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.property.batch_strategies import codecs, record_lists

from stratalog.batch.build import build_batch
from stratalog.batch.from_columns import (
    ColumnEncoder,
    Destination,
    EncodedBatch,
    byte_column,
    header_column,
    record_columns,
)
from stratalog.batch.header import HEADER_BYTES, Codec
from stratalog.batch.records import Record, decode_records

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_NO_HEADERS: tuple[list[dict[str, object]], None] = ([], None)
"""Both ways to say it."""
_ENCODER = ColumnEncoder()
"""One for all, as a task has one: the remains of an earlier call in its buffer must not matter."""


@given(records=record_lists(max_size=20), codec=codecs)
def test_one_batch_has_the_bytes_of_the_plain_builder(records: list[Record], codec: Codec) -> None:
    place = Destination(name="p", codec=codec, max_batch_bytes=1 << 30, keep_codec=True)
    [batch] = _encode(records, [0] * len(records), place)
    assert batch.data == build_batch(records, codec=codec)


@given(data=st.data(), records=record_lists(max_size=30))
def test_rows_spread_over_partitions_stay_whole_in_order_and_within_bounds(
    data: st.DataObject, records: list[Record]
) -> None:
    size = len(records)
    to = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    largest = max(len(build_batch([record._replace(offset=0)])) for record in records)
    limit = largest + data.draw(st.integers(0, 2 * largest))
    place = Destination(name="p", codec=Codec.NONE, max_batch_bytes=limit)
    batches = _encode(records, to, place)
    assert all(HEADER_BYTES < len(batch.data) <= limit for batch in batches)
    for destination in range(4):
        own = [batch for batch in batches if batch.destination == destination]
        read = [record for batch in own for record in decode_records(batch.data)]
        wanted = [record for record, place in zip(records, to, strict=True) if place == destination]
        assert [record[1:] for record in read] == [record[1:] for record in wanted]


def _encode(records: Sequence[Record], to: Sequence[int], place: Destination) -> list[EncodedBatch]:
    headers = [
        [{"key": name, "value": value} for name, value in record.headers] or _NO_HEADERS[row % 2]
        for row, record in enumerate(records)
    ]
    columns = record_columns(
        np.array([record.timestamp for record in records], np.int64),
        byte_column(pa.array([record.key for record in records], pa.binary())),
        byte_column(pa.array([record.value for record in records], pa.binary())),
        header_column(pa.array(headers, _HEADERS)),
    )
    return list(_ENCODER.encode(columns, np.array(to, np.int64), [place] * 4))
