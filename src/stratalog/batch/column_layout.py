"""Records that Python and the compiled loops share, in the memory layout that both use.

The numbers become part of the compiled code, which is cached: changing one takes a change in every
file of loops, too.
"""

import numpy as np

REFUSED = -1
"""The answer of a loop to bytes that cannot be right."""

SKIP, COUNT, UNPACK, DECODE = 0, 1, 2, 3
"""Actions for a batch: skip it, count its offsets without reading its records, decompress its
records before decoding, or decode them in place."""


def _record_type(names: str) -> np.dtype[np.void]:
    """Make every field 64 bits wide: a run has few records, and none needs padding."""
    return np.dtype([(name, np.int64) for name in names.split()])


FRAME = _record_type(
    "start end crc base_offset leader_epoch attributes last_offset_delta base_timestamp"
    " max_timestamp producer_id records_count action is_partial body_address body_bytes"
)
"""A batch of the run. `is_partial` says that its records have to be looked at one by one."""

PLAN = _record_type(
    "base_offset stamped leader_epoch has_append_time append_time_ms"
    " first_offset last_offset first_timestamp_ms last_timestamp_ms skips_control"
    " needs_records needs_timestamps body_bytes_limit next_offset rows_limit bytes_limit"
)
"""The run, the filter and the wanted columns; the last three fields are results."""

OUT = _record_type(
    "offsets timestamps timestamp_types leader_epochs key_ends key_valid keys"
    " value_ends value_valid values header_ends header_valid header_places"
    " rows key_bytes key_nulls value_bytes value_nulls headers header_bytes header_nulls"
)
"""Addresses of the buffers, 0 for a column that is not wanted, then the counts of filled values."""

HEADERS_OUT = _record_type(
    "name_ends name_valid names value_ends value_valid values"
    " rows name_bytes name_nulls value_bytes value_nulls is_ascii"
)

LAYOUT = _record_type(
    "segment_offset next_offset leader_epoch stamped has_append_time append_time_ms"
    " size_bytes since_entry_bytes interval_bytes max_timestamp max_timestamp_offset"
    " noted_timestamp min_append_time other_times offset_entries time_entries noteworthy"
)
"""A segment under construction: the stamps of the run, the state of the log that its indexes depend
on, and last the numbers of index entries and of noteworthy batches from the last call."""
