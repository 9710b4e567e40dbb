"""Runs of batches in compiled loops, which read by address: a wrong one reads other memory.

A page that ends the process when it is touched follows each input, and a run that the entry takes
must be readable.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from tests.fuzz.batch_targets import RECORDS_TRIED
from tests.fuzz.compiled_look import LOOPS_DISAGREE, SOUND_TOO, crc_table, look_at_all
from tests.fuzz.guarded_room import GuardedRoom
from tests.fuzz.judge import Case, Target

from stratalog.batch.build import build_batch
from stratalog.batch.column_buffers import (
    BytesColumn,
    Column,
    FixedColumn,
    HeadersColumn,
    filled_record,
)
from stratalog.batch.column_layout import FRAME, HEADERS_OUT, OUT, PLAN
from stratalog.batch.columns import COLUMN_TYPES, RecordColumn
from stratalog.batch.compiled_log_walk import FIELDS as LOG_FIELDS
from stratalog.batch.compiled_log_walk import ROOM
from stratalog.batch.compiled_walk import EARLIEST, FIELDS, LATEST, MOST_REFUSED
from stratalog.batch.header import HEADER_BYTES
from stratalog.batch.records import MIN_RECORD_BYTES, Record

_MOST_BYTES = 1 << 16
_MOST_ROWS = _MOST_BYTES // MIN_RECORD_BYTES
_INT64_MIN, _INT64_LAST = -(1 << 63), (1 << 63) - 1
_FIXED = {
    "offset": RecordColumn.OFFSET,
    "timestamp": RecordColumn.TIMESTAMP,
    "timestamp_type": RecordColumn.TIMESTAMP_TYPE,
    "leader_epoch": RecordColumn.LEADER_EPOCH,
}
_AT_ONCE = 2048


def compiled_targets() -> list[Target]:
    loops = CompiledLoops()
    cases = [Case(good, loops.run, loops.wrong_ones) for good in _runs()]
    return [Target("compiled loops over batches", 44, cases, _AT_ONCE)]


def _runs() -> list[bytes]:
    small = [Record(0, 5, None, b"v"), Record(1, 6, b"", None)]
    a, b, c = build_batch(small[:1]), build_batch(small), build_batch(RECORDS_TRIED)
    return [b, c, b + c + a + b]


class CompiledLoops:
    """The memory that the loops work in, enough for the largest mutant."""

    def __init__(self, table: Any = None) -> None:
        self._table = crc_table() if table is None else table
        self.found: Counter[int] = Counter()
        self._room = GuardedRoom(_MOST_BYTES)
        self._columns = _columns()
        self._names, self._values = (
            BytesColumn(name, _MOST_BYTES, _MOST_BYTES) for name in ("name", "value")
        )
        self._walk = array("q", bytes(8 * (FIELDS + 3 * MOST_REFUSED)))
        self._walk[EARLIEST], self._walk[LATEST] = _INT64_MIN, _INT64_LAST
        self._log = np.zeros(LOG_FIELDS + 3 * ROOM, np.int64)
        self._kit = self._made_kit()

    def _made_kit(self) -> tuple[Any, ...]:
        addresses = {key: at for one in self._columns for key, at in one.addresses().items()}
        out = filled_record(OUT, addresses)
        headers = filled_record(HEADERS_OUT, self._names.addresses() | self._values.addresses())
        plan = {
            "last_offset": _INT64_LAST,
            "last_timestamp_ms": _INT64_LAST,
            "needs_records": 1,
            "needs_timestamps": 1,
            "body_bytes_limit": _MOST_BYTES,
        }
        return (
            np.zeros(_MOST_BYTES // HEADER_BYTES, FRAME),
            filled_record(PLAN, plan),
            np.zeros((0, 3), np.int64),
            *(out, out.copy(), headers, headers.copy()),
            *(np.frombuffer(self._walk, np.int64), self._walk.buffer_info()[0]),
            *(self._log, self._log.__array_interface__["data"][0]),
            self._table,
        )

    def run(self, data: bytes) -> None:
        assert not self.wrong_ones([data, data]), "compiled loops disagree about a batch"

    def wrong_ones(self, inputs: Sequence[bytes]) -> list[bytes]:
        inputs = [data[:_MOST_BYTES] for data in inputs]
        ends = np.fromiter(accumulate(map(len, inputs)), np.int64, len(inputs))
        found = np.zeros(len(inputs), np.int64)
        joined = np.frombuffer(b"".join(inputs), np.uint8)
        look_at_all(self._room.address, self._room.data, joined, ends, self._kit, found)
        self.found.update(dict(enumerate(np.bincount(found, minlength=SOUND_TOO + 1).tolist())))
        return [inputs[index] for index in np.flatnonzero(found == LOOPS_DISAGREE)]


def _columns() -> list[Column]:
    fixed = [FixedColumn(name, COLUMN_TYPES[one], _MOST_ROWS) for name, one in _FIXED.items()]
    return [
        BytesColumn("key", _MOST_ROWS, _MOST_BYTES),
        BytesColumn("value", _MOST_ROWS, _MOST_BYTES),
        HeadersColumn(_MOST_ROWS),
        *fixed,
    ]
