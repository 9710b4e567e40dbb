"""The columns of a scan as Arrow types, exactly as Spark demands them of a Python source."""

from collections.abc import Sequence

import pyarrow as pa

from stratalog.scan.model import ScanColumn

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)

_TYPES: dict[ScanColumn, pa.DataType] = {
    ScanColumn.KEY: pa.binary(),
    ScanColumn.VALUE: pa.binary(),
    ScanColumn.TOPIC: pa.string(),
    ScanColumn.PARTITION: pa.int32(),
    ScanColumn.OFFSET: pa.int64(),
    ScanColumn.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    ScanColumn.TIMESTAMP_TYPE: pa.int32(),
    ScanColumn.HEADERS: HEADERS,
    ScanColumn.LEADER_EPOCH: pa.int32(),
    ScanColumn.TIER: pa.string(),
}


def arrow_schema(columns: Sequence[ScanColumn]) -> pa.Schema:
    """Return a schema of these columns, in this order."""
    return pa.schema([pa.field(column.value, _TYPES[column]) for column in columns])
