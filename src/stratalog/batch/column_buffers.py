"""Arrow buffers for columns of records: allocated, filled by compiled loops, turned into arrays.

Buffers come from Arrow's memory pool, which keeps freed memory: getting fresh pages from the system
costs more than decoding into them. A buffer is allocated for the largest possible result and shrunk
afterwards.
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from stratalog.batch.column_layout import HEADERS_OUT, OUT
from stratalog.batch.columns import COLUMN_TYPES, HEADER_TYPE, RecordColumn
from stratalog.batch.compiled_decode import SLACK_BYTES, fill_headers

Filled: TypeAlias = Mapping[str, int]
"""The fields of a record after a compiled loop has filled it."""


class Column(Protocol):
    """The buffers that a compiled loop fills for one column, and the array made from them."""

    def addresses(self) -> dict[str, int]: ...

    def array(self, filled: Filled) -> pa.Array: ...


class FixedColumn:
    """Values of one width, none of them null."""

    def __init__(self, name: str, arrow_type: pa.DataType, rows_limit: int) -> None:
        self._name, self._arrow_type = name, arrow_type
        self._width_bytes = arrow_type.bit_width // 8
        self._values = _allocate(rows_limit * self._width_bytes)

    def addresses(self) -> dict[str, int]:
        return {f"{self._name}s": self._values.address}

    def array(self, filled: Filled) -> pa.Array:
        rows = filled["rows"]
        self._values.resize(rows * self._width_bytes)
        return pa.Array.from_buffers(self._arrow_type, rows, [None, self._values], 0)


class BytesColumn:
    """Values of any length, or null."""

    def __init__(self, name: str, rows_limit: int, bytes_limit: int) -> None:
        self._name = name
        self._ends = _allocate_ends(rows_limit)
        self._valid = _allocate_valid(rows_limit)
        self._content = _allocate(bytes_limit + SLACK_BYTES)

    def addresses(self) -> dict[str, int]:
        return {
            f"{self._name}_ends": self._ends.address,
            f"{self._name}_valid": self._valid.address,
            f"{self._name}s": self._content.address,
        }

    def array(self, filled: Filled) -> pa.Array:
        rows, nulls = filled["rows"], filled[f"{self._name}_nulls"]
        self._ends.resize((rows + 1) * 4)
        self._content.resize(filled[f"{self._name}_bytes"])
        buffers = [self._valid if nulls else None, self._ends, self._content]
        return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)


class HeadersColumn:
    """Lists of headers, null for a record that has none, as in Spark's Kafka source.

    Filled in two steps: only when all headers are counted, it is known how much they take.
    """

    def __init__(self, rows_limit: int) -> None:
        self._ends = _allocate_ends(rows_limit)
        self._valid = _allocate_valid(rows_limit)
        self._places = _allocate(rows_limit * 16)

    def addresses(self) -> dict[str, int]:
        return {
            "header_ends": self._ends.address,
            "header_valid": self._valid.address,
            "header_places": self._places.address,
        }

    def array(self, filled: Filled) -> pa.Array:
        rows, count, size_bytes = filled["rows"], filled["headers"], filled["header_bytes"]
        names = BytesColumn("name", count, size_bytes)
        values = BytesColumn("value", count, size_bytes)
        record = filled_record(HEADERS_OUT, names.addresses() | values.addresses())
        fill_headers(filled_record(OUT, filled), record)
        pairs = fields_of(record)
        texts = _texts(names.array(pairs), is_ascii=bool(pairs["is_ascii"]))
        headers = pa.StructArray.from_arrays([texts, values.array(pairs)], fields=list(HEADER_TYPE))
        self._ends.resize((rows + 1) * 4)
        nulls, headers_type = filled["header_nulls"], COLUMN_TYPES[RecordColumn.HEADERS]
        buffers = [self._valid if nulls else None, self._ends]
        return pa.Array.from_buffers(headers_type, rows, buffers, nulls, children=[headers])


def filled_record(record_type: np.dtype[np.void], fields: Mapping[str, int]) -> Any:
    """An array of one record: compiled functions take no other."""
    values = [fields.get(name, 0) for name in record_type.names or ()]
    return np.array([tuple(values)], record_type)


def fields_of(record: Any) -> dict[str, int]:
    """Return the fields of such an array by name."""
    return dict(zip(record.dtype.names, record[0].item(), strict=True))


def _allocate(size_bytes: int) -> pa.Buffer:
    return pa.allocate_buffer(size_bytes, resizable=True)


def _allocate_ends(count_limit: int) -> pa.Buffer:
    """Where each value ends, after a zero where the first one starts."""
    ends = _allocate((count_limit + 1) * 4)
    np.frombuffer(ends, np.int32, count=1).fill(0)
    return ends


def _allocate_valid(count_limit: int) -> pa.Buffer:
    """A bit for each value, set. The loops clear the bits of nulls."""
    valid = _allocate(-(-count_limit // 8))
    np.frombuffer(valid, np.uint8).fill(0xFF)
    return valid


def _texts(names: pa.Array, *, is_ascii: bool) -> pa.Array:
    """Names as text. Some clients send names that are not UTF-8; those bytes are replaced."""
    if is_ascii:
        return names.view(pa.string())
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [name.decode(errors="replace") for name in names.to_pylist()]
        return pa.array(texts, pa.string())
